package middleware

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

const original = "# the toy's file\nworkers 10\nother 5\n"

// toy is a server of two parameters. Its check refuses 66 workers. Its reload copies the file to what is in force, and fails with 77
// workers.
type toy struct {
	t      *testing.T
	dir    string
	config string
	server Server
	log    strings.Builder
}

func newToy(t *testing.T) *toy {
	t.Helper()
	r := &toy{t: t, dir: t.TempDir()}
	folder := filepath.Join(r.dir, "conf")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	r.config = filepath.Join(folder, "toy.conf")
	r.write(original)
	r.server = Server{Kind: "toy", Settings: &Settings{
		server: &server{name: "toy", known: []string{"workers", "other"}, line: Apache.Defaults().server.line},
		File:   r.config,
		Parameters: []Parameter{
			{Name: "workers", Min: 1, Max: 100}, {Name: "other", Min: 0, Max: 9},
		},
		Check:  []string{"sh", "-c", `! grep "workers 66" "$0" >&2`, "{file}"},
		Reload: []string{"sh", "-c", `cat "$0" > "$1/force"; echo x >> "$1/reloads"; ! grep "workers 77" "$0" >&2`, r.config, r.dir},
	}}
	return r
}

func (r *toy) write(content string) {
	r.t.Helper()
	if err := os.WriteFile(r.config, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *toy) open() *Driver {
	r.t.Helper()
	d, err := Open(r.t.Context(), r.server, slog.New(slog.NewTextHandler(&r.log, nil)))
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

func (r *toy) close(d *Driver) {
	r.t.Helper()
	if err := d.Close(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *toy) set(d *Driver, name string, value float64) {
	r.t.Helper()
	if err := d.Set(r.t.Context(), name, value); err != nil {
		r.t.Fatal(err)
	}
}

func (r *toy) read(path string) string {
	r.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

func (r *toy) force() string { return r.read(filepath.Join(r.dir, "force")) }

func (r *toy) reloads() int {
	data, _ := os.ReadFile(filepath.Join(r.dir, "reloads"))
	return strings.Count(string(data), "x")
}

// has checks the file and the files beside it. A record is there exactly while the file is changed.
func (r *toy) has(content string, changed bool) {
	r.t.Helper()
	if changed {
		r.hasBeside(content, ".toy.conf.quell-original")
	} else {
		r.hasBeside(content)
	}
}

// hasBeside checks the file and the files beside it, which are the lock and these.
func (r *toy) hasBeside(content string, more ...string) {
	r.t.Helper()
	if got := r.read(r.config); got != content {
		r.t.Errorf("the file has %q, want %q", got, content)
	}
	entries, err := os.ReadDir(filepath.Dir(r.config))
	if err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := append(append([]string{".toy.conf.quell-lock"}, more...), "toy.conf")
	if !slices.Equal(names, want) {
		r.t.Errorf("the folder has %v, want %v", names, want)
	}
}

func (r *toy) inForce(d *Driver, want map[string]float64) {
	r.t.Helper()
	if got, err := d.InForce(r.t.Context()); err != nil || !maps.Equal(got, want) {
		r.t.Errorf("in force: %v, %v, want %v", got, err, want)
	}
}

func with(workers int) string {
	return strings.Replace(original, "workers 10", "workers "+strconv.Itoa(workers), 1)
}

func TestAParameterIsSetReadBackAndRestored(t *testing.T) {
	r := newToy(t)
	if err := os.Chmod(r.config, 0o640); err != nil {
		t.Fatal(err)
	}
	d := r.open()
	r.inForce(d, map[string]float64{"workers": 10, "other": 5})
	r.has(original, false)
	r.set(d, "workers", 20)
	r.has(with(20), true)
	if r.force() != with(20) {
		t.Errorf("in force: %q", r.force())
	}
	r.set(d, "other", 7)
	r.inForce(d, map[string]float64{"workers": 20, "other": 7})
	before := r.reloads()
	r.set(d, "other", 7)
	if r.reloads() != before {
		t.Error("the same value again made the server reload")
	}
	if info, err := os.Stat(r.config); err != nil || info.Mode() != 0o640 {
		t.Errorf("permissions %v, %v", info.Mode(), err)
	}
	r.close(d)
	r.has(original, false)
	if r.force() != original {
		t.Errorf("in force after the end: %q", r.force())
	}
	r.close(r.open())
	if n := r.reloads(); n != before+1 {
		t.Errorf("an agent that changed nothing made %d reloads", n-before-1)
	}
}

func TestWhatIsRefused(t *testing.T) {
	r := newToy(t)
	d := r.open()
	for _, c := range []struct {
		name  string
		value float64
		want  string
	}{
		{"workers", 101, "101 is outside the bounds in this agent's configuration, 1 to 100"},
		{"workers", 0, "0 is outside"}, {"workers", -5, "-5 is outside"}, {"workers", math.NaN(), "NaN is outside"},
		{"workers", math.Inf(1), "+Inf is outside"}, {"workers", 1e300, "1e+300 is outside"}, {"workers", 20.5, "20.5 is no whole number"},
		{"threads", 5, "does not list threads; it lists workers, other"}, {"", 5, "does not list"},
		{"workers", 66, "the server's check does not accept the new file, so nothing is changed: running sh: exit status 1; it said: workers 66"},
		{"workers", 77, "the server did not read the new file, so the old one is back and in force: running sh: exit status 1"},
	} {
		if err := d.Set(t.Context(), c.name, c.value); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %g: %v, want %s", c.name, c.value, err, c.want)
		}
		r.has(original, false)
	}
	if r.force() != original || r.reloads() != 2 {
		t.Errorf("in force after %d reloads: %q", r.reloads(), r.force())
	}
	r.set(d, "workers", 20)
	for _, v := range []float64{66, 77} { // the same while the file is changed
		if err := d.Set(t.Context(), "workers", v); err == nil {
			t.Errorf("%g was set", v)
		}
		r.has(with(20), true)
		r.inForce(d, map[string]float64{"workers": 20, "other": 5})
	}
	if r.force() != with(20) {
		t.Errorf("in force: %q", r.force())
	}
	r.close(d)
	r.has(original, false)
}

// TestAKilledAgent ends an agent without letting it restore anything, at every moment of a change.
func TestAKilledAgent(t *testing.T) {
	for name, die := range map[string]func(r *toy, d *Driver){
		"after a change":     func(r *toy, d *Driver) { r.set(d, "workers", 20) },
		"after several":      func(r *toy, d *Driver) { r.set(d, "workers", 20); r.set(d, "other", 1); r.set(d, "workers", 30) },
		"with the candidate": func(r *toy, d *Driver) { r.half(d, func(f *file) {}) },
		"with the record":    func(r *toy, d *Driver) { r.half(d, func(f *file) { r.place(f); r.write(original) }) },
		"before the reload":  func(r *toy, d *Driver) { r.half(d, r.place) },
		"in a second change": func(r *toy, d *Driver) { r.set(d, "workers", 20); r.half(d, r.place) },
		"between two changes": func(r *toy, d *Driver) {
			r.set(d, "workers", 20)
			r.half(d, func(f *file) { r.place(f); r.write(with(20)) })
		},
	} {
		r := newToy(t)
		d := r.open()
		die(r, d)
		if err := d.release(); err != nil { // as the kernel does
			t.Fatal(err)
		}
		d = r.open()
		r.inForce(d, map[string]float64{"workers": 10, "other": 5})
		r.has(original, false)
		if name != "with the candidate" && (r.force() != original || !strings.Contains(r.log.String(), "the agent was killed")) {
			t.Errorf("%s: in force %q, log %s", name, r.force(), &r.log)
		}
		r.close(d)
	}
}

// half begins a change to 50 workers.
func (r *toy) half(d *Driver, more func(*file)) {
	r.t.Helper()
	f := d.files[r.config]
	if _, err := f.draft(with(50)); err != nil {
		r.t.Fatal(err)
	}
	more(f)
}

func (r *toy) place(f *file) {
	r.t.Helper()
	if err := f.place(f.beside("new"), r.read(f.path), with(50), map[string]float64{"workers": 50}); err != nil {
		r.t.Fatal(err)
	}
}

func TestAnAgentThatIsReallyKilled(t *testing.T) {
	r := newToy(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperSets$")
	cmd.Env = append(os.Environ(), "QUELL_TEST_TOY="+r.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Errorf("the agent ended before it was killed: %v", err)
	}
	if _, err := Open(t.Context(), r.server, nil); err == nil || !strings.Contains(err.Error(), "another agent manages "+r.config) {
		t.Errorf("a second agent: %v", err)
	}
	r.has(with(40), true)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	d := r.open()
	r.has(original, false)
	r.close(d)
}

// TestHelperSets is the agent that TestAnAgentThatIsReallyKilled kills.
func TestHelperSets(t *testing.T) {
	dir := os.Getenv("QUELL_TEST_TOY")
	if dir == "" {
		return
	}
	r := newToy(t)
	r.server.Settings.File = filepath.Join(dir, "conf", "toy.conf")
	r.set(r.open(), "workers", 40)
	fmt.Println("ready")
	time.Sleep(time.Minute) // until it is killed
}

// TestAnAgentThatIsKilledDuringAReload: the killed agent's reload command has read the changed file, and ends only after the next agent has
// started. The next agent waits for that, so the original is in force at the end.
func TestAnAgentThatIsKilledDuringAReload(t *testing.T) {
	r := newToy(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperReloads$")
	cmd.Env = append(os.Environ(), "QUELL_TEST_TOY="+r.dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	reading := filepath.Join(r.dir, "reading")
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(reading); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the agent does not reload")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	r.hasBeside(with(40), ".toy.conf.quell-original", ".toy.conf.quell-reload")
	opened := make(chan *Driver)
	go func() {
		d, err := Open(t.Context(), r.server, slog.New(slog.NewTextHandler(&r.log, nil)))
		if err != nil {
			t.Error(err)
		}
		opened <- d
	}()
	if err := os.WriteFile(filepath.Join(r.dir, "go"), nil, 0o600); err != nil { // the killed agent's command goes on
		t.Fatal(err)
	}
	d := <-opened
	if d == nil {
		return
	}
	if r.has(original, false); r.force() != original || r.reloads() != 2 {
		t.Errorf("after %d reloads in force: %q", r.reloads(), r.force())
	}
	r.close(d)
}

// TestHelperReloads is the agent that TestAnAgentThatIsKilledDuringAReload kills.
func TestHelperReloads(t *testing.T) {
	dir := os.Getenv("QUELL_TEST_TOY")
	if dir == "" {
		return
	}
	r := newToy(t)
	r.server.Settings.File = filepath.Join(dir, "conf", "toy.conf")
	r.server.Settings.Reload = []string{"sh", "-c", `cat "$0" > "$1/read"; touch "$1/reading"; while [ ! -e "$1/go" ]; do sleep 0.01; done; ` +
		`mv "$1/read" "$1/force"; echo x >> "$1/reloads"`, r.server.Settings.File, dir}
	_ = r.open().Set(t.Context(), "workers", 40) // until it is killed
}

func TestSomebodyEditsTheFile(t *testing.T) {
	r := newToy(t)
	d := r.open()
	theirs := strings.Replace(original, "workers 10", "workers 33", 1)
	r.write(theirs) // before Quell changed anything: it is the original from now on
	r.set(d, "other", 6)
	r.close(d)
	r.has(theirs, false)

	d = r.open()
	r.set(d, "workers", 20)
	edited := with(20) + "# a note\n"
	r.write(edited)
	for range 2 {
		if err := d.Set(t.Context(), "workers", 30); !errors.Is(err, errEdited) || !strings.Contains(err.Error(), r.config) {
			t.Errorf("%v", err)
		}
		r.inForce(d, map[string]float64{"workers": 20, "other": 5})
		r.has(edited, false)
	}
	if n := strings.Count(r.log.String(), "somebody edited it"); n != 1 {
		t.Errorf("reported %d times: %s", n, &r.log)
	}
	r.close(d)
	r.has(edited, false)

	d = r.open() // his version is the original now
	r.set(d, "workers", 30)
	r.close(d)
	r.has(edited, false)
}

// TestSomebodyEditsTheFileDuringAChange is about an edit while the check runs, and one while the reload runs, which fails.
func TestSomebodyEditsTheFileDuringAChange(t *testing.T) {
	const theirs = "workers 1\nother 1\n"
	r := newToy(t)
	edit := `printf 'workers 1\nother 1\n' > "$0"`
	r.server.Settings.Check = []string{"sh", "-c", edit, r.config}
	r.server.Settings.Check = append(r.server.Settings.Check, "{file}")
	d := r.open()
	if err := d.Set(t.Context(), "workers", 20); err == nil || !strings.Contains(err.Error(), "somebody edited it during the change") {
		t.Errorf("%v", err)
	}
	r.has(theirs, false)
	r.close(d)

	r = newToy(t)
	r.server.Settings.Reload = []string{"sh", "-c", edit + "; false", r.config}
	d = r.open()
	if err := d.Set(t.Context(), "workers", 20); !errors.Is(err, errEdited) || !strings.Contains(err.Error(), "could not be restored") {
		t.Errorf("%v", err)
	}
	r.has(theirs, false)
	r.close(d)
	r.has(theirs, false)
}

func TestSomebodyEditsTheFileOfAKilledAgent(t *testing.T) {
	r := newToy(t)
	d := r.open()
	r.set(d, "workers", 20)
	if err := d.release(); err != nil {
		t.Fatal(err)
	}
	r.write("workers 3\nother 4\n")
	d = r.open()
	r.has("workers 3\nother 4\n", false)
	if !strings.Contains(r.log.String(), "somebody edited it") {
		t.Errorf("log: %s", &r.log)
	}
	r.close(d)
}

func TestAFileThatIsASymbolicLink(t *testing.T) {
	r := newToy(t)
	link := filepath.Join(r.dir, "enabled.conf")
	if err := os.Symlink(r.config, link); err != nil {
		t.Fatal(err)
	}
	r.server.Settings.File = link
	d := r.open()
	r.set(d, "workers", 20)
	r.has(with(20), true)
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	r.close(d)
}

func TestTwoFiles(t *testing.T) {
	r := newToy(t)
	second := filepath.Join(r.dir, "other.conf")
	if err := os.WriteFile(second, []byte("other 5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.server.Settings.Parameters[1].File = second
	d := r.open()
	r.set(d, "other", 8)
	r.set(d, "workers", 20)
	r.inForce(d, map[string]float64{"workers": 20, "other": 8})
	r.close(d)
	r.has(original, false)
	if got := r.read(second); got != "other 5\n" {
		t.Errorf("the second file has %q", got)
	}
}

func TestFilesThatCannotBeManaged(t *testing.T) {
	for name, c := range map[string]struct {
		make func(r *toy)
		want string
	}{
		"missing":     {func(r *toy) { os.Remove(r.config) }, "no such file"},
		"a folder":    {func(r *toy) { os.Remove(r.config); os.Mkdir(r.config, 0o755) }, "is a folder: name a regular file"},
		"a parameter": {func(r *toy) { r.write("workers 10\n") }, "it does not set other"},
		"twice":       {func(r *toy) { r.write(original + original) }, "it sets workers 2 times"},
		"the record":  {func(r *toy) { os.WriteFile(r.dir+"/conf/.toy.conf.quell-original", []byte("{"), 0o600) }, "is damaged: look at"},
		"two names": {func(r *toy) {
			os.Symlink(r.config, r.dir+"/link")
			r.server.Settings.Parameters[1].File = r.dir + "/link"
		}, "names the file twice, once through a symbolic link"},
		"too large": {func(r *toy) { os.Truncate(r.config, maxFile+1) }, "is larger than"},
	} {
		r := newToy(t)
		c.make(r)
		for range 2 { // nothing stays reserved
			if _, err := Open(t.Context(), r.server, nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
		}
	}
}

// Reading a FIFO would never end, and putting a file in the place of a socket would cut off its clients.
func TestFilesThatAreNotRegular(t *testing.T) {
	fifo := func(path string) {
		if err := errors.Join(os.RemoveAll(path), syscall.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	socket := func(path string) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	for want, place := range map[string]func(path string){"is a FIFO": fifo, "is a socket": socket} {
		r := newToy(t)
		r.config = filepath.Join(r.dir, "conf", "special")
		r.server.Settings.File = r.config
		place(r.config)
		_, err := Open(t.Context(), r.server, slog.New(slog.NewTextHandler(&r.log, nil)))
		if err == nil || err.Error() != r.config+" "+want+": name a regular file" || r.log.Len() > 0 {
			t.Errorf("%s: %v; logged %s", want, err, &r.log)
		}
		if left, _ := filepath.Glob(r.dir + "/conf/.*quell*"); len(left) > 0 {
			t.Errorf("%s: %v", want, left)
		}
	}
	if _, err := readPlain("/dev/null"); err == nil || !strings.Contains(err.Error(), "is a device") {
		t.Errorf("a device: %v", err)
	}
	r, template := templated(t, sound)
	fifo(template)
	if _, err := Open(t.Context(), r.server, nil); err == nil || !strings.Contains(err.Error(), template+" is a FIFO") {
		t.Errorf("the template: %v", err)
	}
	r = newToy(t)
	r.server.Settings.PID = filepath.Join(r.dir, "pid")
	fifo(r.server.Settings.PID)
	d := r.open()
	if err := d.Set(t.Context(), "workers", 20); err == nil || !strings.Contains(err.Error(), "pid is a FIFO") {
		t.Errorf("the file with the process id: %v", err)
	}
	r.close(d)
}

// TestAServerThatIsNotRunning checks that nothing is changed, and nothing reported as being in force.
func TestAServerThatIsNotRunning(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ pid, want string }{
		"no file":         {"", "toy is not running: there is no"},
		"no number":       {"x\n", "holds no process id"},
		"init":            {"1\n", "holds no process id"},
		"a negative one":  {"-1\n", "holds no process id"},
		"one that is not": {strconv.Itoa(ended.Process.Pid), "is not there"},
		"another program": {strconv.Itoa(os.Getpid()), "names process"},
	} {
		r := newToy(t)
		r.server.Settings.PID = filepath.Join(r.dir, "pid")
		r.server.Settings.server.programs = []string{"toyd"}
		if c.pid != "" {
			if err := os.WriteFile(r.server.Settings.PID, []byte(c.pid), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d := r.open()
		_, err := d.InForce(t.Context())
		for _, err := range []error{d.Set(t.Context(), "workers", 20), err} {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
		}
		r.has(original, false)
		r.close(d)
	}
}

// TestAServerThatEnds is about one whose reload is said to succeed, and which ends nevertheless.
func TestAServerThatEnds(t *testing.T) {
	r := newToy(t)
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	r.server.Settings.PID = filepath.Join(r.dir, "pid")
	r.server.Settings.Reload = []string{"kill", strconv.Itoa(sleeper.Process.Pid)}
	if err := os.WriteFile(r.server.Settings.PID, []byte(strconv.Itoa(sleeper.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	d := r.open()
	if err := d.Set(t.Context(), "workers", 20); err == nil || !strings.Contains(err.Error(), "after the reload toy is not running") {
		t.Errorf("%v", err)
	}
	r.has(original, false)
	r.close(d)
}

// TestTheOriginalComesBackToAStoppedServer checks that the file is restored although nobody can read it.
func TestTheOriginalComesBackToAStoppedServer(t *testing.T) {
	r := newToy(t)
	d := r.open()
	r.set(d, "workers", 20)
	d.PID = filepath.Join(r.dir, "gone")
	r.close(d)
	r.has(original, false)
	if r.force() != with(20) {
		t.Error("a server that is not running was reloaded")
	}
}

// templated makes the toy's file come from a template.
func templated(t *testing.T, text string) (r *toy, template string) {
	t.Helper()
	r = newToy(t)
	template = filepath.Join(r.dir, "toy.tmpl")
	if err := os.WriteFile(template, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s := r.server.Settings
	s.server, s.Template = Template.Defaults().server, template
	s.Parameters[0].Initial, s.Parameters[1].Initial = 10, 5
	return r, template
}

const sound = "# from a template\nworkers {{.workers}}\nother {{.other}}\n"

func TestATemplate(t *testing.T) {
	r, template := templated(t, sound)
	d := r.open()
	r.inForce(d, map[string]float64{"workers": 10, "other": 5})
	r.set(d, "workers", 20.5)
	r.set(d, "other", 0)
	r.has("# from a template\nworkers 20.5\nother 0\n", true)
	r.inForce(d, map[string]float64{"workers": 20.5, "other": 0})
	for text, want := range map[string]string{
		"workers {{.workers":                "the template does not parse: template: " + template + ":1",
		`{{template "more"}}`:               `template "more" not defined`,
		"{{define \"x\"}}{{.workers{{end}}": "the template does not parse",
		"workers {{.threads}}":              `map has no entry for key "threads"`,
		"workers {{.workers.x}}":            "the template fails",
		"x {{.workers}}\nworkers 66\n":      "the server's check does not accept the new file",
		"x {{.workers}}\nworkers 77\n":      "the old one is back and in force",
	} {
		if err := os.WriteFile(template, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := d.Set(t.Context(), "workers", 30); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		r.has("# from a template\nworkers 20.5\nother 0\n", true)
		r.inForce(d, map[string]float64{"workers": 20.5, "other": 0})
	}
	r.write("mine\n")
	if _, err := d.InForce(t.Context()); !errors.Is(err, errEdited) {
		t.Errorf("what somebody wrote instead: %v", err)
	}
	r.close(d)
	r.has("mine\n", false)
}

func TestTemplatesThatFailAtTheStart(t *testing.T) {
	for text, want := range map[string]string{"{{": "does not parse", "{{.none}}": "the template fails",
		`{{template "more"}}`: "the template fails", "": ""} {
		r, template := templated(t, text)
		if text == "" {
			if err := os.Remove(template); err != nil {
				t.Fatal(err)
			}
			want = "reading the template"
		}
		if _, err := Open(t.Context(), r.server, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		r.has(original, false)
	}
}

// TestTheCheckSeesTheNewFileInPlace is about a check that cannot be told another file's name.
func TestTheCheckSeesTheNewFileInPlace(t *testing.T) {
	need.Root(t)
	need.Program(t, "unshare")
	r := newToy(t)
	r.server.Settings.Check = []string{"sh", "-c", `grep "workers 20" "$0" && grep -q "workers 10" "$1"`, r.config, r.config + ".again"}
	if err := os.Link(r.config, r.config+".again"); err != nil { // shows the file as it is outside the check
		t.Fatal(err)
	}
	d := r.open()
	if err := d.Set(t.Context(), "workers", 21); err == nil {
		t.Error("the check did not see the new file")
	}
	if got := r.read(r.config); got != original {
		t.Errorf("the check's file system is not its own: %q", got)
	}
	r.set(d, "workers", 20)
	r.close(d)
}
