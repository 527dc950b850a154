package kernel

import (
	"os"
	"path/filepath"
)

// runDirs holds a folder for each lab, beside the namespaces' own.
const runDirs = "/run/quell-lab"

// RunDir is the folder of a lab of that prefix for what shall not outlive it, as Unix sockets: its path is short. New
// makes it, Close and Clean remove it with all that is in it.
func RunDir(prefix string) string { return filepath.Join(runDirs, prefix) }

// MakeRunDir makes a folder of its own below RunDir, for one run.
func MakeRunDir(prefix, pattern string) (string, error) {
	if err := checkPrefix(prefix); err != nil {
		return "", err
	}
	return os.MkdirTemp(RunDir(prefix), pattern)
}
