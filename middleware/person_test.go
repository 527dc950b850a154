package middleware

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/internal/atomicfile"
)

const theirs = "workers 33\nother 3\n"

// A person who puts the original back, or an earlier version, wins like one who writes something new.
func TestAPersonPutsAnEarlierVersionBack(t *testing.T) {
	for _, earlier := range []string{original, with(20)} {
		r := newToy(t)
		d := r.open()
		r.set(d, "workers", 20)
		r.set(d, "workers", 30)
		r.write(earlier)
		if err := d.Set(t.Context(), "workers", 30); !errors.Is(err, errEdited) {
			t.Errorf("%v", err)
		}
		r.has(earlier, false)
		r.close(d)
		r.has(earlier, false)
	}
	r, _ := templated(t, sound)
	d := r.open()
	r.set(d, "workers", 20)
	r.write(original)
	if got, err := d.InForce(t.Context()); !errors.Is(err, errEdited) {
		t.Errorf("in force: %v, %v", got, err)
	}
	r.close(d)
	r.has(original, false)
}

// After an edit only the log tells what Quell had set: the person may have kept its values.
func TestTheLogTellsWhatWasSet(t *testing.T) {
	r, _ := templated(t, sound)
	d := r.open()
	r.set(d, "workers", 20.5)
	r.write(theirs)
	r.close(d)
	if want := `values="workers was set to 20.5, before it was 10"`; !strings.Contains(r.log.String(), want) {
		t.Errorf("log: %s", &r.log)
	}

	r = newToy(t)
	r.counted(words, 64)
	d = r.open()
	r.set(d, "workers", 32)
	r.set(d, "other", 7)
	r.write(r.read(r.config) + "# a note\n")
	if _, err := d.InForce(t.Context()); err != nil {
		t.Error(err)
	}
	want := `values="other was set to 7, before it was 5; workers was set to 32, before it was auto"`
	if !strings.Contains(r.log.String(), want) {
		t.Errorf("log: %s", &r.log)
	}
	r.close(d)
}

// editedAt saves versions of the file just before the next exchanges, as an editor does that renames.
func (r *toy) editedAt(d *Driver, exchange func(path, with string) error, versions ...string) {
	d.files[r.config].exchange = func(path, with string) error {
		if len(versions) > 0 {
			saved := filepath.Join(r.dir, "saved")
			if err := errors.Join(os.WriteFile(saved, []byte(versions[0]), 0o644), os.Rename(saved, r.config)); err != nil {
				r.t.Error(err)
			}
			versions = versions[1:]
		}
		return exchange(path, with)
	}
}

func unsupported(string, string) error { return errors.ErrUnsupported }

// An edit between the last look at the file and the exchange is not lost. If nothing was changed before, it is the original then.
func TestAnEditAtTheMomentOfTheChange(t *testing.T) {
	for name, c := range map[string]struct {
		exchange func(path, with string) error
		versions []string
	}{
		"one":                  {atomicfile.Exchange, []string{theirs}},
		"one more":             {atomicfile.Exchange, []string{with(44), theirs}},
		"two more":             {atomicfile.Exchange, []string{with(44), with(45), theirs}},
		"a simple file system": {unsupported, []string{theirs}},
	} {
		r := newToy(t)
		d := r.open()
		r.editedAt(d, c.exchange, c.versions...)
		if err := d.Set(t.Context(), "workers", 20); !errors.Is(err, errMeanwhile) {
			t.Errorf("%s: %v", name, err)
		}
		r.has(theirs, false)
		r.set(d, "workers", 30)
		r.close(d)
		r.has(theirs, false)
	}
}

func TestAnEditAtTheMomentOfASecondChange(t *testing.T) {
	r := newToy(t)
	d := r.open()
	r.set(d, "workers", 20)
	r.editedAt(d, atomicfile.Exchange, theirs)
	if err := d.Set(t.Context(), "workers", 30); !errors.Is(err, errMeanwhile) {
		t.Errorf("%v", err)
	}
	if err := d.Set(t.Context(), "workers", 30); !errors.Is(err, errEdited) {
		t.Errorf("the next order: %v", err)
	}
	r.has(theirs, false)
	r.close(d)
	r.has(theirs, false)
}

func TestAnEditAtTheMomentOfRestoring(t *testing.T) {
	r := newToy(t)
	d := r.open()
	r.set(d, "workers", 20)
	r.editedAt(d, atomicfile.Exchange, theirs)
	r.close(d)
	r.has(theirs, false)
	if !strings.Contains(r.log.String(), "somebody edited it") {
		t.Errorf("log: %s", &r.log)
	}
}

// A link that a person puts in the file's place at that moment stays, although it leads to the same content.
func TestALinkAtTheMomentOfTheChange(t *testing.T) {
	r := newToy(t)
	d := r.open()
	moved := filepath.Join(r.dir, "moved.conf")
	d.files[r.config].exchange = func(path, with string) error {
		if _, err := os.Stat(moved); err != nil {
			if err := errors.Join(os.Rename(r.config, moved), os.Symlink(moved, r.config)); err != nil {
				t.Error(err)
			}
		}
		return atomicfile.Exchange(path, with)
	}
	if err := d.Set(t.Context(), "workers", 20); !errors.Is(err, errMeanwhile) {
		t.Errorf("%v", err)
	}
	r.has(original, false)
	if target, err := os.Readlink(r.config); err != nil || target != moved {
		t.Errorf("the link leads to %q, %v", target, err)
	}
}

// If the edit cannot be exchanged back, it goes back by a rename.
func TestAnExchangeThatFails(t *testing.T) {
	refused := errors.New("refused")
	for _, works := range []int{0, 1} {
		r := newToy(t)
		d := r.open()
		exchanges := 0
		want := original
		versions := []string{}
		if works == 1 {
			want, versions = theirs, []string{theirs}
		}
		r.editedAt(d, func(path, with string) error {
			if exchanges++; exchanges > works {
				return refused
			}
			return atomicfile.Exchange(path, with)
		}, versions...)
		if err := d.Set(t.Context(), "workers", 20); !errors.Is(err, refused) {
			t.Errorf("%v", err)
		}
		r.has(want, false)
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// refusesAnother checks that the agent refuses to work with another file than when it started.
func (r *toy) refusesAnother(d *Driver, now, was string) {
	r.t.Helper()
	_, err := d.InForce(r.t.Context())
	want := "it is another file now than when the agent started (" + now + ", was " + was + "): restart the agent"
	for _, err := range []error{err, d.Set(r.t.Context(), "workers", 30)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			r.t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestALinkThatLeadsElsewhere is about a deployment that points a link to another file.
func TestALinkThatLeadsElsewhere(t *testing.T) {
	r := newToy(t)
	link, second := filepath.Join(r.dir, "enabled.conf"), filepath.Join(r.dir, "second.conf")
	if err := errors.Join(os.Symlink(r.config, link), os.WriteFile(second, []byte(theirs), 0o644)); err != nil {
		t.Fatal(err)
	}
	r.server.Settings.File = link
	d := r.open()
	r.set(d, "workers", 20)
	if err := errors.Join(os.Remove(link), os.Symlink(second, link)); err != nil {
		t.Fatal(err)
	}
	r.refusesAnother(d, second, r.config)
	r.has(with(20), true)
	r.close(d)
	r.has(original, false)
	if got := r.read(second); got != theirs {
		t.Errorf("the new file has %q", got)
	}
}

// TestAFileThatBecomesALink is about a person who moves a changed file and puts a link in its place, or a folder, or nothing.
func TestAFileThatBecomesALink(t *testing.T) {
	for _, changed := range []bool{true, false} {
		r := newToy(t)
		d := r.open()
		if changed {
			r.set(d, "workers", 20)
		}
		moved := filepath.Join(r.dir, "moved.conf")
		if err := errors.Join(os.Rename(r.config, moved), os.Symlink(moved, r.config)); err != nil {
			t.Fatal(err)
		}
		r.refusesAnother(d, moved, r.config)
		before := r.read(moved)
		r.close(d)
		r.has(before, false)
		if target, err := os.Readlink(r.config); err != nil || target != moved {
			t.Errorf("the link leads to %q, %v", target, err)
		}
		said := `what is in its place stays" server=toy file=` + r.config + ` values="workers was set to 20`
		if changed != strings.Contains(r.log.String(), said) {
			t.Errorf("log: %s", &r.log)
		}
	}
	for _, put := range []func(path string) error{
		func(path string) error { return os.Mkdir(path, 0o755) }, func(string) error { return nil },
	} {
		r := newToy(t)
		d := r.open()
		r.set(d, "workers", 20)
		if err := errors.Join(os.Remove(r.config), put(r.config)); err != nil {
			t.Fatal(err)
		}
		r.close(d)
		if _, err := os.Lstat(d.files[r.config].beside("original")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the record is still there: %v", err)
		}
	}
}

func TestAFileSystemWithoutExchange(t *testing.T) {
	r := newToy(t)
	d := r.open()
	d.files[r.config].exchange = unsupported
	r.set(d, "workers", 20)
	r.has(with(20), true)
	r.set(d, "workers", 30)
	r.close(d)
	r.has(original, false)
}
