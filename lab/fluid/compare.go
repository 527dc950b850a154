package fluid

import "math"

// Outcome is the mean of several plays.
type Outcome struct {
	Missed float64 `json:"missed"` // part of the time
	First  float64 `json:"first"`  // of the first hour
	Size   float64 `json:"size"`   // mean number of instances
}

// Comparison is a world under one target.
type Comparison struct {
	World      string             `json:"world"`
	StartupS   float64            `json:"startup_s"`
	Allowed    float64            `json:"allowed"`
	Rules      map[string]Outcome `json:"rules"`
	Held       map[string]Outcome `json:"held"` // Quell's rule, with surplus instances kept for multiples of the start-up time
	Headroom   float64            `json:"headroom"`
	Fixed      *Outcome           `json:"fixed"` // the cheapest fixed headroom that keeps the target; nil: none does
	Target     float64            `json:"target"`
	Autoscaler *Outcome           `json:"autoscaler"` // the cheapest target of an autoscaler that does
}

const hour = 3600

// played is a world's courses, by seed.
type played struct {
	world   World
	courses []Course
}

// run plays every course, and returns the means.
func (p *played) run(decider func() Decider) (o Outcome) {
	n := float64(len(p.courses))
	for seed, c := range p.courses {
		r := p.world.Run(c, decider(), uint64(seed+1))
		o.Missed += part(r.Missed) / n
		o.First += part(r.Missed[:min(hour, len(r.Missed))]) / n
		o.Size += r.Cost / float64(len(r.Missed)) / n
	}
	return o
}

func part(missed []bool) float64 {
	n := 0
	for _, m := range missed {
		if m {
			n++
		}
	}
	return float64(n) / float64(len(missed))
}

// holds are multiples of the start-up time for which a surplus instance is kept.
var holds = map[string]int{"one": 1, "two": 2}

// Compare plays a world for some seconds and seeds under each allowed part.
func Compare(w World, allowed []float64, seconds, seeds int) (list []Comparison) {
	p := &played{world: w}
	for seed := range seeds {
		p.courses = append(p.courses, w.Play(seconds, uint64(seed+1)))
	}
	fixed, scaled := p.fixed(), p.scaled()
	for _, b := range allowed {
		c := Comparison{World: w.Name, StartupS: w.Startup.Seconds(), Allowed: b, Rules: map[string]Outcome{}, Held: map[string]Outcome{}}
		for _, r := range Rules() {
			c.Rules[r.Name] = p.run(func() Decider { return Keep(r.New(b, w.Startup), 0) })
		}
		for name, times := range holds {
			c.Held[name] = p.run(func() Decider { return Keep(found(b, w.Startup), times*int(w.Startup.Seconds())) })
		}
		c.Headroom, c.Fixed = cheapest(fixed, b)
		c.Target, c.Autoscaler = cheapest(scaled, b)
		list = append(list, c)
	}
	return list
}

// tried is a setting and how it went.
type tried struct {
	setting float64
	Outcome
}

// fixed tries headrooms from all of the capacity to half of it.
func (p *played) fixed() (list []tried) {
	for h := 100; h >= 50; h -= 2 {
		list = append(list, tried{float64(h) / 100, p.run(func() Decider { return Keep(Fixed(float64(h)/100), 0) })})
	}
	return list
}

// scaled tries an autoscaler's targets, each with three lengths of stabilisation in seconds.
func (p *played) scaled() (list []tried) {
	for u := 100; u >= 40; u -= 3 {
		for _, stabilised := range []int{0, 60, 300} {
			list = append(list, tried{float64(u) / 100, p.run(func() Decider { return Autoscale(float64(u)/100, stabilised) })})
		}
	}
	return list
}

// cheapest returns the setting with the smallest group that missed no more than what is allowed; nil if none did.
func cheapest(list []tried, allowed float64) (setting float64, best *Outcome) {
	size := math.Inf(1)
	for i := range list {
		if t := &list[i]; t.Missed <= allowed && t.Size < size {
			setting, best, size = t.setting, &t.Outcome, t.Size
		}
	}
	return setting, best
}
