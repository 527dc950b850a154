package need

import (
	"os"
	"path/filepath"
	"testing"
)

// Kubernetes needs kube-apiserver and kube-controller-manager, where `make kube` puts them, and returns their folder.
func Kubernetes(t testing.TB) string {
	t.Helper()
	if folder, err := os.UserCacheDir(); err == nil {
		path := filepath.Join(folder, "quell", "kube", "1.37.2")
		if _, err := os.Stat(filepath.Join(path, "kube-controller-manager")); err == nil {
			return path
		}
	}
	Skip(t, "needs kube-apiserver and kube-controller-manager: run make kube, which builds them in some minutes")
	return ""
}
