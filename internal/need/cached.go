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
	return cached(t, "helm/4.3.1/helm", "run make helm, which builds it in some minutes")
}

// Moto needs moto's server, a stand-in for AWS, in the search path or where `make moto` puts it, and returns its path.
func Moto(t testing.TB) string {
	t.Helper()
	return cached(t, "moto/bin/moto_server", "run make moto")
}

// cached returns the path of a program in the user's cache folder or, if it is not there, in the search path.
func cached(t testing.TB, program, mend string) string {
	t.Helper()
	if folder, err := os.UserCacheDir(); err == nil {
		path := filepath.Join(folder, "quell", program)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	name := filepath.Base(program)
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	Skip(t, "needs "+name+": "+mend)
	return ""
}
