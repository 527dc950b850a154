package middleware

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// deaf makes the toy's reload fail while the returned file is there. A server that is deaf reads nothing.
func (r *toy) deaf() (broken string) {
	broken = filepath.Join(r.dir, "broken")
	reload := r.server.Settings.Reload
	reload[2] = `[ ! -e "$1/broken" ] || exit 3; ` + reload[2]
	return broken
}

func (r *toy) touch(path string) {
	r.t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// openEvery is like open, with the given time between attempts to make the server read a restored file.
func (r *toy) openEvery(every time.Duration) *Driver {
	r.t.Helper()
	d := newDriver(r.t.Context(), r.server, slog.New(slog.NewTextHandler(&r.log, nil)))
	d.unreadEvery = every
	if err := d.open(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return d
}

// isUnread checks that nothing is reported as in force.
func (r *toy) isUnread(d *Driver) {
	r.t.Helper()
	if got, err := d.InForce(r.t.Context()); err == nil || !strings.Contains(err.Error(), "the server has not read it") {
		r.t.Errorf("in force: %v, %v", got, err)
	}
}

// TestARestoredFileThatTheServerDoesNotRead is about the start after a kill: the record stays until the server has read the original.
func TestARestoredFileThatTheServerDoesNotRead(t *testing.T) {
	for name, heal := range map[string]func(r *toy, d *Driver) *Driver{
		"by itself": func(r *toy, d *Driver) *Driver {
			r.eventually("it is read", func() bool { return r.force() == original })
			r.eventually("it is in force", func() bool { _, err := d.InForce(t.Context()); return err == nil })
			return d
		},
		"with the next order": func(r *toy, d *Driver) *Driver { r.set(d, "workers", 10); return d },
		"at the end":          func(r *toy, d *Driver) *Driver { r.close(d); return r.open() },
		"after another kill": func(r *toy, d *Driver) *Driver {
			d.stopWatching()
			if err := d.release(); err != nil {
				t.Fatal(err)
			}
			return r.open()
		},
	} {
		r := newToy(t)
		broken := r.deaf()
		d := r.open()
		r.set(d, "workers", 20)
		if err := d.release(); err != nil { // as the kernel does
			t.Fatal(err)
		}
		r.touch(broken)
		every := time.Hour
		if name == "by itself" {
			every = time.Millisecond
		}
		d = r.openEvery(every)
		if every == time.Hour { // otherwise a reload may be running
			r.has(original, true)
		}
		r.isUnread(d)
		if err := d.Set(t.Context(), "other", 7); err == nil || !strings.Contains(err.Error(), "the server has not read it") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Remove(broken); err != nil {
			t.Fatal(err)
		}
		d = heal(r, d)
		r.inForce(d, map[string]float64{"workers": 10, "other": 5})
		r.has(original, false)
		if r.force() != original {
			t.Errorf("%s: the server has read %q", name, r.force())
		}
		r.close(d)
	}
}

// The same at the end: the next agent makes the server read the original.
func TestAServerThatIsDeafAtTheEnd(t *testing.T) {
	r := newToy(t)
	broken := r.deaf()
	d := r.open()
	r.set(d, "workers", 20)
	r.touch(broken)
	if err := d.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "the server has not read it") {
		t.Errorf("%v", err)
	}
	r.has(original, true)
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	r.close(r.open())
	r.has(original, false)
	if r.force() != original {
		t.Errorf("the server has read %q", r.force())
	}
}

// A change that fails, and whose undo the server does not read, goes back to the change before it.
func TestAnUndoThatTheServerDoesNotRead(t *testing.T) {
	r := newToy(t)
	broken := r.deaf()
	r.server.Settings.Reload[2] += ` || { touch "$1/broken"; false; }` // 77 workers make it deaf
	d := r.openEvery(time.Hour)
	r.set(d, "workers", 20)
	if err := d.Set(t.Context(), "workers", 77); err == nil || !strings.Contains(err.Error(), "the server has not read it") {
		t.Errorf("%v", err)
	}
	r.has(with(20), true)
	r.isUnread(d)
	if d.remindOnce() {
		t.Error("a deaf server has read the file")
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if !d.remindOnce() {
		t.Errorf("the server has not read the file: %s", &r.log)
	}
	r.inForce(d, map[string]float64{"workers": 20, "other": 5})
	if r.force() != with(20) {
		t.Errorf("the server has read %q", r.force())
	}
	r.close(d)
	r.has(original, false)
}

// If the agent is killed during the undo, the next one makes the server read the original: there is a record until it has.
func TestTheRecordOutlivesTheUndo(t *testing.T) {
	r := newToy(t)
	reload := r.server.Settings.Reload
	reload[2] = `ls -A "$(dirname "$0")" >> "$1/seen"; ` + reload[2]
	d := r.open()
	if err := d.Set(t.Context(), "workers", 77); err == nil {
		t.Error("77 workers were set")
	}
	seen := r.read(filepath.Join(r.dir, "seen"))
	if n := strings.Count(seen, ".toy.conf.quell-original\n"); n != 2 {
		t.Errorf("at 2 reloads, there were %d records: %s", n, seen)
	}
	r.has(original, false)
	r.close(d)
}

// An old file that cannot be put back, as on a full disk, is put back later.
func TestAnUndoThatFailsOnce(t *testing.T) {
	r := newToy(t)
	d := r.openEvery(time.Hour)
	f := d.files[r.config]
	works, full := f.exchange, errors.New("the disk is full")
	f.exchange = func(path, with string) error {
		f.exchange = func(string, string) error { return full }
		return works(path, with)
	}
	if err := d.Set(t.Context(), "workers", 77); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	r.has(with(77), true)
	if got, err := d.InForce(t.Context()); !errors.Is(err, full) {
		t.Errorf("in force: %v, %v", got, err)
	}
	f.exchange = works
	if !d.remindOnce() {
		t.Error("the old file is not back")
	}
	r.has(original, false)
	r.inForce(d, map[string]float64{"workers": 10, "other": 5})
	r.close(d)
}

// If a server ends that has not read the undo of a change, the change before that one is undone, too, and stays undone.
func TestAServerThatEndsWithAnUnreadFile(t *testing.T) {
	r := newToy(t)
	server := r.sleeper()
	broken := r.deaf()
	r.server.Settings.Reload[2] += ` || { touch "$1/broken"; false; }` // 77 workers make it deaf
	d := r.openEvery(time.Hour)
	d.settleTime, d.settleEvery = time.Nanosecond, time.Millisecond
	r.set(d, "other", 7)
	d.watching.Wait()
	d.settleTime, d.settleEvery = time.Hour, time.Hour
	r.set(d, "workers", 20)
	if err := d.Set(t.Context(), "workers", 77); err == nil {
		t.Error("77 workers were set")
	}
	end(t, server)
	if d.look() {
		t.Error("the trial has ended")
	}
	want := strings.Replace(original, "other 5", "other 7", 1)
	r.has(want, true)
	r.sleeper()
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if !d.look() || !d.remindOnce() || r.force() != want {
		t.Errorf("the server has read %q", r.force())
	}
	r.has(want, true)
	r.close(d)
	r.has(original, false)
}

// An old file that could not be put back when the server had ended is put back later. The log says once that it failed, and once that it
// is back.
func TestAnOldFileThatIsPutBackLater(t *testing.T) {
	r := newToy(t)
	server := r.sleeper()
	d := r.openEvery(time.Hour)
	d.settleTime, d.settleEvery = time.Hour, time.Hour
	r.set(d, "workers", 20)
	f := d.files[r.config]
	works := f.exchange
	f.exchange = func(string, string) error { return errors.New("the disk is full") }
	end(t, server)
	for range 2 {
		if d.look() || d.remindOnce() {
			t.Error("all is well")
		}
	}
	r.has(with(20), true)
	isLost := func(want string) {
		t.Helper()
		if _, err := d.InForce(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	isLost("the old file could not be put back: the disk is full")
	f.exchange = works
	if d.look() {
		t.Error("the trial has ended")
	}
	r.has(original, true)
	if d.remindOnce() {
		t.Error("a server that does not run has read the old file")
	}
	isLost("so the old file is back: its error log says why")
	r.sleeper()
	if !d.remindOnce() || r.force() != original {
		t.Errorf("the server has read %q", r.force())
	}
	r.has(original, false)
	for what, want := range map[string]int{"the disk is full": 1, "msg=\"the old file is back\"": 1} {
		if n := strings.Count(r.log.String(), what); n != want {
			t.Errorf("the log says %d times %s: %s", n, what, &r.log)
		}
	}
	r.close(d)
}

// A server that was started again after a change had ended it, and does not read the old file, may run with the new one.
func TestAServerThatIsDeafAfterItsEnd(t *testing.T) {
	r := newToy(t)
	server := r.sleeper()
	broken := r.deaf()
	d := r.openEvery(time.Hour)
	d.settleTime, d.settleEvery = time.Hour, time.Hour
	r.set(d, "workers", 20)
	end(t, server)
	if d.look() {
		t.Error("the trial has ended")
	}
	r.has(original, false)
	r.touch(broken)
	r.sleeper()
	if !d.look() {
		t.Error("the server runs, and is still awaited")
	}
	r.has(original, true)
	r.isUnread(d)
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if !d.remindOnce() || r.force() != original {
		t.Errorf("the server has read %q", r.force())
	}
	r.has(original, false)
	r.inForce(d, map[string]float64{"workers": 10, "other": 5})
	r.close(d)
}

// A person may edit the restored original: it is his file.
func TestAnEditOfARestoredFile(t *testing.T) {
	r := newToy(t)
	broken := r.deaf()
	d := r.openEvery(time.Hour)
	r.touch(broken)
	if err := d.Set(t.Context(), "workers", 20); err == nil {
		t.Error("a deaf server has read the file")
	}
	r.has(original, true)
	r.write(theirs)
	r.inForce(d, map[string]float64{"workers": 33, "other": 3})
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	r.set(d, "workers", 20)
	r.close(d)
	r.has(theirs, false)
}

// If no process runs when a change is undone, one may be starting with the new file: it is told when it runs.
func TestAnUndoWithoutAServer(t *testing.T) {
	r := newToy(t)
	server := r.sleeper()
	reload := r.server.Settings.Reload
	r.server.Settings.Reload = []string{"sh", "-c", `kill -9 "$0"`, "0"}
	r.server.Settings.Reload[3] = r.read(r.server.Settings.PID)
	d := r.openEvery(time.Hour)
	const want = "the server has not read it: toy is not running"
	if err := d.Set(t.Context(), "workers", 20); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	_ = server.Wait() // it was killed
	r.has(original, true)
	if d.remindOnce() {
		t.Error("nobody has read the old file")
	}
	d.Reload = reload
	r.sleeper()
	if !d.remindOnce() || r.force() != original {
		t.Errorf("the new process has read %q", r.force())
	}
	r.has(original, false)
	r.close(d)
}
