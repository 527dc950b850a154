// Package guest runs tests of a package in a small virtual machine with a kernel of its own, because the kernel of the machine that runs
// the tests often lacks what they need. The guest's init is the package's test binary. The package is only for tests.
package guest

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell/internal/need"
)

const (
	result   = "QUELL-GUEST"   // begins the line with the guest's result
	starting = 3 * time.Minute // a guest may take as long to start and to end
)

// Inside returns whether this process is the init of a guest.
func Inside() bool { return os.Getpid() == 1 }

// Main runs a package's tests, and returns the exit status: TestMain calls it. In a guest it first loads the modules, and in the end it
// switches the machine off.
func Main(m *testing.M) int {
	if !Inside() {
		return m.Run()
	}
	defer func() { _ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) }()
	files, _ := filepath.Glob("/*.ko")
	slices.Sort(files)
	for _, path := range files {
		if err := loadModule(path); err != nil {
			fmt.Println(path, err)
		}
	}
	fmt.Println(result, m.Run())
	return 0
}

func loadModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.FinitModule(int(file.Fd()), "", 0)
}

// Machine is what a guest has.
type Machine struct {
	Programs   []string      // of this machine, with their libraries, at the same paths
	Processors int           // 0: one
	MemoryMB   int           // 0: 512
	Longest    time.Duration // for how long the tests may run; 0: 5 minutes
	Env        []string      // NAME=value, without spaces
}

// Run runs the test TestInGuest of this package in a guest, which first loads these modules and those that they depend on. root is the path
// of the repository, where `make guest` has put the kernel and the modules into .cache/guest.
func Run(t *testing.T, root string, modules ...string) {
	t.Helper()
	Machine{}.Run(t, root, modules...)
}

// Run is like the function Run, and returns what the guest printed.
func (m Machine) Run(t *testing.T, root string, modules ...string) string {
	t.Helper()
	var files []string
	for _, name := range m.Programs {
		files = append(files, withLibraries(t, need.Program(t, name))...)
	}
	emulator := need.Program(t, "qemu-system-x86_64")
	at := filepath.Join(root, ".cache", "guest")
	kernels, _ := filepath.Glob(filepath.Join(at, "boot", "vmlinuz-*"))
	if len(kernels) == 0 {
		need.Skip(t, "needs a kernel for the guest: make guest, on Debian as root")
	}
	if runtime.GOARCH != "amd64" {
		need.Skip(t, "the guest's kernel is one for amd64")
	}
	image := filepath.Join(t.TempDir(), "init.cpio")
	if err := os.WriteFile(image, imageOf(t, at, modules, files), 0o600); err != nil {
		t.Fatal(err)
	}
	longest := cmp.Or(m.Longest, 5*time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), longest+starting)
	defer cancel()
	cmd := exec.CommandContext(ctx, emulator, "-accel", "tcg", "-m", strconv.Itoa(cmp.Or(m.MemoryMB, 512)),
		"-smp", strconv.Itoa(cmp.Or(m.Processors, 1)), "-nodefaults", "-no-reboot", "-display", "none",
		"-serial", "stdio", "-kernel", kernels[0], "-initrd", image,
		"-append", strings.Join(append(append([]string{"console=ttyS0", "quiet", "panic=-1", "rdinit=/init"}, m.Env...),
			"--", "-test.run=^TestInGuest$", "-test.v", "-test.timeout="+longest.String()), " "))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the guest: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	if !bytes.Contains(out, []byte(result+" 0")) || !bytes.Contains(out, []byte("--- PASS: TestInGuest")) {
		t.Fatalf("the guest failed:\n%s", out)
	}
	return string(out)
}

// withLibraries lists a program and the libraries that it loads.
func withLibraries(t *testing.T, program string) []string {
	t.Helper()
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Fatalf("libraries of %s: %v", program, err)
	}
	list := []string{program}
	for _, word := range strings.Fields(string(out)) {
		if filepath.IsAbs(word) {
			list = append(list, word)
		}
	}
	return list
}

// imageOf makes the guest's first file system: the package's tests as a static program, the modules in the order of loading, and further
// files.
func imageOf(t *testing.T, at string, modules, files []string) []byte {
	t.Helper()
	program := filepath.Join(t.TempDir(), "init")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the guest's program: %v\n%s", err, out)
	}
	var image cpio
	image.add(t, "init", program)
	for i, path := range inOrder(t, at, modules) {
		image.add(t, fmt.Sprintf("%02d.ko", i), path)
	}
	for _, path := range files {
		image.parents(path)
		image.add(t, path, path)
	}
	return image.end()
}

// inOrder lists the files of all modules, each after those that it depends on.
func inOrder(t *testing.T, at string, modules []string) (list []string) {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(filepath.Join(at, "lib"), func(path string, e fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			files[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var add func(name string)
	add = func(name string) {
		path := files[strings.ReplaceAll(name, "-", "_")]
		if path == "" {
			t.Fatalf("the guest's kernel has no module %s: remove %s and run make guest", name, at)
		}
		if slices.Contains(list, path) {
			return
		}
		for _, needed := range dependsOn(t, path) {
			add(needed)
		}
		list = append(list, path)
	}
	for _, name := range modules {
		add(name)
	}
	return list
}

// dependsOn reads from a module which others it needs.
func dependsOn(t *testing.T, path string) []string {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Section(".modinfo").Data()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(info), "\x00") {
		if names, ok := strings.CutPrefix(line, "depends="); ok && names != "" {
			return strings.Split(names, ",")
		}
	}
	return nil
}

// cpio is an archive in the form that the kernel unpacks (newc).
type cpio struct{ bytes.Buffer }

func (c *cpio) add(t *testing.T, name, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c.entry(name, unix.S_IFREG|0o755, data)
}

// parents adds the folders above a path. The kernel ignores those that it has already.
func (c *cpio) parents(path string) {
	for i, r := range path {
		if r == '/' && i > 0 {
			c.entry(path[:i], unix.S_IFDIR|0o755, nil)
		}
	}
}

func (c *cpio) entry(name string, mode int, data []byte) {
	// magic, inode, mode, uid, gid, links, time, size, four device numbers, length of the name, checksum
	c.WriteString("070701")
	for _, n := range []int{c.Len(), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0} {
		fmt.Fprintf(c, "%08x", n)
	}
	c.WriteString(name + "\x00")
	c.pad()
	c.Write(data)
	c.pad()
}

func (c *cpio) pad() { c.Write(make([]byte, -c.Len()&3)) }

func (c *cpio) end() []byte {
	c.entry("TRAILER!!!", 0, nil)
	return c.Bytes()
}
