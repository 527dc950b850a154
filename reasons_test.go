package quell_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/golden"
)

var (
	// givenCode finds codes of reasons in Go code, and quotedWord all that could be one.
	givenCode = regexp.MustCompile(
		`(?:[rR]eason\((?:[\w.&]+, )?|AddOne\([\w.]+, [\w.&]+, |\.free\(|\bCode: *|[a-z]Reason *= *)"([a-z_]+)"|"((?:acs|burst)_[a-z_]+)"`)
	quotedWord = regexp.MustCompile(`"([a-z]+_?[a-z_]*)"`)
)

// Every code with which policies, controller or simulator give a reason is declared, and every declared code is given.
func TestReasonsAreDeclaredOnce(t *testing.T) {
	given, words := map[string]string{}, map[string]bool{}
	for _, dir := range []string{"policy", "controller", "agentless", "switchback", "lab/sim"} {
		sources(t, dir, func(path, text string) {
			for _, m := range givenCode.FindAllStringSubmatch(text, -1) {
				given[m[1]+m[2]] = path
			}
			for _, m := range quotedWord.FindAllStringSubmatch(text, -1) {
				words[m[1]] = true
			}
		})
	}
	if len(given) < 60 {
		t.Errorf("only %d codes were found", len(given))
	}
	for code, path := range given {
		if r := (quell.Reason{Code: code}); r.Kind().Means == "" && !strings.HasSuffix(code, "_") && code != "other" {
			t.Errorf("%s: reasons.json lacks the code %q: add a line in order, then go test . -run ReasonsReference -update", path, code)
		}
	}
	for _, kind := range quell.ReasonKinds() {
		if waits := strings.TrimPrefix(kind.Code, "waits_"); !words[kind.Code] && !slices.Contains([]string{quell.OwnCause, quell.QuotaCause,
			quell.NeighboursCause, quell.HypervisorCause}, waits) {
			t.Errorf("reasons.json: nothing gives %q", kind.Code)
		}
	}
}

// The page of reasons is written from what is declared, whose pages and anchors exist.
func TestReasonsReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Reasons\n\nPlans, the status and the journal give a reason for each decision. `quell_reasons_total` counts them\n" +
		"by code. A *warning* needs somebody's attention; a *notice* says that something limits or changes the service,\n" +
		"and that Quell deals with it; the others are *routine*. Texts for people leave out a reason beside its\n" +
		"cause. This table is written from `reasons.json`.\n\n| reason | severity | meaning |\n|---|---|---|\n")
	severities := []quell.Severity{quell.Warning, quell.Notice, quell.Routine}
	kinds, anchors := quell.ReasonKinds(), map[string][]string{}
	for i, k := range kinds {
		if i > 0 && kinds[i-1].Code >= k.Code {
			t.Errorf("reasons.json: %q is not in alphabetical order", k.Code)
		}
		if !slices.Contains(severities, k.Severity) || !strings.HasSuffix(k.Means, ".") {
			t.Errorf("reasons.json: %s: severity %q, want one of %q; meaning %q, want a sentence with its full stop",
				k.Code, k.Severity, severities, k.Means)
		}
		for _, cause := range k.SilentWhile {
			if c := (quell.Reason{Code: cause}).Kind(); c.Means == "" || slices.Contains(c.SilentWhile, k.Code) {
				t.Errorf("%s is silent while %q is shown, which is not declared, or silent while the other is", k.Code, cause)
			}
		}
		page, anchor, _ := strings.Cut(k.See, "#")
		if anchors[page] == nil {
			anchors[page] = headings(t, filepath.Join("docs", page))
		}
		if !slices.Contains(anchors[page], anchor) {
			t.Errorf("%s: docs/%s has no heading %q", k.Code, page, anchor)
		}
		notes := ""
		if k.SilentWhile != nil {
			notes += " Not shown beside `" + strings.Join(k.SilentWhile, "`, `") + "`."
		}
		if k.AfterS > 0 {
			notes += fmt.Sprintf(" Shown after %g s.", k.AfterS)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s%s ([more](%s)) |\n", k.Code, k.Severity, k.Means, notes, k.See)
	}
	golden.Compare(t, "docs/reasons.md", []byte(b.String()))
}

// headings are the anchors of a page. The page itself has the empty one.
func headings(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	anchors := []string{""}
	for line := range strings.Lines(string(text)) {
		if title := strings.TrimLeft(line, "#"); title != line {
			title = regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			anchors = append(anchors, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return anchors
}

func sources(t *testing.T, dir string, read func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		read(path, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// People are not told a consequence beside its cause, nor what may be gone at once.
func TestShownReasons(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	since := func(s int) *time.Time { at := now.Add(-time.Duration(s) * time.Second); return &at }
	for _, tc := range []struct {
		why  string
		all  []quell.Reason
		want []string
	}{
		{"a cause alone", []quell.Reason{{Code: "unreachable"}}, []string{"unreachable"}},
		{"a consequence alone", []quell.Reason{{Code: "overload"}}, []string{"overload"}},
		{"both", []quell.Reason{{Code: "overload"}, {Code: "unreachable"}}, []string{"unreachable"}},
		{"a chain: the cause of a silent cause",
			[]quell.Reason{{Code: "group_max"}, {Code: "overload"}, {Code: "unreachable"}}, []string{"unreachable"}},
		{"a cause at another instance", []quell.Reason{{Code: "step"}, {Code: "authority", Instance: "b"}}, []string{"step", "authority"}},
		{"too short", []quell.Reason{{Code: "suspected", Since: since(1)}}, nil},
		{"long enough", []quell.Reason{{Code: "suspected", Since: since(60)}}, []string{"suspected"}},
		{"of a plan, without times", []quell.Reason{{Code: "suspected"}}, []string{"suspected"}},
		{"unknown", []quell.Reason{{Code: "of_a_later_version"}}, []string{"of_a_later_version"}},
	} {
		var got []string
		for _, r := range quell.ShownReasons(tc.all, now) {
			got = append(got, r.Code)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.why, got, tc.want)
		}
	}
	if title := (quell.Reason{Code: "own_work"}).Title(); title != "own work" {
		t.Errorf("got %q", title)
	}
	if title := (quell.Reason{Code: "shift"}).Title(); title != "shift" {
		t.Errorf("got %q", title)
	}
}
