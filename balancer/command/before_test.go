package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

// A release changes nothing where Quell never acted, and afterwards leaves what people set.
func TestAReleaseLeavesWhatPeopleSet(t *testing.T) {
	dir := t.TempDir()
	o := Options{Service: "s", Memory: filepath.Join(dir, "record.json"), StateCommand: []string{"cat", filepath.Join(dir, "state")},
		Command: []string{script(t, dir, `echo told >>"$DIR/told"; sed 's/^.*"backends"://; s/}$//' >"$DIR/state"`)}}
	set := func(a, b string) {
		text := `[{"id":"a","address":"h:1","weight":` + a + `},{"id":"b","address":"h:2","weight":` + b + `}]`
		if err := os.WriteFile(filepath.Join(dir, "state"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	release := func() *Driver {
		t.Helper()
		d := driver(t, o)
		if unknown, err := d.Restore(t.Context()); err != nil || len(unknown) > 0 {
			t.Fatalf("not known %v, %v", unknown, err)
		}
		return d
	}
	told := func(want int) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, "told"))
		if err != nil && want > 0 || strings.Count(string(data), "told") != want {
			t.Fatalf("the command ran %d times, want %d", strings.Count(string(data), "told"), want)
		}
	}
	set("0.4", "0.6")
	d := driver(t, o)
	look := func() {
		t.Helper()
		if _, err := d.State(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	look()
	set("0.3", "0.7")
	release()
	told(0)
	d = driver(t, o)
	look()
	shares := []quell.Backend{{ID: "a", Address: "h:1", Weight: 0.9}, {ID: "b", Address: "h:2", Weight: 0.1}}
	if err := d.Apply(t.Context(), shares); err != nil {
		t.Fatal(err)
	}
	told(1)
	d = release()
	told(2)
	if state := read(t, filepath.Join(dir, "state")); !strings.Contains(state, `"weight":0.3`) || !strings.Contains(state, `"weight":0.7`) {
		t.Errorf("after the release: %s", state)
	}
	set("0.2", "0.8")
	look()
	release()
	told(2)
}

func TestWeightsOfBefore(t *testing.T) {
	for why, tc := range map[string]struct{ prints, applied, unknown, fails string }{
		"base weights": {`[{"id":"a","address":"h:1","weight":0.9,"base":30},{"id":"b","address":"h:2","weight":0.1,"base":90}]`,
			`"id":"a","address":"h:1","weight":0.25`, "", ""},
		"none":      {`[{"id":"a","address":"h:1","weight":1}]`, "", "tells no base weight of a, and what it was before Quell is not recorded", ""},
		"no weight": {`[{"id":"a","address":"h:1","weight":1,"base":0}]`, "", "", "base 0 must be above 0"},
		"nothing":   {`[]`, "", "", "no backends are known"},
	} {
		dir := t.TempDir()
		d := driver(t, Options{Service: "s", Command: []string{script(t, dir, `cat >"$DIR/input"`)}, StateCommand: []string{"printf", "%s", tc.prints}})
		unknown, err := d.Restore(t.Context())
		if tc.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s: %v", why, err)
			}
			continue
		}
		if err != nil || !strings.Contains(strings.Join(unknown, " "), tc.unknown) {
			t.Errorf("%s: not known %v, %v", why, unknown, err)
		}
		if tc.applied != "" && !strings.Contains(read(t, filepath.Join(dir, "input")), tc.applied) {
			t.Errorf("%s: the command read %s", why, read(t, filepath.Join(dir, "input")))
		}
	}
}
