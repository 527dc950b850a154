package ice

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// changedParameters is what ice remembers of the parameters of an instance's server.
type changedParameters struct {
	Values  map[string]tunedValue `json:"values,omitempty"`   // changed ones, by name; the map is never changed
	At      time.Time             `json:"at,omitzero"`        // when any was last changed
	Before  float64               `json:"before,omitempty"`   // median response time before they were changed, in milliseconds; 0: not known
	Worse   bool                  `json:"worse,omitempty"`    // they made it worse, or somebody else set one: no more are changed during this interference
	Undoing bool                  `json:"undoing,omitempty"`  // they are going back to the values of before
	InForce bool                  `json:"in_force,omitempty"` // an agent reported the changed values
	Helped  bool                  `json:"helped,omitempty"`   // they made the median shorter
	Vain    int                   `json:"vain,omitempty"`     // number of changes in a row that did not help

	Shown map[string]float64 `json:"shown,omitempty"`   // parameters that may be changed, in the last window; never changed
	MS    band               `json:"ms,omitzero"`       // median response time in windows with signs, since the last change had half of its time to settle
	Use   band               `json:"use,omitzero"`      // use of the processors by all since then
	Busy  float64            `json:"busy,omitempty"`    // the same in the last window
	Cut   bool               `json:"was_cut,omitempty"` // parameters were free to follow in the last window
}

// tunedValue is a parameter's value before it was changed, the ordered one, and the one that was ordered before that, if the parameter goes
// back.
type tunedValue struct {
	Original float64 `json:"original"`
	Value    float64 `json:"value"`
	Changed  float64 `json:"changed,omitempty"`
	Foreign  int     `json:"foreign,omitempty"` // windows in a row in which it had none of these values
}

// Constants of the second level.
const (
	muchWorse = 1.1            // a median that is this many times as long as before is worse; the inverse is better
	maxRise   = 4.0            // a rise counts as at most this many times
	minTurn   = 0.1            // a parameter changes only by at least this part of itself
	givenUp   = 24 * time.Hour // after this time, a value of before that is not in force is forgotten
	foreign   = 3              // windows in a row with a value that nobody ordered show that somebody else set it
)

// tunes returns whether parameters of an instance's server may follow: a cut of its share is in force or, if shares are never cut, it has
// neighbours. The latter is IC², which ICE builds on.
func (p *plan) tunes(m *policy.Member) bool {
	mem := memoryOf(m)
	return mem.Slow.Cut > 0 && m.Fixed == nil || p.set.Floor == 1 && !mem.Since.IsZero()
}

// note adds an instance's last window. When parameters become free to follow, or are no longer, the means begin anew with the next window.
func (p *plan) note(m *policy.Member) {
	t, f := &memoryOf(m).Tuned, p.facts(m)
	if f.used {
		t.Busy = f.use.Busy()
	}
	if tunes := p.tunes(m); tunes != t.Cut {
		t.Cut, t.MS, t.Use = tunes, band{}, band{}
		return
	}
	if f.used {
		t.Use = t.Use.with(f.use.Busy())
	}
	shows := p.shows(m)
	t.InForce = t.InForce || shows && len(t.Values) > 0
	if ms, ok := medianMS(m.Observation); ok && shows && memoryOf(m).Out > 0 {
		t.MS = t.MS.with(ms)
	}
}

// shows returns whether an instance's last window shows what the ordered values of parameters do, if there are any. A reload holds requests
// up for a moment, and values none of which is in force do nothing.
func (p *plan) shows(m *policy.Member) bool {
	t, o := &memoryOf(m).Tuned, m.Observation
	began := o.At.Add(-time.Duration(o.WindowS * float64(time.Second)))
	if began.Sub(t.At) < p.set.Settle/2 {
		return false
	}
	for name, v := range t.Values {
		if inForce, reported := m.Settings[name]; reported && isValue(inForce, v.Value) {
			return true
		}
	}
	return len(t.Values) == 0
}

// tune changes parameters of an instance's server (ICE, section IV, second level): only if interference lasts, only after the share was
// cut (unless shares are never cut), never again before the last change has settled. It undoes the change if the median response time gets
// worse, and when the interference is over. Each change in a row that did not help doubles the time after which the next one comes, because
// reloads have a price.
func (p *plan) tune(m *policy.Member) {
	mem := memoryOf(m)
	t := &mem.Tuned
	settled := p.now.Sub(t.At) >= p.set.Settle
	if len(t.Values) == 0 {
		t.Worse = t.Worse && !mem.Since.IsZero()
		if p.now.Sub(t.At) >= givenUp {
			t.Vain = 0
		}
		if m.InService() && p.tunes(m) && !t.Worse && settled && p.lasts(mem) {
			p.change(m)
		}
	} else if p.heed(m); len(t.Values) > 0 && !t.Undoing && settled {
		p.end(m)
	}
	p.order(m)
	t.Shown = p.shown(m)
}

// lasts returns whether an interference has lasted for so long that parameters follow. A single doubtful window at its end is not enough.
func (p *plan) lasts(mem *instance) bool {
	return mem.Out > p.set.Confirm && mem.Sign.Sub(mem.Since) >= p.set.After<<mem.Tuned.Vain
}

// shown returns the values of those parameters that may be changed.
func (p *plan) shown(m *policy.Member) map[string]float64 {
	last := memoryOf(m).Tuned.Shown
	if len(p.parameters) == 0 || !m.Fresh {
		return last
	}
	now := map[string]float64{}
	for _, parameter := range p.parameters {
		if v, reported := m.Settings[parameter.Name]; reported {
			now[parameter.Name] = v
		}
	}
	if maps.Equal(now, last) {
		return last
	}
	return now
}

// end orders the values of before if there is a reason.
func (p *plan) end(m *policy.Member) {
	mem := memoryOf(m)
	t := &mem.Tuned
	t.Helped = t.Helped || t.MS.N > 0 && t.Before > muchWorse*t.MS.Mean
	switch {
	case mem.Since.IsZero():
		t.judge()
		p.undo(m, "the interference is over")
	case t.worse():
		t.judge()
		t.Worse = true
		p.undo(m, "the median response time is longer than before")
	}
}

// judge counts changes that did not help although they were in force.
func (t *changedParameters) judge() {
	switch {
	case t.Helped:
		t.Vain = 0
	case t.InForce && t.Before > 0:
		t.Vain = min(t.Vain+1, maxRepeats)
	}
}

// worse returns whether the median response time is longer than before parameters were changed. If none was known then, nothing is.
func (t *changedParameters) worse() bool { return t.Before > 0 && t.MS.Mean > muchWorse*t.Before }

// change computes the values of all parameters that the agent reports.
func (p *plan) change(m *policy.Member) {
	mem := memoryOf(m)
	t := &mem.Tuned
	values := map[string]tunedValue{}
	for _, parameter := range p.parameters {
		inForce, reported := m.Settings[parameter.Name]
		if !reported {
			p.reason("setting_unknown", m.ID, "%s is not changed: the agent does not report it (agent.middleware)", parameter.Name)
			continue
		}
		if last, shown := t.Shown[parameter.Name]; !shown || last != inForce {
			continue // it may be the count of a moment, as while nginx reloads
		}
		value, least := inForce/rise(t.Use, mem.Usual.Busy), inForce*(1-minTurn)
		if parameter.Change == Raise {
			value, least = inForce*rise(t.MS, mem.Usual.MS), inForce*(1+minTurn)
		}
		value = math.Min(math.Max(math.Round(value), parameter.Min), parameter.Max)
		if parameter.Change == Lower && value <= least && value < inForce || parameter.Change == Raise && value >= least && value > inForce {
			values[parameter.Name] = tunedValue{Original: inForce, Value: value}
			p.reason("setting", m.ID, "the interference lasts: %s from %g to %g", parameter.Name, inForce, value)
		}
	}
	if len(values) > 0 {
		t.Values, t.At, t.Before, t.MS, t.Use = values, p.now, t.MS.Mean, band{}, band{}
		t.InForce, t.Helped = false, false
	}
}

// rise returns how many times its usual mean a mean is, from 1 to maxRise.
func rise(now, usual band) float64 {
	if now.N == 0 || usual.N == 0 || usual.Mean <= 0 {
		return 1
	}
	return math.Min(math.Max(now.Mean/usual.Mean, 1), maxRise)
}

// undo orders the values of before.
func (p *plan) undo(m *policy.Member, why string) {
	t := &memoryOf(m).Tuned
	values := make(map[string]tunedValue, len(t.Values))
	for name, v := range t.Values {
		values[name] = tunedValue{Original: v.Original, Value: v.Original, Changed: v.Value}
	}
	t.Values, t.At, t.Undoing, t.MS, t.Use = values, p.now, true, band{}, band{}
	p.reason("setting", m.ID, "%s: its server's parameters go back to their values of before", why)
}

// heed forgets parameters that somebody else set, and those that are back: each by itself, so that none waits for another. Values of before
// that are not in force yet are waited for, because the agent may be away, or the operator may have paused Quell. An agent that refuses one
// for ever would keep the instance's parameters from following at all, so after a day it is given up.
func (p *plan) heed(m *policy.Member) {
	t := &memoryOf(m).Tuned
	left := make(map[string]tunedValue, len(t.Values))
	for _, name := range slices.Sorted(maps.Keys(t.Values)) {
		v := t.Values[name]
		inForce, reported := m.Settings[name]
		switch {
		case !reported || v.is(inForce, t.Undoing):
			v.Foreign = 0
		case p.facts(m).judged:
			v.Foreign++
		}
		switch {
		case v.Foreign >= foreign:
			t.Worse = true
			p.reason("setting", m.ID, "somebody else set %s to %g: that value stays", name, inForce)
		case t.Undoing && reported && isValue(inForce, v.Original):
		case t.Undoing && p.now.Sub(t.At) >= givenUp:
			p.reason("setting", m.ID, "%s is not back after a day: it is left as it is", name)
		default:
			left[name] = v
		}
	}
	t.Values, t.Undoing = left, t.Undoing && len(left) > 0
}

// is returns whether orders explain a reported value. While a parameter goes back, the changed value may still be in force.
func (v tunedValue) is(reported float64, undoing bool) bool {
	return isValue(reported, v.Original) || isValue(reported, v.Value) || undoing && isValue(reported, v.Changed)
}

// isValue returns whether a reported value is a certain one. It may be rounded.
func isValue(reported, value float64) bool { return math.Abs(reported-value) <= 1e-6*math.Abs(value) }

// ChangedSettings returns the parameters of the instance's server that are changed, by name.
func (mem *instance) ChangedSettings() map[string]policy.ChangedSetting {
	changed := map[string]policy.ChangedSetting{}
	for name, v := range mem.Tuned.Values {
		changed[name] = policy.ChangedSetting{Before: v.Original, Ours: []float64{v.Value, v.Changed}}
	}
	return changed
}

// order puts the values that are to be in force into the plan, also those of parameters that the configuration no longer has. While a value
// may be somebody else's, nothing is ordered, or it would be replaced before that is sure.
func (p *plan) order(m *policy.Member) {
	values := memoryOf(m).Tuned.Values
	for _, full := range slices.Sorted(maps.Keys(values)) {
		if values[full].Foreign > 0 {
			continue
		}
		target, name, _ := strings.Cut(full, ".")
		p.plan.Settings = append(p.plan.Settings, quell.Setting{Instance: m.ID, Target: target, Name: name, Value: values[full].Value})
	}
}
