package prima

import (
	"fmt"
	"math"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/budget"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
)

// With an error budget, and unless a person sets the headroom, PRIMA finds how much of the capacity must stay free so that about as much is
// missed as the budget allows (package budget). Instances in addition (spare) and further margins then stay at their defaults: in the
// simulator nothing that they add was better than the right headroom.

// defaultHeadroom is the headroom without an error budget.
const defaultHeadroom = 0.9

// parseHeadroom reads a headroom; 0 stands for auto.
func parseHeadroom(text string) (float64, error) {
	if text == policy.AutoWord {
		return 0, nil
	}
	v, err := setting.ParseShare(text)
	if err != nil || !(v > 0 && v <= 1) {
		return 0, fmt.Errorf("%q is neither %s nor a share above 0%% and up to 100%%", text, policy.AutoWord)
	}
	return v, nil
}

func headroomText(v float64) string {
	if v == 0 {
		return policy.AutoWord
	}
	return setting.FormatShare(v)
}

// found sets the headroom of a service if no person did: with an error budget it is found.
func (s Settings) found(slo quell.SLO) Settings {
	if s.Headroom == 0 {
		s.Headroom, s.finds = defaultHeadroom, slo.Target > 0
	}
	return s
}

// reserve is what PRIMA remembers of the reserve for an error budget.
type reserve struct {
	Found  *budget.Reserve `json:"found,omitempty"` // never changed in place
	Excess float64         `json:"excess,omitempty"`
	Full   bool            `json:"full,omitempty"` // the group was as large as it may be, and too small
	Told   float64         `json:"told,omitempty"` // the reserve that was said last
	Why    string          `json:"why,omitempty"`
	budget.Reach
}

// tellReserve is the least change of the reserve that is told.
const tellReserve = 0.02

// followReserve counts the newest period, and sets the headroom that was found.
func (p *plan) followReserve() {
	if !p.set.finds {
		return
	}
	r, service := &p.mem.Reserve, p.in.Service
	slo := service.SLO
	aim := budget.Aim{Allowed: 1 - slo.Target, Startup: untilReady(p.in)}
	var found budget.Reserve
	if r.Found != nil {
		found = *r.Found
	}
	why := ""
	v := budget.Judge(service, p.in.Snapshot)
	missed, seconds := v.Missed(slo.Of), service.Sampling.Seconds()
	p.followReach(&v, seconds)
	if v.Judged {
		if why = p.excluded(&v); why == "" {
			var told string
			found, told = found.Follow(aim, budget.Lesson{Seconds: seconds, Missed: missed, Excess: r.Excess})
			if told != "" {
				p.reason("reserve", "", "%s", told)
			}
			r.Found = &found
		}
	}
	share := found.Share(aim)
	p.set.Headroom = 1 - share
	if math.Abs(share-r.Told) >= tellReserve {
		r.Why = p.whyReserve(&found, aim)
		p.reason("reserve", "", "%.0f%% of the capacity stays free, before it was %.0f%%: %s", 100*share, 100*r.Told, r.Why)
		r.Told = share
	}
	p.plan.Reserve = &quell.Reserve{Share: share, Why: r.Why, OutOfReach: r.Out}
}

// whyReserve says what a reserve comes from.
func (p *plan) whyReserve(r *budget.Reserve, aim budget.Aim) string {
	if r.Judged == 0 {
		return fmt.Sprintf("what is usual where an instance takes %s to start, until the service shows what it needs",
			setting.FormatDuration(aim.Startup.Round(time.Second)))
	}
	return fmt.Sprintf("in %s that taught, %.2f%% was missed, and %.2f%% may be; how far load and neighbours rise while an instance starts "+
		"asks for %.0f%%, and what was really missed changes that by %+.0f points", setting.FormatDuration(time.Duration(r.Judged)*time.Second),
		100*r.Missed/r.Judged, 100*aim.Allowed, 100*r.Asked(aim), 100*(r.Share(aim)-r.Asked(aim)))
}

// excluded returns why a period teaches nothing about the reserve; "" if it does.
func (p *plan) excluded(v *budget.Verdict) string {
	switch {
	case p.in.Snapshot.Excluded != "":
		return p.in.Snapshot.Excluded
	case v.Down:
		return "no instance is ready"
	case p.mem.Reserve.Full:
		return "the group is as large as it may be"
	case p.group.HandingOver:
		return "another policy's shares are in force"
	}
	for i := range p.group.Members {
		switch m := &p.group.Members[i]; {
		case m.Held != nil:
			return "a person took " + m.ID + " out"
		case m.Override != nil:
			return "a person set the share of " + m.ID
		case m.Failing || m.State == quell.Failed:
			return m.ID + " fails"
		case m.Replaces != "":
			return m.ID + " is to replace another one"
		case m.State == quell.Ready && !m.Fresh:
			return m.ID + " does not report"
		}
	}
	return ""
}

// followReach counts how a group that is as large as it may be misses its objective, and says once if the target is out of its reach.
func (p *plan) followReach(v *budget.Verdict, seconds float64) {
	r, service := &p.mem.Reserve, p.in.Service
	most, said, begun := service.Group.Max, r.Out, false
	if service.Group.Fixed { // then the largest size is the present one, and an instance that fails changes nothing
		most = max(most, r.Most)
	}
	if r.Reach, begun = r.For(service.SLO, most); begun && said != "" {
		p.reason("reserve", "", "group.max or the objective has changed: whether the target is within reach is found anew")
	}
	if !v.Judged || !r.Follow(v, service.SLO, seconds, r.Full && !begun && p.in.Snapshot.Excluded == "") {
		return
	}
	if r.Out != "" {
		p.reason("out_of_reach", "", "%s", r.Out)
	} else {
		p.reason("reserve", "", "the target is within reach again")
	}
}

// noteRoom keeps for the next period how far the load is above what this decision makes room for. See surplus for when that says nothing.
func (p *plan) noteRoom() {
	if !p.set.finds {
		return
	}
	r := &p.mem.Reserve
	r.Excess, r.Full = 0, false
	if len(p.sorted) == 0 {
		return
	}
	if room := p.set.Headroom * countable(p.sorted); room > 0 {
		r.Excess = p.group.Due / room
	}
	short := p.needed > len(p.sorted)
	r.Full = short && len(p.group.Ready)+p.group.Starting >= p.group.MaxSize(p.in)
	if r.Full {
		r.Lacked = max(r.Lacked, p.lacking())
		if fresh := p.set.Headroom * p.freshCapacity; fresh > 0 {
			lacking := (p.group.Due - p.set.Headroom*countable(p.sorted)) / fresh
			r.Lacked = max(r.Lacked, int(math.Min(math.Ceil(lacking), 1e6)))
		}
	}
}
