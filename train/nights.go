package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/model"
)

// nightsFile is the file in the data folder with the training rows of red-line tests by night.
const nightsFile = "redline-rows.jsonl"

// mostNights bounds it, in bytes. Nights after that are still in the journal.
const mostNights = 64 << 20

// KeepNights returns a function that stores training rows in a data folder, for quell fit.
func KeepNights(data string) func([]model.TrainingRow) error {
	path := filepath.Join(data, nightsFile)
	return func(rows []model.TrainingRow) error {
		var text bytes.Buffer
		for i := range rows {
			if err := json.NewEncoder(&text).Encode(&rows[i]); err != nil {
				return fmt.Errorf("training rows: %w", err)
			}
		}
		if text.Len() == 0 {
			return nil
		}
		if err := appendRows(path, text.Bytes()); err != nil {
			return fmt.Errorf("training rows of a red-line test: %w", err)
		}
		return nil
	}
}

// appendRows appends whole lines to a file. A line that a killed process, or a full disk, left unfinished is removed first.
func appendRows(path string, text []byte) (err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := atomicfile.WholeLines(file)
	if err != nil {
		return err
	}
	if size+int64(len(text)) > mostNights {
		return fmt.Errorf("%s has %d MB: move it away, then new rows are kept again", path, size>>20)
	}
	if _, err = file.WriteAt(text, size); err != nil {
		return errors.Join(err, file.Truncate(size))
	}
	return nil
}
