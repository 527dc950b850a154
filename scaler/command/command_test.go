package command

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// sh is a command that runs a shell script with arguments.
func sh(script string, args ...string) []string {
	return append([]string{"sh", "-c", script, "sh"}, args...)
}

func driver(t *testing.T, o Options) *Driver {
	t.Helper()
	for _, argv := range []*[]string{&o.Start, &o.Stop, &o.List} {
		if *argv == nil {
			*argv = []string{"false"}
		}
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCommandsGetAndPrintJSON(t *testing.T) {
	got := filepath.Join(t.TempDir(), "input")
	d := driver(t, Options{
		Start: sh(`cat > "$1"; echo '["a","b"]'`, got),
		Stop:  sh(`cat > "$1"; echo stopped`, got),
		List: sh(`cat > "$1"; echo '[{"id":"a","address":"10.0.0.1:80","state":"ready","started":"2026-01-01T00:00:00Z"},
			{"id":"b","address":"","state":"starting","started":"2026-01-01T00:00:00Z"}]'`, got),
	})
	ids, err := d.Start(t.Context(), 2)
	if err != nil || !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("Start = %v, %v", ids, err)
	}
	checkFile(t, got, `{"count":2}`)
	if err := d.Stop(t.Context(), []string{"a", "b"}); err != nil {
		t.Error(err)
	}
	checkFile(t, got, `{"ids":["a","b"]}`)
	members, err := d.Members(t.Context())
	if err != nil || len(members) != 2 || members[0].State != quell.Ready || members[1].State != quell.Starting {
		t.Errorf("Members = %+v, %v", members, err)
	}
	checkFile(t, got, "")
}

func checkFile(t *testing.T, name, want string) {
	t.Helper()
	if b, err := os.ReadFile(name); err != nil || string(b) != want {
		t.Errorf("the command got %q, %v; not %q", b, err, want)
	}
}

func TestNothingToDoRunsNothing(t *testing.T) {
	d := driver(t, Options{}) // a driver whose commands fail
	if ids, err := d.Start(t.Context(), 0); err != nil || len(ids) != 0 {
		t.Errorf("Start(0) = %v, %v", ids, err)
	}
	if err := d.Stop(t.Context(), nil); err != nil {
		t.Errorf("Stop(none) = %v", err)
	}
	if _, err := d.Start(t.Context(), -1); err == nil {
		t.Error("Start(-1) was accepted")
	}
}

func TestListIsReadStrictly(t *testing.T) {
	for out, want := range map[string]string{
		``:      "nothing",
		`null`:  "null",
		`{}`:    "cannot unmarshal",
		`oops`:  `begins with "oops"`,
		`[] []`: "more after the end",
		`[{"id":"a","state":"ready","address":"h:1","color":"red"}]`:                                   "color",
		`[{"state":"ready","address":"h:1"}]`:                                                          "[0]: id: missing",
		`[{"id":"a","address":"h:1"}]`:                                                                 "state of a: missing",
		`[{"id":"a","state":"up","address":"h:1"}]`:                                                    `unknown state "up"`,
		`[{"id":"a","state":"ready"}]`:                                                                 "address of a: missing",
		`[{"id":"a","state":"ready","address":"h"}]`:                                                   `must be an address as in 127.0.0.1:8080, is "h"`,
		`[{"id":"a","state":"ready","address":"127.0.0.1:9001;} server {listen 1; return 200 pwned"}]`: `the port must be a number`,
		`[{"id":"a","state":"ready","address":"x;} server {listen 1;}:80"}]`:                           `is no host name`,
		`[{"id":"a","state":"ready","address":"10.0.0.1:80","probe":"$(id):80"}]`:                      `is no host name`,
		`[{"id":"` + strings.Repeat("a", 300) + `","state":"starting"}]`:                               `is longer than 256 bytes`,
		`[{"id":"a","state":"ready","address":"h:1","probe":"h"}]`:                                     "probe of a",
		`[{"id":"a","state":"ready","address":"h:1"},{"id":"a","state":"ready","address":"h:2"}]`:      "given twice",
	} {
		d := driver(t, Options{List: sh(`printf %s "$1"`, out)})
		members, err := d.Members(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("list printed %s: %v, %v; wanted %q", out, members, err, want)
		}
	}
	d := driver(t, Options{List: sh(`echo '[]'`)})
	if members, err := d.Members(t.Context()); err != nil || len(members) != 0 {
		t.Errorf("an empty list = %v, %v", members, err)
	}
}

func TestStartIsReadStrictly(t *testing.T) {
	for out, want := range map[string]string{
		`["a"]`:     "printed 1 ids",
		`["a","a"]`: "given twice",
		`["a",""]`:  "empty",
		`["a","` + strings.Repeat("b", 300) + `"]`: "longer than 256 bytes",
		`["a",1]`:      "cannot unmarshal",
		`started a, b`: "begins with",
	} {
		d := driver(t, Options{Start: sh(`printf %s "$1"`, out)})
		if _, err := d.Start(t.Context(), 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("start printed %s: %v, wanted %q", out, err, want)
		}
	}
	for _, out := range []string{"", "\n"} {
		later := driver(t, Options{Start: sh(`printf "$1"`, out)})
		if ids, err := later.Start(t.Context(), 2); len(ids) > 0 || err != nil {
			t.Errorf("start printed %q: %v, %v; the ids come later", out, ids, err)
		}
	}
	d := driver(t, Options{Start: sh(`echo '["a"]'`)})
	if ids, err := d.Start(t.Context(), 2); err == nil || !slices.Equal(ids, []string{"a"}) {
		t.Errorf("the one id that was printed is lost: %v, %v", ids, err)
	}
}

func TestAFailedCommandSaysWhatItWasFor(t *testing.T) {
	d := driver(t, Options{Stop: sh(`echo "quota is used up" >&2; exit 7`), List: sh("sleep 60"), Timeout: 50 * time.Millisecond})
	if _, err := d.Members(t.Context()); err == nil || err.Error() != "listing instances: running sh: it took longer than 50ms" {
		t.Errorf("Members = %v", err)
	}
	d.opts.Timeout = time.Minute
	err := d.Stop(t.Context(), []string{"a"})
	if err == nil || err.Error() != "stopping a: running sh: exit status 7; it said: quota is used up" {
		t.Errorf("Stop = %v", err)
	}
}

func TestUnknownStartTimeIsWhenFirstListed(t *testing.T) {
	clock := time.Unix(1000, 0)
	d := driver(t, Options{
		List: sh(`echo '[{"id":"a","address":"h:1","state":"ready"}]'`),
		Now:  func() time.Time { return clock },
	})
	for range 2 {
		members, err := d.Members(t.Context())
		if err != nil || !members[0].Started.Equal(time.Unix(1000, 0)) {
			t.Errorf("members = %+v, %v", members, err)
		}
		clock = clock.Add(10 * time.Second)
	}
}

func TestOptionMistakesComeTogether(t *testing.T) {
	_, err := New(Options{Start: []string{""}, Stop: []string{"x"}, Timeout: -1})
	var mistake *quell.UserError
	if !errors.As(err, &mistake) || strings.Contains(err.Error(), "stop") {
		t.Fatalf("New = %v", err)
	}
	for _, part := range []string{"start: missing", "list: missing", "timeout"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not mentioned in: %v", part, err)
		}
	}
}

func FuzzDecodeMembers(f *testing.F) {
	f.Add([]byte(`[{"id":"a","address":"10.0.0.1:80","state":"ready","started":"2026-01-01T00:00:00Z"}]`))
	f.Add([]byte(`[null]`))
	f.Fuzz(func(t *testing.T, out []byte) {
		members, err := decodeMembers(out)
		if err != nil {
			return
		}
		for _, m := range members {
			if m.ID == "" || m.State == "" || m.State == quell.Ready && setting.AddressProblem(m.Address, true) != "" {
				t.Fatalf("accepted %+v", m)
			}
		}
	})
}

// The controller declares this interface; packages of drivers do not import it.
var _ interface {
	Members(context.Context) ([]quell.Member, error)
	Start(context.Context, int) ([]string, error)
	Stop(context.Context, []string) error
} = (*Driver)(nil)

// A start program that is killed, or whose answer cannot be read, may have started the instances. One that fails has not.
func TestAStartThatMayHaveWorked(t *testing.T) {
	for script, unsure := range map[string]bool{
		"echo machine >> $1; sleep 600": true,
		"kill -9 $$":                    true,
		"echo started":                  true,
		`echo '["a","a"]'`:              true,
		"exit 1":                        false,
		"echo '[]'":                     false, // it says that there are none
		`echo '["a"]'`:                  false,
	} {
		wrote := filepath.Join(t.TempDir(), "machines")
		d := driver(t, Options{Start: sh(script, wrote), Timeout: 200 * time.Millisecond})
		_, err := d.Start(t.Context(), 2)
		if got := errors.As(err, new(*quell.UnsureError)); err == nil || got != unsure {
			t.Errorf("%s: unsure %v, %v", script, got, err)
		}
	}
}
