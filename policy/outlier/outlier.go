// Package outlier is the fast policy outlier: outlier ejection for response times and errors.
package outlier

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/bands"
	"github.com/quellhq/quell/setting"
)

// Settings are the settings of the policy. Shares are fractions.
type Settings struct {
	Requests int           // a window with fewer finished requests does not give a response time on its own
	Slower   float64       // an instance is cut if its response time is at least this many times the others' median
	Errors   float64       // an instance is cut if its share of failed requests exceeds the others' by at least this
	Hold     time.Duration // how long a first cut stays before the share grows again
	Most     float64       // the largest part of the group that is cut at once
}

// bands returns the settings that say what is outside a band.
func (s Settings) bands() bands.Settings {
	return bands.Settings{Requests: s.Requests, Slower: s.Slower, Errors: s.Errors}
}

// Spec declares the policy.
var Spec = policy.Spec[Settings]{
	Name: "outlier", About: "cuts the share of an instance whose response times or errors leave their band, within two periods",
	Scope: policy.FastScope,
	Defaults: Settings{Requests: bands.Defaults.Requests, Slower: bands.Defaults.Slower, Errors: bands.Defaults.Errors,
		Hold: 10 * time.Second, Most: 0.3},
	Keys: func(s *Settings) setting.Table {
		return setting.Table{
			setting.Opt("requests", setting.Whole(&s.Requests).Between(1, 1_000_000),
				"a window with fewer finished requests is not used alone for a response time"),
			setting.Opt("slower", setting.Decimal(&s.Slower).Between(1.1, 1000),
				"an instance is cut if its response time is at least this many times the others' median"),
			setting.Opt("errors", setting.Share(&s.Errors).Above(0).Between(0, 1),
				"an instance is cut if its share of failed requests exceeds the others' by at least this"),
			setting.Opt("hold", setting.Duration(&s.Hold).Between(time.Second, time.Hour),
				"how long a first cut stays before the share grows again; repeated ones stay longer"),
			setting.Opt("most", setting.Share(&s.Most).Above(0).Between(0, 1),
				"the largest part of the group that is cut at once; one instance of two or more always may be"),
		}
	},
	Instance: policy.Empty[instance],
	Decide:   decide,
}

const (
	maxRepeats = 5 // number of repeated cuts after which the time of a cut no longer grows
	failedHold = 3 // a cut that leaves nothing stays this many times as long, because each attempt to end it costs failed requests
)

// instance is what outlier remembers of an instance.
type instance struct {
	bands.Memory
	Until   time.Time `json:"until,omitzero"`    // when the cut may shrink
	Repeats int       `json:"repeats,omitempty"` // number of cuts that followed each other without a long calm between them
	Trial   bool      `json:"trial,omitempty"`   // some of the share came back after the cut was last renewed
	Calm    time.Time `json:"calm,omitzero"`     // when the last cut was over
}

func memoryOf(m *policy.Member) *instance { return policy.MemoryOf[instance](m) }

// decide is outlier ejection for response times and errors. It cuts the share of an instance at once in two cases: the instance misses the
// objective and takes several times as long as the others and longer than usual, or clearly more of its requests fail than of the others'.
// Later the share doubles step by step. If the instance leaves its band again after a step, it is cut again.
func decide(in *policy.Input, set Settings, g *policy.Group, _ *policy.State) quell.Plan {
	policy.RememberedOf[instance](g)
	p := &plan{in: in, set: set, now: in.Snapshot.At}
	p.list = bands.Judge(in, g, set.bands(), true, func(m *policy.Member) *bands.Memory { return &memoryOf(m).Memory }).List
	p.cut(len(g.Ready))
	p.release(g)
	return p.plan
}

// plan is the state of one decision.
type plan struct {
	in   *policy.Input
	set  Settings
	now  time.Time
	list []bands.Window
	plan quell.Plan
}

// cut cuts the shares of instances that are outside their bands, the worst first. It never cuts more of the group than the setting most
// allows.
func (p *plan) cut(ready int) {
	room := int(math.Max(1, math.Floor(p.set.Most*float64(ready)+quell.SumTolerance)))
	if ready < 2 {
		room = 0
	}
	var fresh []*bands.Window
	for i := range p.list {
		w := &p.list[i]
		mem := memoryOf(w.Member)
		out := w.Fresh && w.Why != ""
		switch {
		case w.Member.Fixed != nil: // its share is not cut, so it does not count either
		case mem.Cut > 0:
			room--
			if out {
				p.again(w, mem)
			}
		case out && (w.Sure || mem.Out >= 2):
			fresh = append(fresh, w)
		}
	}
	if len(fresh) > room {
		policy.AddReason(&p.plan, "outliers", "",
			"%d more instance(s) are out of their bands, and %d may be cut: more is load, or the whole service",
			len(fresh), max(0, room))
	}
	slices.SortStableFunc(fresh, func(a, b *bands.Window) int { return cmp.Compare(badness(b), badness(a)) })
	for _, w := range fresh[:min(len(fresh), max(0, room))] {
		p.first(w, memoryOf(w.Member))
	}
}

// badness orders the instances that are outside their bands: those with more errors come first, then the slower ones.
func badness(w *bands.Window) float64 {
	if w.Failing() {
		return 1000*w.Errors + w.Ratio
	}
	return w.Ratio
}

// first begins a cut of an instance that was not cut before.
func (p *plan) first(w *bands.Window, mem *instance) {
	if calm := p.now.Sub(mem.Calm); calm > 8*p.set.Hold || calm < 0 { // below 0: the clock was set back
		mem.Repeats = 0
	}
	mem.repeat()
	p.hold(mem, 1-leaves(w))
}

// leaves returns the part of a share that a cut leaves: nothing if requests fail, else the less the slower the instance is.
func leaves(w *bands.Window) float64 {
	if w.Failing() {
		return 0
	}
	return w.Keeps()
}

// again halves the share of an instance that is outside its band although it is cut. If some of its share had come back, this counts as a
// repeated cut.
func (p *plan) again(w *bands.Window, mem *instance) {
	if mem.Trial {
		mem.repeat()
	}
	p.hold(mem, 1-math.Min(leaves(w), (1-mem.Cut)/2))
}

// hold cuts a share.
func (p *plan) hold(mem *instance, cut float64) {
	mem.Cut, mem.Trial = cut, false
	mem.Until = p.now.Add(mem.stays(p.set.Hold))
}

// stays returns how long a cut stays, if the first one stays for hold. Each repetition doubles the time.
func (mem *instance) stays(hold time.Duration) time.Duration {
	if hold <<= max(1, mem.Repeats) - 1; mem.Cut == 1 {
		hold *= failedHold
	}
	return hold
}

func (mem *instance) repeat() { mem.Repeats = min(mem.Repeats+1, maxRepeats) }

// release lets shares grow again if the time of their cut is over, and writes the present cuts into the plan.
func (p *plan) release(g *policy.Group) {
	for _, m := range g.Ready {
		mem := memoryOf(m)
		if m.Fixed != nil {
			mem.Cut, mem.Trial = 0, false
		}
		if mem.Cut == 0 {
			continue
		}
		if latest := p.now.Add(mem.stays(p.set.Hold)); mem.Until.After(latest) { // the clock was set back
			mem.Until = latest
		}
		if !p.now.Before(mem.Until) {
			mem.grow(p.now, p.set.Hold)
		}
		if mem.Cut == 0 {
			continue
		}
		// The factor lasts for three periods, and each decision renews it. Two missed decisions do not end it.
		quell.Put(&p.plan.Factor, m.ID, quell.Factor{Value: 1 - mem.Cut, Until: p.now.Add(3 * p.in.Service.Sampling)})
		policy.AddReason(&p.plan, "outlier", m.ID, "%s", p.tell(m, mem))
	}
}

// grow doubles the part of the share that a cut leaves. When the part is the whole share again, the cut ends.
func (mem *instance) grow(now time.Time, hold time.Duration) {
	left := math.Max(bands.DeepestCut, 2*(1-mem.Cut))
	if mem.Cut = 1 - left; mem.Cut <= 0 {
		mem.Cut, mem.Calm, mem.Trial = 0, now, false
		return
	}
	mem.Until, mem.Trial = now.Add(hold/2), true
}

func (p *plan) tell(m *policy.Member, mem *instance) string {
	text := fmt.Sprintf("it keeps %.0f%% of its share, and gets more from %s on", 100*(1-mem.Cut), mem.Until.UTC().Format(time.TimeOnly))
	i := slices.IndexFunc(p.list, func(w bands.Window) bool { return w.Member == m })
	if i >= 0 && p.list[i].Why != "" {
		return p.list[i].Why + ": " + text
	}
	return text
}
