// Package packaging tests what a release consists of: the packages, and how they are installed, upgraded and removed.
package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/quellhq/quell/internal/need"
)

// TestUnitsAreSandboxed: systemd's own rating of each unit's exposure is at most 2.0 (0 is none, 10 everything).
func TestUnitsAreSandboxed(t *testing.T) {
	analyze := need.Program(t, "systemd-analyze")
	units, err := filepath.Glob("systemd/*.service")
	if err != nil || len(units) < 4 {
		t.Fatalf("%v, %v", units, err)
	}
	rating := regexp.MustCompile(`exposure level for .*: ([0-9.]+)`)
	for _, unit := range units {
		out, err := exec.Command(analyze, "security", "--offline=true", unit).CombinedOutput()
		found := rating.FindSubmatch(out)
		if err != nil || found == nil {
			t.Errorf("%s: %v\n%s", unit, err, out)
			continue
		}
		if level, _ := strconv.ParseFloat(string(found[1]), 64); level > 2 {
			t.Errorf("%s: exposure %s, want at most 2.0\n%s", unit, found[1], out)
		}
	}
}

// root is a copy of this machine's file system in which a test may install packages. What it changes is in memory only.
type root struct {
	t    *testing.T
	path string
}

func newRoot(t *testing.T) root {
	t.Helper()
	need.Root(t)
	need.Program(t, "dpkg")
	dir := t.TempDir()
	mount := func(source, target, kind string, options string) {
		t.Helper()
		if err := os.MkdirAll(target, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount(source, target, kind, 0, options); err != nil {
			need.Skip(t, "needs to mount "+kind+": "+err.Error())
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil {
				t.Errorf("unmounting %s: %v", target, err)
			}
		})
	}
	changes, merged := filepath.Join(dir, "changes"), filepath.Join(dir, "merged")
	mount("tmpfs", changes, "tmpfs", "size=1g")
	for _, name := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(changes, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mount("overlay", merged, "overlay", "lowerdir=/,upperdir="+changes+"/upper,workdir="+changes+"/work")
	mount("proc", filepath.Join(merged, "proc"), "proc", "")
	return root{t, merged}
}

// run runs a program inside the root and returns what it prints.
func (r root) run(ok bool, name string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("chroot", append([]string{r.path, name}, args...)...)
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if (err == nil) != ok {
		r.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (r root) read(path string) string {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.path, path))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

// copyIn copies a package into the root and returns its path there.
func (r root) copyIn(file string) string {
	r.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	name := filepath.Base(file)
	if err := os.WriteFile(filepath.Join(r.path, name), data, 0o644); err != nil {
		r.t.Fatal(err)
	}
	return "/" + name
}

// built builds a release for this machine, as `make release` does.
func built(t *testing.T, version string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	build(t, folder, version)
	return folder
}

func build(t *testing.T, folder, version string) {
	t.Helper()
	need.Program(t, "git")
	arch := strings.TrimSpace(output(t, exec.Command("go", "env", "GOHOSTARCH")))
	cmd := exec.Command("./build", folder, arch)
	cmd.Env = append(os.Environ(), "VERSION="+version)
	output(t, cmd)
}

// shared is the release that all tests install, because building it takes long.
var shared struct {
	sync.Mutex
	folder string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.folder != "" {
		_ = os.RemoveAll(shared.folder)
	}
	os.Exit(code)
}

func release(t *testing.T) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.folder == "" {
		folder, err := os.MkdirTemp("", "quell-release-")
		if err != nil {
			t.Fatal(err)
		}
		shared.folder = folder
		build(t, folder, "v9.9.1")
	}
	return shared.folder
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func only(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	return files[0]
}

// TestPackage installs, upgrades, removes and purges the deb; a person's changes of the configuration survive the upgrade.
func TestPackage(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	folder := release(t)
	deb := only(t, folder+"/*.deb")
	only(t, folder+"/*.rpm")
	sums := exec.Command(need.Program(t, "sha256sum"), "--check", filepath.Base(only(t, folder+"/*SHA256SUMS")))
	sums.Dir = folder
	output(t, sums)

	r.run(true, "dpkg", "-i", r.copyIn(deb))
	if got := r.run(true, "quell", "version"); !strings.HasPrefix(got, "quell v9.9.1 ") {
		t.Errorf("version: %s", got)
	}
	if got := r.run(true, "quell", "config", "check", "/etc/quell/quell.yaml"); !strings.Contains(got, "mode advise") {
		t.Errorf("the configuration of the package: %s", got)
	}
	for _, unit := range []string{"quell-controller.service", "quell-agent.service", "quell-balancer.service", "quell-balancer.socket"} {
		if out := r.run(true, "systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/"+unit); strings.Contains(out, "quell") {
			t.Errorf("%s: %s", unit, out)
		}
	}
	if got := r.run(true, "stat", "-c", "%U %a", "/var/lib/quell"); got != "quell 700\n" {
		t.Errorf("/var/lib/quell belongs to %s", got)
	}
	for path, want := range map[string]string{
		"/usr/share/man/man1/quell-drain.1":               "quell drain",
		"/usr/share/bash-completion/completions/quell":    "__start_quell",
		"/usr/share/zsh/vendor-completions/_quell":        "#compdef quell",
		"/usr/share/fish/vendor_completions.d/quell.fish": "complete -c quell",
	} {
		if !strings.Contains(r.read(path), want) {
			t.Errorf("%s lacks %q", path, want)
		}
	}

	mine := r.read("/etc/quell/quell.yaml") + "# mine\n"
	for path, text := range map[string]string{"/etc/quell/quell.yaml": mine, "/var/lib/quell/memory": "kept",
		"/etc/quell/token": "secret"} {
		if err := os.WriteFile(filepath.Join(r.path, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r.run(true, "dpkg", "-i", "/"+filepath.Base(deb)) // as an upgrade does
	if r.read("/etc/quell/quell.yaml") != mine || r.read("/var/lib/quell/memory") != "kept" {
		t.Error("an upgrade changed the configuration or the data")
	}
	r.run(true, "dpkg", "-r", "quell")
	if r.read("/etc/quell/quell.yaml") != mine || r.read("/var/lib/quell/memory") != "kept" {
		t.Error("removing the package changed the configuration or the data")
	}
	r.run(true, "dpkg", "-P", "quell")
	for _, path := range []string{"/etc/quell", "/var/lib/quell", "/etc/default/quell", "/usr/bin/quell"} {
		if _, err := os.Lstat(filepath.Join(r.path, path)); err == nil {
			t.Errorf("%s is there after a purge", path)
		}
	}
}

// TestReleaseIsReproducible: the same source gives the same bytes. Built twice by hand it takes minutes; `make release-check` does so.
func TestReleaseIsReproducible(t *testing.T) {
	if os.Getenv("QUELL_RELEASE") == "" {
		t.Skip("takes minutes: make release-check runs it")
	}
	one, two := built(t, "v9.9.1"), built(t, "v9.9.1")
	entries, err := os.ReadDir(one)
	if err != nil || len(entries) < 4 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		a, errA := os.ReadFile(filepath.Join(one, e.Name()))
		b, errB := os.ReadFile(filepath.Join(two, e.Name()))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs (%v, %v)", e.Name(), errA, errB)
		}
	}
}
