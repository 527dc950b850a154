package kernel

import (
	"os"
	"path/filepath"
)

// runDirs contains a folder for each lab, next to the namespaces' folder.
const runDirs = "/run/quell-lab"

// RunDir is the folder of a lab for files that must not outlive the lab, such as Unix sockets, whose paths must be short. New makes it;
// Close and Clean remove it.
func RunDir(prefix string) string { return filepath.Join(runDirs, prefix) }

// MakeRunDir makes a folder below RunDir for one run.
func MakeRunDir(prefix, pattern string) (string, error) {
	if err := checkPrefix(prefix); err != nil {
		return "", err
	}
	return os.MkdirTemp(RunDir(prefix), pattern)
}
