package need

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Envoy needs Envoy, in the search path or where `make envoy` puts it, and returns its path.
func Envoy(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("envoy"); err == nil {
		return path
	}
	if folder, err := os.UserCacheDir(); err == nil {
		found, _ := filepath.Glob(filepath.Join(folder, "quell", "envoy", "lib", "python*", "site-packages", "envoy", "_bin", "envoy"))
		if len(found) > 0 {
			return found[0]
		}
	}
	Skip(t, "needs Envoy: run make envoy")
	return ""
}
