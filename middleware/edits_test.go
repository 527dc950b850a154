package middleware

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

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
	for _, want := range []string{"somebody edited it since", "workers was set to 20, before it was 10"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("log without %q: %s", want, &r.log)
		}
	}
	r.set(d, "workers", 30) // his version is the original
	r.close(d)
	r.has("workers 3\nother 4\n", false)
}

// A file of a template does not show its values. So nothing is reported and changed until the next start, before which the person can
// correct the initial value.
func TestSomebodyEditsTheTemplatesFileOfAKilledAgent(t *testing.T) {
	r, _ := templated(t, sound)
	d := r.open()
	r.set(d, "workers", 20)
	if err := d.release(); err != nil {
		t.Fatal(err)
	}
	const theirs = "# from a template\nworkers 20\nother 5\n# mine\n"
	r.write(theirs)
	d = r.open()
	if values, err := d.InForce(t.Context()); err == nil || len(values) > 0 {
		t.Errorf("reported: %v, %v", values, err)
	}
	if err := d.Set(t.Context(), "workers", 30); !errors.Is(err, errEdited) {
		t.Errorf("an order: %v", err)
	}
	r.close(d)
	r.has(theirs, false)
	r.server.Settings.Parameters[0].Initial = 20
	d = r.open()
	r.inForce(d, map[string]float64{"workers": 20, "other": 5})
	r.close(d)
	r.has(theirs, false)
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
