package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// packages has the Debian package of each program whose package has another name.
var packages = map[string]string{"nginx": "nginx-light", "apache2": "apache2-bin", "redis-benchmark": "redis-tools"}

// Check returns, as one *quell.UserError, what a lab needs and this machine lacks: root's privileges, the given programs, or a feature of
// the kernel. It tries the features in a namespace that is removed afterwards.
func Check(programs ...string) error {
	if err := needRoot(); err != nil {
		return err
	}
	if err := needPrograms(programs...); err != nil {
		return err
	}
	return onThread(tryFeatures)
}

// CheckDisk returns, as a *quell.UserError, why the disk of a folder cannot be limited, or why files there cannot be read past the cache.
// Work on a disk, and neighbours on it, need both. If the folder does not exist, the disk is tried where the folder would be made.
// Nothing is left behind.
func CheckDisk(dir string) error {
	there := dir
	for _, err := os.Stat(there); errors.Is(err, fs.ErrNotExist) && filepath.Dir(there) != there; _, err = os.Stat(there) {
		there = filepath.Dir(there)
	}
	if _, err := diskOf(there); err != nil {
		return err
	}
	file, err := os.CreateTemp(there, ".quell-*")
	if err != nil {
		return userErrorf("trying the disk: %w", err)
	}
	defer os.Remove(file.Name())
	if err := errors.Join(file.Truncate(diskBlock), file.Close()); err != nil {
		return userErrorf("trying the disk: %w", err)
	}
	d, err := openDisk(file.Name())
	if err != nil {
		return err
	}
	return d.file.Close()
}

func needRoot() error {
	if id := os.Geteuid(); id != 0 {
		return userErrorf("the kernel lab needs root, this is user %d: run it with sudo", id)
	}
	return nil
}

func needPrograms(programs ...string) error {
	var missing, install []string
	for _, program := range programs {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		missing = append(missing, program)
		if name, other := packages[program]; other {
			program = name
		}
		install = append(install, program)
	}
	if len(missing) > 0 {
		return userErrorf("the lab needs programs that are not installed: %s; on Debian: apt-get install %s", strings.Join(missing, ", "),
			strings.Join(install, " "))
	}
	return nil
}

// needs names the part of the kernel that a step requires.
type needs struct {
	what, hint string
	err        error
}

func (n *needs) Error() string {
	return fmt.Sprintf("the kernel lab needs %s, which this kernel refuses (%v): %s", n.what, n.err, n.hint)
}
func (n *needs) Unwrap() error { return n.err }

// tryFeatures makes one of each thing that a lab is made of, in a namespace without a name.
func tryFeatures() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return lacks("network namespaces", "CONFIG_NET_NS", "", err)
	}
	bridge := &netlink.Bridge{LinkAttrs: named("switch")}
	if err := netlink.LinkAdd(bridge); err != nil {
		return lacks("bridges", "CONFIG_BRIDGE", "bridge", err)
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: named("a"), PeerName: "b"}); err != nil {
		return lacks("veth links", "CONFIG_VETH", "veth", err)
	}
	link, err := netlink.LinkByName("a")
	if err != nil {
		return err
	}
	if err := netlink.QdiscAdd(shaper(link, 100e6, fullWindow)); err != nil {
		return lacks("the token bucket filter", "CONFIG_NET_SCH_TBF", "sch_tbf", err)
	}
	return nil
}

// lacks turns the kernel's refusal into a message that says what to change.
func lacks(what, option, module string, err error) error {
	hint := "the kernel must be built with " + option
	if module != "" {
		hint += ", or `modprobe " + module + "` load it"
	}
	if errors.Is(err, syscall.EPERM) {
		hint = "root lacks the privilege (CAP_SYS_ADMIN and CAP_NET_ADMIN): run it on the machine itself or in a privileged container"
	}
	return userErrorf("%w", &needs{what: what, hint: hint, err: err})
}
