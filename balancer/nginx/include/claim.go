package include

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/quellhq/quell/internal/lockfile"
)

// Claim makes this process the only one that changes a file, with a lock on a file beside it. The lock ends with the process. If another
// process has it, the error is lockfile.ErrHeld, and holder is the name that it gave.
func Claim(path, name string) (release func() error, holder string, err error) {
	dir, base := filepath.Split(path)
	claim := filepath.Join(dir, "."+base+".quell-owner")
	release, err = lockfile.Take(claim, 0o644)
	if errors.Is(err, lockfile.ErrHeld) {
		text, _ := os.ReadFile(claim)
		return nil, strings.TrimSpace(string(text)), err
	}
	if err != nil {
		return nil, "", err
	}
	if err := os.WriteFile(claim, []byte(name+"\n"), 0o644); err != nil {
		return nil, "", errors.Join(err, release())
	}
	return release, "", nil
}
