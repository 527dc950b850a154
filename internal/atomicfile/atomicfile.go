// Package atomicfile writes files whole or not at all. Whoever reads one finds the old content or the new, also after a crash at any
// point; both the file and its folder are on the disk when a function returns. Files have the permissions that are asked for, whatever
// the umask and an older file say.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write makes a file, or replaces the one that is there. A link is replaced, not followed.
func Write(path string, data []byte, mode os.FileMode) error {
	file, err := begin(path, data, mode)
	if err != nil {
		return err
	}
	if err := file.CloseAtomicallyReplace(); err != nil {
		return errors.Join(err, file.Cleanup())
	}
	return syncFolder(path)
}

// Create makes a file. Where one is there it is left alone, and the error is os.ErrExist.
func Create(path string, data []byte, mode os.FileMode) error {
	file, err := begin(path, data, mode)
	if err != nil {
		return err
	}
	if err = file.Sync(); err == nil {
		err = os.Link(file.Name(), path)
	}
	if err = errors.Join(err, file.Cleanup()); err != nil {
		return err
	}
	return syncFolder(path)
}

// begin writes the content to a file of another name in the same folder.
func begin(path string, data []byte, mode os.FileMode) (*renameio.PendingFile, error) {
	file, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(mode))
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(data); err != nil {
		return nil, errors.Join(err, file.Cleanup())
	}
	return file, nil
}

func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
