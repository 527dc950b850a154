package yaml

import (
	"io/fs"
	"os"
	"strings"
	"testing"
)

// The message of a file that another user owns says so, and one that is missing has no such hint.
func TestUnreadableFiles(t *testing.T) {
	denied := unreadable("q.yaml", &os.PathError{Op: "open", Path: "q.yaml", Err: fs.ErrPermission}).Error()
	if want := "q.yaml: cannot be read: permission denied (give it to the user that runs this)"; denied != want {
		t.Errorf("%q, want %q", denied, want)
	}
	if missing := unreadable("q.yaml", fs.ErrNotExist).Error(); strings.Contains(missing, "(") {
		t.Error(missing)
	}
}
