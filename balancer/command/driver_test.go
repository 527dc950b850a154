package command

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/balancertest"
)

// script writes an executable shell script; in the script, $DIR is the test's folder.
func script(t *testing.T, dir, body string) string {
	t.Helper()
	path := filepath.Join(dir, "script.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nDIR='"+dir+"'\n"+body), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func driver(t *testing.T, o Options) *Driver {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestApplyPassesTheBackends(t *testing.T) {
	dir := t.TempDir()
	path := script(t, dir, `echo "$1" >"$DIR/argument"; cat >"$DIR/input"`)
	d := driver(t, Options{Service: "video", Command: []string{path, "a b"}})
	backends := []quell.Backend{{ID: "i1", Address: "10.0.0.1:80", Weight: 0.25}, {ID: "i2", Address: "10.0.0.2:80", Draining: true}}
	if err := d.Apply(t.Context(), backends); err != nil {
		t.Fatal(err)
	}
	want := `{"service":"video","backends":[{"id":"i1","address":"10.0.0.1:80","weight":0.25},` +
		`{"id":"i2","address":"10.0.0.2:80","weight":0,"draining":true}]}` + "\n"
	if got := read(t, filepath.Join(dir, "input")); got != want {
		t.Errorf("the command read\n%swant\n%s", got, want)
	}
	if got := read(t, filepath.Join(dir, "argument")); got != "a b\n" {
		t.Errorf("the command's argument was %q", got)
	}
}

func TestStateWithoutACommandIsWhatWasApplied(t *testing.T) {
	dir := t.TempDir()
	d := driver(t, Options{Command: []string{script(t, dir, `test ! -e "$DIR/broken"`)}})
	if states, err := d.State(t.Context()); err != nil || len(states) != 0 {
		t.Fatalf("before the first Apply: %v, %v", states, err)
	}
	if err := d.Apply(t.Context(), []quell.Backend{{ID: "i1", Address: "h:1", Weight: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Apply(t.Context(), []quell.Backend{{ID: "i2", Address: "h:2", Weight: 1}}); err == nil {
		t.Fatal("a failing command is not an error")
	}
	states, err := d.State(t.Context())
	if err != nil || len(states) != 1 || states[0].ID != "i1" || !states[0].Healthy {
		t.Errorf("state %+v, %v; want the healthy i1 that was applied, not the i2 that failed", states, err)
	}
}

func TestStateCommand(t *testing.T) {
	tests := []struct{ why, prints, wantErr string }{
		{"what is in force", `[{"id":"i1","address":"h:1","weight":0.5,"healthy":true,"in_flight":3}]`, ""},
		{"not JSON", `i1 up`, "not a list of backends"},
		{"an unknown field", `[{"id":"i1","address":"h:1","weight":1,"wieght":2}]`, "wieght"},
		{"no id", `[{"address":"h:1","weight":1}]`, "backends[0].id"},
		{"the same id twice", `[{"id":"a","address":"h:1","weight":1},{"id":"a","address":"h:2","weight":1}]`, "backends[1].id"},
		{"a negative weight", `[{"id":"a","address":"h:1","weight":-1}]`, "negative"},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			d := driver(t, Options{Command: []string{"true"}, StateCommand: []string{"printf", "%s", tt.prints}})
			states, err := d.State(t.Context())
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want one with %q", err, tt.wantErr)
				}
				return
			}
			if err != nil || len(states) != 1 || states[0].Weight != 0.5 || states[0].InFlight != 3 || !states[0].Healthy {
				t.Errorf("states %+v, %v", states, err)
			}
		})
	}
}

func TestAFailedCommandSaysSo(t *testing.T) {
	path := script(t, t.TempDir(), `echo "no such pool" >&2; exit 3`)
	err := driver(t, Options{Command: []string{path}}).Apply(t.Context(), nil)
	if want := "balancer command: running " + path + ": exit status 3; it said: no such pool"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	err = driver(t, Options{Command: []string{"sleep", "600"}, Timeout: 20 * time.Millisecond}).Apply(t.Context(), nil)
	if err == nil || err.Error() != "balancer command: running sleep: it took longer than 20ms" {
		t.Errorf("got %v", err)
	}
}

func TestMistakes(t *testing.T) {
	for why, o := range map[string]Options{
		"no command":      {},
		"unknown program": {Command: []string{"/nonexistent/balancer"}},
		"unknown state":   {Command: []string{"true"}, StateCommand: []string{"/nonexistent/state"}},
		"negative time":   {Command: []string{"true"}, Timeout: -1},
	} {
		var mistake *quell.UserError
		if _, err := New(o); !errors.As(err, &mistake) {
			t.Errorf("%s: error %v is not a *quell.UserError", why, err)
		}
	}
	err := driver(t, Options{Command: []string{"true"}}).Apply(t.Context(), []quell.Backend{{ID: "a", Weight: math.NaN()}})
	if err == nil {
		t.Error("a weight that is not a number was accepted")
	}
}

// A backend that somebody else deleted is no longer in the state, whatever was applied last.
func TestADeletedBackend(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "list")
	print := func(text string) {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const (
		one = `{"id":"i1","address":"h:1","weight":0.5,"healthy":true}`
		two = `{"id":"i2","address":"h:2","weight":0.5,"healthy":true}`
	)
	d := driver(t, Options{Command: []string{"true"}, StateCommand: []string{"cat", list}})
	both := []quell.Backend{{ID: "i1", Address: "h:1", Weight: .5}, {ID: "i2", Address: "h:2", Weight: .5}}
	if err := d.Apply(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"[" + one + "," + two + "]": 2, "[" + one + "]": 1} {
		print(text)
		if states, err := d.State(t.Context()); err != nil || len(states) != want {
			t.Errorf("%s: %+v, %v", text, states, err)
		}
	}
}

func TestContract(t *testing.T) {
	dir := t.TempDir()
	path := script(t, dir, `case $1 in
apply) cat >"$DIR/now" ;;
state) sed 's/.*"backends"://; s/}$//' "$DIR/now" ;;
esac`)
	o := Options{Command: []string{path, "apply"}, StateCommand: []string{path, "state"}, Memory: filepath.Join(dir, "command.json")}
	open := func() balancer.Driver { return driver(t, o) }
	balancertest.Contract(t, open, []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"}, 1e-9)
}
