package need

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Helm needs Helm, where `make helm` puts it or in the search path, and returns its path.
func Helm(t testing.TB) string {
	t.Helper()
	if folder, err := os.UserCacheDir(); err == nil {
		path := filepath.Join(folder, "quell", "helm", "4.3.1", "helm")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	if path, err := exec.LookPath("helm"); err == nil {
		return path
	}
	Skip(t, "needs helm: run make helm, which builds it in some minutes")
	return ""
}
