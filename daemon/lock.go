package daemon

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/lockfile"
)

// lockData makes the data folder and locks it for this controller. The lease identifies installations by this folder,
// so two controllers with one folder would both get the lease. The lock ends with the process.
func lockData(folder string) (release func() error, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, notOurs(folder, fmt.Errorf("making the data folder: %w", err))
	}
	path := filepath.Join(folder, "controller.lock")
	release, err = lockfile.Take(path, 0o600)
	if errors.Is(err, lockfile.ErrHeld) {
		return nil, fmt.Errorf("a controller runs already with the data folder %s: give this one another, or stop that one", folder)
	}
	if err != nil {
		return nil, notOurs(folder, fmt.Errorf("taking the data folder: %w", err))
	}
	atomicfile.LikeFolder(path) // root may have made it, for `quell release`
	return release, nil
}

// notOurs adds what to do if the user that runs the controller may not write into the data folder.
func notOurs(folder string, err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return &quell.UserError{Err: fmt.Errorf("%w: give the folder %s to the user that runs the controller, or name another one in data",
			err, folder)}
	}
	return err
}

// holderOf names this controller in the lease. The name is the same after a restart, so that a controller that crashed can take its own
// lease again at once. It has an id of the data folder in it, because machines may have the same name and the same paths. The id is of one
// boot of one kernel: a folder that was copied to another one, with the whole machine perhaps, gets another. cloned says that it did. An
// id that an earlier version stored has no boot with it; it is replaced, because two copies of a folder may have it. If there is an error,
// the id could not be stored.
func holderOf(file *config.File, boot string) (name string, cloned bool, err error) {
	path := filepath.Join(file.Data, "holder.id")
	data, _ := os.ReadFile(path) // one that is missing, damaged or not readable gets a successor, which costs a wait for the lease
	id, of, _ := strings.Cut(strings.TrimSuffix(string(data), "\n"), "\n")
	sound := len(id) == holderID && strings.Trim(id, base32Digits) == ""
	if cloned = sound && of != "" && of != boot; !sound || of != boot {
		id = rand.Text()[:holderID]
		if err = atomicfile.Write(path, []byte(id+"\n"+boot+"\n"), 0o600); err == nil {
			atomicfile.LikeFolder(path)
		}
	}
	return fmt.Sprintf("%s (%s)", nameOf(file), id), cloned, err
}

// bootID returns what the kernel calls its present boot; "" if it does not tell. Containers of one host have the same, and so have machines
// that were resumed from one snapshot.
func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data))
}

const (
	holderID     = 10
	base32Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // of rand.Text
)
