package main

import (
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// TestJournalWords checks the text for each outcome of a plan.
func TestJournalWords(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.Local)
	plan := &quell.Plan{
		Policy: "static", Weights: map[string]float64{"a": .25, "b": .75}, Group: &quell.GroupChange{Add: 1},
		Reasons: []quell.Reason{{Code: "overload", Text: "too much"}},
	}
	for name, c := range map[string]struct {
		entry bus.Entry
		want  string
	}{
		"applied": {bus.Entry{Applied: true, Mode: quell.Act, Changes: []string{"add i3", "weights a=0.250"}},
			"static  add i3; weights a=0.250"},
		"nothing to do": {bus.Entry{Applied: true, Mode: quell.Act}, ""},
		"advice": {bus.Entry{Mode: quell.Advise, Why: "advise mode", Would: []string{"add 1", "set weights a=0.250"}},
			"advise mode: would add 1; set weights a=0.250"},
		"no advice":      {bus.Entry{Mode: quell.Advise, Why: "advise mode"}, ""},
		"paused":         {bus.Entry{Mode: quell.Act, Why: "paused by ann", Would: []string{"remove b"}}, "paused by ann: would remove b"},
		"refused":        {bus.Entry{Mode: quell.Act, Why: "failed: no route"}, "failed: no route"},
		"half of it":     {bus.Entry{Mode: quell.Act, Changes: []string{"add i3"}, Why: "failed: no route"}, "add i3; the rest failed: no route"},
		"advice of old":  {bus.Entry{Mode: quell.Advise}, "advise mode: would add 1; set weights a=0.250 b=0.750"},
		"refused of old": {bus.Entry{Mode: quell.Act}, "not applied: add 1; set weights a=0.250 b=0.750"},
	} {
		c.entry.Kind, c.entry.At, c.entry.Plan = bus.PlanEntry, at, plan
		var out strings.Builder
		j := journalWriter{w: &out}
		for range 2 { // repetitions are shown once
			if err := j.entry(c.entry); err != nil {
				t.Fatal(err)
			}
			if c.entry.Applied {
				break
			}
		}
		want := ""
		if c.want != "" {
			want = "2026-01-01 00:00:00  " + c.want + "\n    overload: too much\n"
		}
		if out.String() != want {
			t.Errorf("%s: got\n%swant\n%s", name, out.String(), want)
		}
	}
}

// With --brief an entry is one line: as it is if it is short, else cut at a space.
func TestBriefJournal(t *testing.T) {
	var out strings.Builder
	j := journalWriter{w: &out, brief: true}
	long := strings.TrimSpace(strings.Repeat("weights a=0.250 ", 10))
	for _, change := range []string{"add i3", long} {
		if err := j.entry(bus.Entry{Kind: bus.PlanEntry, At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.Local), Mode: quell.Act, Applied: true,
			Changes: []string{change}, Plan: &quell.Plan{Policy: "prima"}}); err != nil {
			t.Fatal(err)
		}
	}
	j.shown = len(j.last)
	j.writeBrief()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || lines[0] != "2026-01-01 00:00:00  prima  add i3" || len(lines[1]) > statusWidth ||
		!strings.HasSuffix(lines[1], "0.250...") {
		t.Errorf("%q", lines)
	}
}
