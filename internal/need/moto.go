package need

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Moto needs moto's server, a stand-in for AWS, in the search path or where `make moto` puts it, and returns its path.
func Moto(t testing.TB) string {
	t.Helper()
	if folder, err := os.UserCacheDir(); err == nil {
		path := filepath.Join(folder, "quell", "moto", "bin", "moto_server")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	if path, err := exec.LookPath("moto_server"); err == nil {
		return path
	}
	Skip(t, "needs moto_server: run make moto")
	return ""
}
