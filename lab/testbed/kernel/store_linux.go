package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Start makes the objects, starts the store, and returns when it listens. A missing program is a *quell.UserError.
func (s *ObjectStore) Start(ctx context.Context) error {
	if s.run != nil {
		return errors.New("this object store has been started already")
	}
	program, err := findStore()
	if err != nil {
		return err
	}
	if s.Port == 0 {
		s.Port = 80
	}
	if err := s.write(); err != nil {
		return fmt.Errorf("preparing the object store: %w", err)
	}
	s.finish, s.force = syscall.SIGTERM, syscall.SIGKILL
	return s.start(ctx, func() (*process, error) {
		return launch(s.Place, s.Dir, storeProgram, s.finish, program, "--access", StoreUser, "--secret", StoreSecret, "--region", StoreRegion,
			"--keep-alive", "--quiet", "--port", fmt.Sprintf("%s:%d", s.Place.address, s.Port), "posix", filepath.Dir(s.Content()))
	}, s.Port)
}

// storeProgram is the name of the program.
const storeProgram = "versitygw"

// findStore returns the program's path: in the search path, or where `make store` puts it.
func findStore() (string, error) {
	if path, err := exec.LookPath(storeProgram); err == nil {
		return path, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "quell", "store", storeProgram)
	if _, err := os.Stat(path); err != nil {
		return "", userErrorf("the object store %s is not installed: run make store", storeProgram)
	}
	return path, nil
}

func (s *ObjectStore) write() (err error) {
	if s.Dir, err = filepath.Abs(s.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Content(), 0o755); err != nil {
		return err
	}
	return writeFiles("object store", s.Content(), s.Objects)
}
