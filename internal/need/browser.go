package need

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Browser needs Chromium, and returns its path.
func Browser(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Skip(t, "needs Chromium")
	return ""
}

// Axe needs axe-core, which finds what keeps people from using a page, where `make axe` puts it, and returns its text.
func Axe(t testing.TB) string {
	t.Helper()
	if folder, err := os.UserCacheDir(); err == nil {
		if text, err := os.ReadFile(filepath.Join(folder, "quell", "axe", "package", "axe.min.js")); err == nil {
			return string(text)
		}
	}
	Skip(t, "needs axe-core: run make axe")
	return ""
}
