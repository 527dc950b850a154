package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quellhq/quell/lab/experiment"
)

// mixFigures are what is kept of the hour with a mix.
type mixFigures struct {
	Machine string `json:"machine"`
	*experiment.MixRecord
}

// Rate is the mean rate of ordinary requests.
func (mixFigures) Rate() float64 { return experiment.HourOfMix.Rate }

// Settling is the time after a server came back that is left out, in seconds.
func (f mixFigures) Settling() float64 { return 3 * f.SamplingS }

// HeldEnds is the number of servers that were stopped while they were taken out.
func (f mixFigures) HeldEnds() int { return f.ends(false) }

// AnywayEnds is the number of servers that were stopped while an act kept them out that had changed nothing.
func (f mixFigures) AnywayEnds() int { return f.ends(true) }

func (f mixFigures) ends(anyway bool) (n int) {
	for _, e := range f.Ends {
		if e.Held != "" && e.Anyway == anyway {
			n++
		}
	}
	return n
}

// Unjudged is the longest time of a server that was never stopped that is neither judged, nor within what took it out, nor in the time that
// is left out after that, in seconds.
func (f mixFigures) Unjudged() (most float64) {
	for _, s := range f.Shares {
		if s.Lame || slices.ContainsFunc(f.Ends, func(e experiment.MixEnd) bool { return e.Instance == s.Instance }) {
			continue
		}
		left := f.LengthS - float64(s.Judged)
		for _, a := range f.Acts {
			if a.Instance == s.Instance {
				left -= a.To.Sub(a.From).Seconds() + f.Settling()
			}
		}
		most = max(most, left)
	}
	return most
}

// mixKind is how often something happened.
type mixKind struct {
	Name string
	N    int
}

// Kinds are the ways in which servers were out, by name.
func (f mixFigures) Kinds() (kinds []mixKind) {
	times := map[string]int{}
	for _, a := range f.Happened() {
		times[a.Act]++
	}
	for _, name := range slices.Sorted(maps.Keys(times)) {
		kinds = append(kinds, mixKind{name, times[name]})
	}
	return kinds
}

// mixSaw is how often clients of a kind saw an outcome.
type mixSaw struct {
	Kind, Outcome string
	N             int
}

// Saw is what clients saw, by kind and outcome.
func (f mixFigures) Saw() (saw []mixSaw) {
	for _, key := range slices.Sorted(maps.Keys(f.Clients)) {
		kind, outcome, _ := strings.Cut(key, " ")
		saw = append(saw, mixSaw{kind, outcome, f.Clients[key]})
	}
	return saw
}

// mixPage plays the hour, writes its figures, and then the page. What was measured before is kept, because it takes an hour.
func mixPage(ctx context.Context, dir string) error {
	if _, err := os.Stat(mixFile(dir)); err == nil {
		return mixPagePart(ctx, dir, "page")
	}
	return mixPagePart(ctx, dir, "hour")
}

func mixFile(dir string) string { return filepath.Join(dir, "mix.json") }

// mixPagePart plays the hour again; with page, it only writes the page.
func mixPagePart(ctx context.Context, dir, part string) error {
	f := mixFigures{Machine: here().Machine}
	switch part {
	case "hour":
		work, err := os.MkdirTemp("", "qm")
		if err != nil {
			return err
		}
		defer os.RemoveAll(work)
		if f.MixRecord, err = experiment.HourOfMix.Play(ctx, work); err != nil {
			return err
		}
		if err := writeJSON(mixFile(dir), f); err != nil {
			return err
		}
	case "page":
		if found, err := readJSON(mixFile(dir), &f); err != nil || !found {
			return fmt.Errorf("nothing was measured: go run ./cmd/results mix:hour: %w", err)
		}
	default:
		return fmt.Errorf("the mix page has no part %q", part)
	}
	return writePage(dir, "mix", f)
}
