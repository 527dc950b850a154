package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"time"
)

// File is a file of the archive. Its text was scrubbed.
type File struct {
	Name string
	Data []byte
}

// mostFile bounds a file of the archive. Of a longer one the end is left out.
const mostFile = 16 << 20

// Archive writes files as a compressed tar archive.
func Archive(folder string, at time.Time, files []File) ([]byte, error) {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	w := tar.NewWriter(packed)
	for _, f := range files {
		if len(f.Data) > mostFile {
			f.Data = append(f.Data[:mostFile:mostFile], "\n(the rest was left out)\n"...)
		}
		header := &tar.Header{Name: folder + "/" + f.Name, Mode: 0o600, Size: int64(len(f.Data)), ModTime: at}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("archive: %s: %w", f.Name, err)
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, fmt.Errorf("archive: %s: %w", f.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	if err := packed.Close(); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return out.Bytes(), nil
}
