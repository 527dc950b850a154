package emulated

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
)

const (
	interferencePoll = 50 * time.Millisecond
	interferenceMax  = 64 << 10 // bytes
)

// WriteInterference writes a file with the share of each resource that a machine's neighbours ask for, 0 or more. The machine's process
// polls the file. A reader sees the old content or the new, never a part.
func WriteInterference(path string, use map[quell.Resource]float64) error {
	if err := checkInterference(use); err != nil {
		return fmt.Errorf("writing interference: %w", err)
	}
	content, err := json.Marshal(use)
	if err != nil {
		return fmt.Errorf("writing interference: %w", err)
	}
	if err := atomicfile.Write(path, content, 0o600); err != nil {
		return fmt.Errorf("writing interference: %w", err)
	}
	return nil
}

func checkInterference(use map[quell.Resource]float64) error {
	for r, share := range use {
		if err := new(quell.Resource).UnmarshalText([]byte(r)); err != nil {
			return err
		}
		if !(share >= 0) || math.IsInf(share, 0) {
			return fmt.Errorf("%s: %v: must be a finite share, 0 or more", r, share)
		}
	}
	return nil
}

// parseInterference accepts only one JSON object of known resources and finite shares.
func parseInterference(content []byte) (map[quell.Resource]float64, error) {
	use := map[quell.Resource]float64{}
	d := json.NewDecoder(bytes.NewReader(content))
	if err := d.Decode(&use); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the first JSON value")
	}
	return use, checkInterference(use)
}

// interferenceFile follows the file that sets what the neighbours use.
type interferenceFile struct {
	path string
	set  func(network float64) error
	log  *slog.Logger

	seen    fs.FileInfo // nil if there was no file
	trouble bool        // the present error has been reported
}

// follow polls the file until ctx ends. If the file is missing, there are no neighbours. A broken file is reported and changes nothing.
func (f *interferenceFile) follow(ctx context.Context) {
	tick := time.NewTicker(interferencePoll)
	defer tick.Stop()
	for {
		f.note(f.poll())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// note reports an error unless the previous poll failed, too.
func (f *interferenceFile) note(err error) {
	if err != nil && !f.trouble {
		f.log.Error("the neighbours stay as they are", "file", f.path, "error", err)
	}
	f.trouble = err != nil
}

// poll applies the file if it is not the same file as last time. Files are put in place by rename, so a rewritten file is a new file.
func (f *interferenceFile) poll() error {
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		if f.seen == nil {
			return nil
		}
		f.seen = nil
		return f.set(0)
	}
	if err != nil {
		return err
	}
	if f.seen != nil && os.SameFile(info, f.seen) && info.ModTime().Equal(f.seen.ModTime()) && info.Size() == f.seen.Size() && !f.trouble {
		return nil
	}
	use, err := f.read()
	if err != nil {
		return err
	}
	f.seen = info
	for r, share := range use {
		if r != Shared && share > 0 {
			f.log.Warn("this testbed has neighbours on the network only", "resource", r, "share", share)
		}
	}
	return f.set(use[Shared])
}

func (f *interferenceFile) read() (map[quell.Resource]float64, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, interferenceMax+1))
	if err != nil {
		return nil, err
	}
	if len(content) > interferenceMax {
		return nil, fmt.Errorf("longer than %d bytes", interferenceMax)
	}
	return parseInterference(content)
}
