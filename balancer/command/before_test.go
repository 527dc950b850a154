package command

import (
	"path/filepath"
	"strings"
	"testing"
)

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
