// Package modelfile reads and writes the files of models and of training rows, which package model decodes and encodes.
package modelfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/namedfile"
	"github.com/quellhq/quell/model"
)

// maxBytes is the largest size of a file of models.
const maxBytes = 64 << 20

// Load reads models from a file. If the file has mistakes, the error is one *quell.UserError that names file, line and path
// of each.
func Load(path string) (*model.Models, error) {
	text, err := namedfile.Read(path, maxBytes)
	if err != nil {
		return nil, &quell.UserError{Err: fmt.Errorf("reading models: %w", err)}
	}
	return model.Decode(text, path+":")
}

// Save writes models.json in one step: a reader sees either the old or the new file. If the path is a symbolic link, its
// target is replaced. If it is no regular file, Save returns an error.
func Save(m *model.Models, path string) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return &quell.UserError{Err: fmt.Errorf("writing models: %s is not a regular file", path)}
	}
	var text bytes.Buffer
	if err := m.Encode(&text); err != nil {
		return err
	}
	if err := atomicfile.Write(path, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing models: %w", err)
	}
	return nil
}

// LoadTraining reads training rows from a file as model.ReadTraining does. Its errors name the file.
func LoadTraining(path string) ([]model.TrainingRow, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &quell.UserError{Err: fmt.Errorf("reading training rows: %w", err)}
	}
	defer f.Close()
	return model.ReadTraining(f, path+":")
}
