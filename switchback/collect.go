package switchback

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Collector estimates from snapshots in order of time. If there are several comparisons, the last one counts.
type Collector struct {
	o     Options
	began time.Time
	last  *quell.Turn // in force since the last snapshot
	at    time.Time   // of the last snapshot
	done  tally       // of the blocks before the present one
	block int         // the number of the present block
	turns [2]turn     // of it
}

// turn is what was measured in a turn.
type turn struct {
	begun   bool
	back    bool
	periods []period // that are used
}

// period is a sampling period.
type period struct {
	seconds  float64
	readings map[string]reading // by instance
}

// reading is the metric of an instance's requests.
type reading struct{ n, ms float64 }

// tally sums up blocks.
type tally struct {
	turns   int
	acting  Arm
	back    Arm
	seconds []float64 // by block: what acting saves, in seconds above the objective in an hour
	shares  []float64 // and as a share of the requests
	thin    int       // whole blocks in which no instance had enough requests
	most    float64   // the most requests that an instance had in a period of these, as a mean
}

// Collect returns an empty collector.
func Collect(o Options) *Collector { return &Collector{o: o} }

// Add enters a snapshot. Its observations are of the period before it, so they belong to the turn of the snapshot before it.
func (c *Collector) Add(s *quell.Snapshot) {
	now, seconds := c.last, s.At.Sub(c.at).Seconds()
	c.last, c.at = s.Turn, s.At
	if s.Turn != nil && !s.Turn.Began.Equal(c.began) {
		*c = Collector{o: c.o, began: s.Turn.Began, last: c.last, at: c.at}
	}
	if now == nil || !now.Began.Equal(c.began) || seconds <= 0 || seconds > gap*c.o.Sampling.Seconds() || now.Number/2 < c.block {
		return
	}
	if block := now.Number / 2; block > c.block {
		c.done = c.done.with(c.o, c.turns)
		c.block, c.turns = block, [2]turn{}
	}
	t := &c.turns[now.Number%2]
	t.begun, t.back = true, now.Back
	if now.AgeS >= c.o.CarryS {
		t.periods = append(t.periods, period{seconds, c.readings(s)})
	}
}

func (c *Collector) readings(s *quell.Snapshot) map[string]reading {
	all := map[string]reading{}
	for i := range s.Instances {
		o := s.Instances[i].Observation
		if o == nil || o.LatencyMS == nil || o.LatencyMS.N <= 0 {
			continue
		}
		if ms, known := o.LatencyMS.Of(c.o.SLO.Metric); known {
			all[s.Instances[i].ID] = reading{float64(o.LatencyMS.N), ms}
		}
	}
	return all
}

// with returns the tally with a block added. One that is not whole is left out: its second turn has only begun, or a turn was interrupted.
func (t tally) with(o Options, turns [2]turn) tally {
	for i := range turns {
		if turns[i].begun {
			t.turns++
		}
	}
	acting, back := &turns[0], &turns[1]
	if acting.back {
		acting, back = back, acting
	}
	shorter, longer := len(acting.periods), len(back.periods)
	if shorter > longer {
		shorter, longer = longer, shorter
	}
	if shorter == 0 || 2*shorter < longer || acting.back == back.back {
		return t
	}
	judged, most := busy(turns)
	if len(judged) == 0 {
		t.thin, t.most = t.thin+1, max(t.most, most)
		return t
	}
	one, two := acting.judge(o, judged), back.judge(o, judged)
	if one.Requests == 0 || two.Requests == 0 {
		t.thin++
		return t
	}
	t.acting.add(&one)
	t.back.add(&two)
	t.seconds = append(slices.Clip(t.seconds), 3600*(two.MissedS/two.Seconds-one.MissedS/one.Seconds))
	t.shares = append(slices.Clip(t.shares), two.Over/two.Requests-one.Over/one.Requests)
	return t
}

// busy lists the instances that have enough requests in both turns of a block together. So the same instances are judged in both, although
// acting takes requests from some of them. It also returns the most requests that an instance had in a period, as a mean.
func busy(turns [2]turn) (ids []string, most float64) {
	sums := map[string]float64{}
	periods := float64(len(turns[0].periods) + len(turns[1].periods))
	for i := range turns {
		for _, p := range turns[i].periods {
			for id, r := range p.readings {
				sums[id] += r.n
			}
		}
	}
	for id, sum := range sums {
		if most = max(most, sum/periods); sum >= leastRequests*periods {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, most
}

// judge counts a turn: what these instances did.
func (t *turn) judge(o Options, ids []string) (a Arm) {
	missed := make([]bool, len(t.periods))
	for _, id := range ids {
		for _, p := range t.pools(id) {
			a.Requests += p.n
			if p.ms <= o.SLO.ThresholdMS() {
				continue
			}
			a.Over += p.n
			for _, k := range p.periods {
				missed[k] = true
			}
		}
	}
	for k, p := range t.periods {
		if len(p.readings) > 0 {
			a.Seconds += p.seconds
		}
		if missed[k] {
			a.MissedS += p.seconds
		}
	}
	return a
}

// pool is one or several periods of an instance that are judged together.
type pool struct {
	reading
	periods []int
}

// pools joins an instance's periods until they have enough requests to judge. The metric is the mean of theirs, by requests; for a
// percentile that is nearly the one of all. An instance that has fewer requests than that in a whole turn is not judged there.
func (t *turn) pools(id string) (all []pool) {
	var p pool
	for k := range t.periods {
		r, ok := t.periods[k].readings[id]
		if !ok {
			continue
		}
		p.join(pool{r, []int{k}})
		if p.n >= leastRequests {
			all, p = append(all, p), pool{}
		}
	}
	if len(all) > 0 && p.n > 0 {
		all[len(all)-1].join(p)
	}
	return all
}

func (p *pool) join(q pool) {
	p.ms = (p.ms*p.n + q.ms*q.n) / (p.n + q.n)
	p.n, p.periods = p.n+q.n, append(p.periods, q.periods...)
}
