package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// The seeds of the page. They were not used while the report was made.
const adviceFirstSeed, adviceSeeds = 7001, 10

// adviceData has all measured figures, as they are in advice.json.
type adviceData struct {
	Hours     []adviceHourResult `json:"hours"`
	Agentless []agentlessResult  `json:"agentless"`
	Compared  []comparedResult   `json:"compared"`
	Outside   *outsideData       `json:"outside,omitempty"` // nil: not measured
	Live      *liveHours         `json:"live,omitempty"`    // likewise
}

// adviceParts measure one part of the page each.
var adviceParts = map[string]func(ctx context.Context, d *adviceData) error{
	"agentless": playAgentlessAll,
	"compare":   playCompared,
	"hours":     playAdviceHours,
	"live":      playLiveHour,
	"outside":   playOutside,
	"page":      func(context.Context, *adviceData) error { return nil },
}

// advicePage compares what reports claim with what acting did.
func advicePage(ctx context.Context, dir string) error {
	return cmp.Or(advicePagePart(ctx, dir, "hours"), advicePagePart(ctx, dir, "agentless"), advicePagePart(ctx, dir, "compare"))
}

func advicePagePart(ctx context.Context, dir, part string) error {
	var d adviceData
	path := filepath.Join(dir, "advice.json")
	if _, err := readJSON(path, &d); err != nil {
		return err
	}
	measure, ok := adviceParts[part]
	if !ok {
		return fmt.Errorf("the advice page has no part %q", part)
	}
	if err := measure(ctx, &d); err != nil {
		return err
	}
	if err := writeJSON(path, d); err != nil {
		return err
	}
	return writePage(dir, "advice", newAdviceFigures(d))
}

// playAdviceHours plays an hour with neighbours and a calm one for each kind and seed.
func playAdviceHours(ctx context.Context, d *adviceData) error {
	const each = 2 * adviceSeeds
	d.Hours = make([]adviceHourResult, each*len(adviceKinds))
	return playAll(len(d.Hours), func(i int) (err error) {
		k := adviceKinds[i/each]
		d.Hours[i], err = k.play(ctx, k.firstSeed+uint64(i%each/2), i%2 == 1)
		fmt.Fprintf(os.Stderr, "advice: hour %d done\n", i+1)
		return err
	})
}

// adviceFigures are the figures of the page.
type adviceFigures struct {
	Noisy, Calm                     []adviceHourResult
	ByRule                          []adviceRule
	Neighbours, Quiet               []agentlessResult
	Right, Still                    int
	Compared                        []comparedResult
	Verdicts                        int // comparisons with the right one
	Inside, Narrow, Silent, AtLeast int

	Live                *liveHours
	Outside             *outsideData
	Found, Alone, AtEnd int // looks that name the right server, that name no other one, whose conclusion names exactly it
}

// adviceRule sums the simulated hours under a rule.
type adviceRule struct {
	Balance                       string
	Hours, Inside, Narrow, Saving int // Saving: in which acting saved something; Narrow: of these
	Claimed, Saved                float64
}

func (r *adviceRule) add(h *adviceHourResult) {
	r.Hours, r.Inside = r.Hours+1, r.Inside+count(h.Inside())
	r.Narrow, r.Saving = r.Narrow+count(h.Saved() > 0 && h.Narrow()), r.Saving+count(h.Saved() > 0)
	r.Claimed, r.Saved = r.Claimed+h.Claim.Value, r.Saved+h.Saved()
}

func newAdviceFigures(d adviceData) (f adviceFigures) {
	for _, h := range d.Hours {
		if h.Calm {
			f.Calm = append(f.Calm, h)
			f.Silent += count(h.Verdict == "nothing")
			continue
		}
		f.Noisy = append(f.Noisy, h)
		if n := len(f.ByRule); n == 0 || f.ByRule[n-1].Balance != h.Balance {
			f.ByRule = append(f.ByRule, adviceRule{Balance: h.Balance})
		}
		f.ByRule[len(f.ByRule)-1].add(&h)
		f.Inside += count(h.Inside())
		f.Narrow += count(h.Narrow())
		f.AtLeast += count(h.Back.Low <= h.Saved())
	}
	f.Compared = d.Compared
	for _, x := range d.Compared {
		f.Verdicts += count(x.Right)
	}
	f.Live = d.Live
	if f.Outside = d.Outside; f.Outside != nil {
		for _, l := range f.Outside.Looks {
			f.Found, f.Alone, f.AtEnd = f.Found+count(l.Found()), f.Alone+count(len(l.Wrong()) == 0), f.AtEnd+count(l.Ends())
		}
	}
	for _, a := range d.Agentless {
		if a.Host == 0 {
			f.Quiet = append(f.Quiet, a)
			f.Still += count(a.Correct)
			continue
		}
		f.Neighbours = append(f.Neighbours, a)
		f.Right += count(a.Correct)
	}
	return f
}
