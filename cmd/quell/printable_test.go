package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/terminal"
)

const hostile = "x\x1b]0;pwned\x07\x1b[2J\r\nweb-9  ready\u202e\u009b31m"

// wantHarmless checks that no text can move the cursor or forge a line.
func wantHarmless(t *testing.T, out string, lines int) {
	t.Helper()
	if strings.ContainsFunc(strings.ReplaceAll(out, "\n", ""), func(r rune) bool { return !terminal.Shown(r) }) ||
		strings.Count(out, "\n") != lines {
		t.Errorf("shown as %q", out)
	}
}

func TestHostileTextsAreEscaped(t *testing.T) {
	s := controller.Status{Service: hostile, At: time.Now(), Paused: true, PausedBy: hostile, Overrides: map[string]float64{hostile: 1},
		Instances: []controller.InstanceStatus{{ID: hostile, State: quell.State(hostile), Limiter: hostile, Reason: hostile}},
		Reasons:   []quell.Reason{{Code: "c", Text: hostile}}, Changes: []string{hostile}, ChangedAt: time.Now(),
		LastFailure: map[string]string{hostile: hostile}, LastFailureAt: map[string]time.Time{hostile: time.Now()},
	}
	clean, hit := controller.Status{Service: "a", At: time.Now(), Paused: true, Overrides: map[string]float64{"b": 1},
		Instances: []controller.InstanceStatus{{ID: "b", State: "ready", Limiter: "cpu"}}, Reasons: []quell.Reason{{Code: "c", Text: "d"}},
		Changes: []string{"e"}, ChangedAt: time.Now(),
		LastFailure: map[string]string{"f": "g"}, LastFailureAt: map[string]time.Time{"f": time.Now()}}, &s
	var want, got bytes.Buffer
	if err := writeStatus(&want, clean, true); err != nil {
		t.Fatal(err)
	}
	printable(hit)
	if err := writeStatus(&got, *hit, true); err != nil {
		t.Fatal(err)
	}
	wantHarmless(t, got.String(), strings.Count(want.String(), "\n"))
	if !strings.Contains(got.String(), `\x1b]0;pwned`) {
		t.Errorf("what was there is not shown: %q", got.String())
	}

	var journal bytes.Buffer
	w := journalWriter{w: &journal}
	if err := w.entry(bus.Entry{At: time.Now(), Kind: bus.EventEntry, Text: hostile}); err != nil {
		t.Fatal(err)
	}
	wantHarmless(t, journal.String(), 1)
	journal.Reset()
	w.json = true
	if err := w.entry(bus.Entry{At: time.Now(), Kind: bus.EventEntry, Text: hostile}); err != nil {
		t.Fatal(err)
	}
	wantHarmless(t, journal.String(), 1)
	var back bus.Entry
	if err := json.Unmarshal(journal.Bytes(), &back); err != nil || back.Text != hostile {
		t.Errorf("JSON means %q, %v", back.Text, err)
	}
}
