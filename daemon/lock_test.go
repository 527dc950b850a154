package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/quellhq/quell"
)

// A data folder into which the user may not write is that person's mistake, and the message says what to do. Other failures are not.
func TestADataFolderOfAnotherUser(t *testing.T) {
	for _, cause := range []error{fs.ErrPermission, syscall.EACCES, syscall.EROFS} {
		err := notOurs("/srv/quell", fmt.Errorf("taking the data folder: %w", cause))
		_, mistake := errors.AsType[*quell.UserError](err)
		if !mistake || !strings.Contains(err.Error(), "give the folder /srv/quell to the user") {
			t.Errorf("%v: %v", cause, err)
		}
	}
	full := notOurs("/srv/quell", syscall.ENOSPC)
	if _, mistake := errors.AsType[*quell.UserError](full); mistake {
		t.Errorf("a full disk: %v", full)
	}
}
