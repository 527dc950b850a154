package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Waited holds how long tasks ran and waited for a processor, in seconds, and for whom they waited.
type Waited struct {
	Run        float64 `json:"run_s"`
	Own        float64 `json:"own_s"`
	Quota      float64 `json:"quota_s"`
	Neighbours float64 `json:"neighbours_s"`
	Hypervisor float64 `json:"hypervisor_s"`
	Blind      bool    `json:"blind,omitempty"` // at the last reading the kernel did not report how long tasks waited
}

func (w Waited) Times(x float64) Waited {
	w.Run, w.Own, w.Quota, w.Neighbours, w.Hypervisor = x*w.Run, x*w.Own, x*w.Quota, x*w.Neighbours, x*w.Hypervisor
	return w
}

func (w Waited) Plus(v Waited) Waited {
	w.Run, w.Own, w.Quota = w.Run+v.Run, w.Own+v.Own, w.Quota+v.Quota
	w.Neighbours, w.Hypervisor, w.Blind = w.Neighbours+v.Neighbours, w.Hypervisor+v.Hypervisor, v.Blind
	return w
}

// Sum is the whole waiting time.
func (w Waited) Sum() float64 { return w.Own + w.Quota + w.Neighbours + w.Hypervisor }

// Wanted is the time in which tasks ran or wanted to run.
func (w Waited) Wanted() float64 { return w.Run + w.Sum() }

// causes lists the causes of waiting. Of equal parts the first one counts as the largest.
var causes = []string{quell.QuotaCause, quell.NeighboursCause, quell.OwnCause, quell.HypervisorCause}

// Of returns the part of the waiting time that has a cause.
func (w Waited) Of(cause string) float64 {
	switch cause {
	case quell.OwnCause:
		return w.Own
	case quell.QuotaCause:
		return w.Quota
	case quell.NeighboursCause:
		return w.Neighbours
	case quell.HypervisorCause:
		return w.Hypervisor
	}
	return 0
}

// Largest returns the cause with the largest part.
func (w Waited) Largest() string {
	return slices.MaxFunc(causes, func(a, b string) int { return cmp.Compare(w.Of(a), w.Of(b)) })
}

// Shares returns the parts as fractions of the time in which tasks wanted to run, which must not be 0.
func (w Waited) Shares() quell.Waits {
	share := func(seconds float64) *float64 { seconds /= w.Wanted(); return &seconds }
	told := quell.Waits{Quota: share(w.Quota), Hypervisor: share(w.Hypervisor)}
	if !w.Blind {
		told.Share, told.Own, told.Neighbours = share(w.Sum()), share(w.Own), share(w.Neighbours)
	}
	return told
}

// MachineShare is what a machine's processors did in a window, in seconds.
type MachineShare struct {
	Run    float64 // user and system time of all processes
	Stolen float64 // taken by the hypervisor while something wanted to run
}

// Split divides a group's waiting time among its causes. First it subtracts the time for which a quota stopped the group, at most the whole
// waiting time. Of the remainder, the hypervisor's part is its share of the busy time. The rest is divided between the group's other tasks
// and its neighbours in proportion to the processor time that they got.
func (m MachineShare) Split(obs *quell.Observation) Waited {
	sched := obs.Sched
	m.Run = max(m.Run, sched.RunS) // the machine's clock ticks are coarser than a group's account
	w := Waited{Run: sched.RunS}
	if m.Run > 0 {
		w.Hypervisor = m.Stolen * sched.RunS / m.Run // its share of what was stolen from running tasks
	}
	quota := 0.0
	if sched.ThrottledS != nil {
		quota = *sched.ThrottledS
	}
	wait, ownShare, ok := model.Waiting(obs, m.Run)
	if !ok {
		w.Quota, w.Blind = quota, true
		return w
	}
	w.Quota = min(wait, quota)
	wait -= w.Quota
	if busy := m.Run + m.Stolen; busy > 0 {
		stolen := wait * m.Stolen / busy
		w.Hypervisor += stolen
		wait = max(0, wait-stolen) // rounding may take a little more than there is
	}
	w.Own = wait * ownShare
	w.Neighbours = wait - w.Own
	return w
}

// UsualWaits is what an instance usually waits for: the means of its shares over windows in which nobody but itself made it wait long.
type UsualWaits struct {
	N          int     `json:"n"` // windows, up to LongestMean
	Own        float64 `json:"own"`
	Quota      float64 `json:"quota"`
	Neighbours float64 `json:"neighbours"`
	Hypervisor float64 `json:"hypervisor"`
}

// of returns the usual share of a cause, and whether it is known.
func (u *UsualWaits) of(cause string) (share float64, known bool) {
	if u == nil || u.N < KnownMean {
		return 0, false
	}
	return Waited{Own: u.Own, Quota: u.Quota, Neighbours: u.Neighbours, Hypervisor: u.Hypervisor}.Of(cause), true
}

// with returns the means after one more window.
func (u *UsualWaits) with(w Waited) *UsualWaits {
	next := UsualWaits{}
	if u != nil {
		next = *u
	}
	next.N = min(next.N+1, LongestMean)
	gain, all := 1/float64(next.N), w.Wanted()
	next.Own += gain * (w.Own/all - next.Own)
	next.Quota += gain * (w.Quota/all - next.Quota)
	next.Neighbours += gain * (w.Neighbours/all - next.Neighbours)
	next.Hypervisor += gain * (w.Hypervisor/all - next.Hypervisor)
	return &next
}

const (
	// longWait is the least share of the time in which an instance wants to run that a cause of waiting must take to be named.
	longWait = 0.1
	// moreThanUsual is how many times its usual share a cause must reach to be named.
	moreThanUsual = 2
)

// MinUse is how many processors a group must want, on average over the window, before its waiting is reported. In an idle group, the
// sums of waiting and running decay at the same rate, so their ratio would never change.
const MinUse = 0.01

// Origin says for whom an instance waits for processors, without any training: its own load, its own quota, neighbours or the hypervisor.
// It needs Sched, and a waiting time or pressure. It returns false if these are missing or the instance was idle. usual may be nil.
//
// The whole machine's use is not visible to a tenant, so it is inferred from the instance's waiting: see model.BusyFor. On a machine of its
// own, an instance has no neighbours on the machine, and everything that the hypervisor did not take is its own load.
func Origin(o *quell.Observation, usual *UsualWaits) (quell.Waits, bool) {
	w, hidden, ok := origin(o)
	if !ok {
		return quell.Waits{}, false
	}
	return w.told(hidden, usual), true
}

// told returns the shares of the waiting, with the largest cause if it is named.
func (w Waited) told(hidden *float64, usual *UsualWaits) quell.Waits {
	told := w.Shares()
	told.Hidden = hidden
	if top := w.Largest(); w.Of(top) >= longWait*w.Wanted() {
		if share, known := usual.of(top); !known || w.Of(top) >= moreThanUsual*share*w.Wanted() {
			told.Cause = top
		}
	}
	return told
}

// origin divides an instance's waiting. hidden is the neighbours' use of its processors, a fraction of them; nil if it is not known.
func origin(o *quell.Observation) (w Waited, hidden *float64, ok bool) {
	if o == nil || o.Sched == nil || o.Sched.Cores <= 0 || o.WindowS <= 0 {
		return Waited{}, nil, false
	}
	whole, sched := o.Sched.Cores*o.WindowS, *o.Sched
	machine := MachineShare{Run: sched.RunS}
	if o.CPU != nil {
		machine.Stolen = o.CPU.Steal * whole
	}
	own := *o
	own.Sched = &sched
	if others, told := model.NeighboursUse(o); told {
		sched.ThrottledS = new(model.StoppedFor(&sched))
		machine.Run += others * whole
		hidden = &others
	}
	w = machine.Split(&own)
	return w, hidden, w.Wanted() > 0 && w.Wanted() >= MinUse*o.WindowS
}

// noteOrigins reports the instances that wait long for others, and learns what the rest usually waits for. It returns the usual waits by
// instance.
func noteOrigins(g *Group, before map[string]*UsualWaits, plan *quell.Plan) (usual map[string]*UsualWaits) {
	keep := func(id string, u *UsualWaits) {
		quell.Put(&usual, id, u)
	}
	for i := range g.Members {
		m := &g.Members[i]
		was := before[m.ID]
		if was != nil {
			keep(m.ID, was)
		}
		if !m.Fresh {
			continue
		}
		w, hidden, ok := origin(m.Observation)
		if !ok {
			continue
		}
		told := w.told(hidden, was)
		if told.Cause == "" || told.Cause == quell.OwnCause {
			if was != nil || w.Sum() > w.Own { // waiting for itself alone is not worth remembering
				keep(m.ID, was.with(w))
			}
			continue
		}
		m.blameWaits(told, was, plan)
	}
	return usual
}

// blameWaits reports for whom an instance waits.
func (m *Member) blameWaits(told quell.Waits, usual *UsualWaits, plan *quell.Plan) {
	quell.Put(&plan.Waits, m.ID, told)
	if told.Cause != quell.QuotaCause && plan.Cause[m.ID] == "" {
		quell.Put(&plan.Cause, m.ID, quell.CPU)
	}
	more := ""
	if share, known := usual.of(told.Cause); known {
		more = fmt.Sprintf("; usually %.1f%% for the first of these", 100*share)
	}
	if told.Hidden != nil && *told.Hidden > 0 {
		more += fmt.Sprintf("; neighbours use about %.2f of its processors", *told.Hidden)
	}
	AddReason(plan, "waits_"+told.Cause, m.ID, "its tasks waited in the time they wanted to run: %s%s", told.Parts(), more)
}

const (
	// LongestMean is the largest number of readings in a usual capacity, so that it follows slow changes.
	LongestMean = 60
	// KnownMean is the smallest number of readings whose mean is better than the newest reading alone.
	KnownMean = 5
)
