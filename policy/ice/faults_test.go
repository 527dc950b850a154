package ice

import (
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy/bands"
)

// A detector whose signals are missing finds no neighbours, whatever most of its training showed.
func TestICETrainedWithoutAgents(t *testing.T) {
	models := detector(t)
	models.ICE().Classifier.Above.Count = 1000
	s := newShop(t, 3, models, func(*Settings) {})
	s.seconds(10)
	s.servers[1].blind = true
	if seconds, plan := s.until(60); seconds > 0 {
		t.Errorf("after %d s without an agent: %v, %v", seconds, plan.Factor, plan.Reasons)
	}
}

// A few failed requests hide no response times that are out of their band.
func TestICENoticesSlownessBesideErrors(t *testing.T) {
	s := newShop(t, 3, nil, func(*Settings) {})
	for i := range s.servers {
		s.servers[i].blind = true
	}
	s.seconds(2 * bands.Known)
	s.servers[1].ms, s.servers[1].errors = 400, 0.01
	seconds, plan := s.until(5)
	if seconds == 0 || len(plan.Factor) != 1 || plan.Factor["i2"].Value >= 1 {
		t.Errorf("after %d s: %v, %v", seconds, plan.Factor, plan.Reasons)
	}
}

// Windows that only tell that an instance is slow do not change what others told of its use.
func TestICESlowWindowsTellNoUse(t *testing.T) {
	p, mem := &plan{now: start}, &instance{}
	busy := sign{own: 0.5, hidden: 0.35, rate: 90, resource: quell.CPU}
	slow := sign{left: 0.3}
	for _, s := range []sign{slow, busy, slow, slow, busy} {
		p.notice(mem, s, true)
	}
	if mem.Seen.N != 2 || mem.Seen.Own != 0.5 || math.Abs(mem.Seen.Hidden-0.35) > 1e-12 || mem.Cause != quell.CPU || mem.Out != 5 {
		t.Errorf("%+v because of %q after %d windows", mem.Seen, mem.Cause, mem.Out)
	}
	p.notice(mem, sign{own: 0.1, hidden: 0.8, resource: quell.Network}, true)
	if mem.Seen.N != 1 || mem.Seen.Own != 0.1 || mem.Cause != quell.Network {
		t.Errorf("another resource: %+v because of %q", mem.Seen, mem.Cause)
	}
	p.notice(mem, sign{}, false)
	if p.notice(mem, slow, true); mem.Seen.N != 0 || mem.Cause != "" {
		t.Errorf("the next interference: %+v because of %q", mem.Seen, mem.Cause)
	}
}

// If the clock goes back by an hour, ice goes on: neighbours are noticed, and cuts end.
func TestICEAfterTheClockWentBack(t *testing.T) {
	s := newShop(t, 3, nil, tuned)
	s.seconds(2 * bands.Known)
	s.servers[1].hidden = 0.6
	s.seconds(25)
	s.now = s.now.Add(-time.Hour)
	s.seconds(5)
	s.servers[1].hidden = 0
	if plan := s.seconds(60); len(plan.Factor) > 0 || len(plan.Settings) > 0 || s.settings["i2"]["apache.MaxRequestWorkers"] != 200 {
		t.Errorf("a minute after the interference: %v, %v, %v", plan.Factor, s.settings["i2"], plan.Reasons)
	}
	s.now = s.now.Add(-time.Hour)
	s.servers[1].hidden = 0.6
	if seconds, plan := s.until(5); seconds == 0 {
		t.Errorf("the next interference is not noticed: %v", plan.Reasons)
	}
}

// A parameter outside its bounds is not changed against its direction, and one that was outside comes back.
func TestICEParametersOutsideTheirBounds(t *testing.T) {
	s := newShop(t, 3, nil, tuned)
	s.settings["i2"] = map[string]float64{"apache.MaxRequestWorkers": 40, "apache.KeepAliveTimeout": 30}
	s.seconds(2 * bands.Known)
	s.servers[1].hidden, s.servers[1].ms = 0.6, 45
	if plan := s.seconds(30); len(plan.Settings) > 0 {
		t.Errorf("out of bounds already: %v", plan.Settings)
	}
	s.servers[1].hidden, s.servers[1].ms = 0, 20
	s.seconds(60)
	s.settings["i2"] = map[string]float64{"apache.MaxRequestWorkers": 600}
	s.servers[1].hidden = 0.6
	s.seconds(25)
	if got := s.settings["i2"]["apache.MaxRequestWorkers"]; got > 400 || got < 50 {
		t.Errorf("%v workers", got)
	}
	s.servers[1].hidden = 0
	s.seconds(60)
	if got := s.settings["i2"]["apache.MaxRequestWorkers"]; got != 600 {
		t.Errorf("%v workers after the interference", got)
	}
}

// Bounds that are no whole numbers hold, too. Only a bound gives a value that is not whole.
func TestICEBoundsThatAreNotWhole(t *testing.T) {
	s := newShop(t, 3, nil, func(set *Settings) {
		set.Parameters = ParametersOf([]Parameter{{"web.timeout", Lower, 0.1, 1}, {"web.pool", Raise, 0, 2.6}, {"web.part", Raise, 0.2, 0.8},
			{"web.threads", Lower, 1.5, 20}})
	})
	s.settings["i2"] = map[string]float64{"web.timeout": 0.8, "web.pool": 2, "web.part": 0.3, "web.threads": 9}
	s.seconds(2 * bands.Known)
	s.servers[1].hidden, s.servers[1].ms = 0.6, 60
	s.seconds(30)
	got := s.settings["i2"]
	for name, want := range map[string]float64{"web.timeout": 0.1, "web.pool": 2.6, "web.part": 0.8, "web.threads": 3} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

// If no response times were known when parameters changed, later ones do not undo the change.
func TestICEMedianUnknownBefore(t *testing.T) {
	s := newShop(t, 3, nil, tuned)
	eachOf(s.servers, func(v *served) { v.ms = 0 })
	s.seconds(2 * bands.Known)
	s.servers[1].hidden = 0.6
	s.seconds(25)
	changed := s.settings["i2"]["apache.MaxRequestWorkers"]
	eachOf(s.servers, func(v *served) { v.ms = 20 })
	if s.seconds(30); changed == 200 || s.settings["i2"]["apache.MaxRequestWorkers"] != changed {
		t.Errorf("%v workers, later %v", changed, s.settings["i2"]["apache.MaxRequestWorkers"])
	}
}

// A parameter that is 0 cannot be lowered or raised in proportion, and nothing is ordered.
func TestICEParametersOfNothing(t *testing.T) {
	s := newShop(t, 3, nil, func(set *Settings) {
		set.Parameters = ParametersOf([]Parameter{{"apache.MaxRequestWorkers", Lower, 0, 400}, {"apache.KeepAliveTimeout", Raise, 0, 15}})
	})
	s.settings["i2"] = map[string]float64{"apache.MaxRequestWorkers": 0, "apache.KeepAliveTimeout": 0}
	s.seconds(2 * bands.Known)
	s.servers[1].hidden, s.servers[1].ms = 0.6, 45
	for range 40 {
		if plan := s.second(); len(plan.Settings) > 0 {
			t.Fatalf("%v: %v", plan.Settings, plan.Reasons)
		}
	}
}

// A short interference changes no parameters, even if its cut stays for longer.
func TestICEParametersWaitForLastingInterference(t *testing.T) {
	s := newShop(t, 3, nil, func(set *Settings) { tuned(set); set.Calm = time.Minute })
	s.seconds(2 * bands.Known)
	s.servers[1].hidden, s.servers[1].ms = 0.6, 45
	s.seconds(3)
	s.servers[1].hidden, s.servers[1].ms = 0, 20
	for range 50 {
		if plan := s.second(); len(plan.Settings) > 0 {
			t.Fatalf("%v: %v", plan.Settings, plan.Reasons)
		}
	}
}

// Values of before are ordered until they are in force, also after a long pause, unless somebody else sets the parameter.
func TestICEValuesOfBeforeAreNotForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(values map[string]float64)
		want      float64
	}{
		"paused":               {func(map[string]float64) {}, 200},
		"the agent is away":    {func(values map[string]float64) { delete(values, "apache.MaxRequestWorkers") }, 200},
		"somebody else set it": {func(values map[string]float64) { values["apache.MaxRequestWorkers"] = 150 }, 150},
	} {
		s := newShop(t, 3, nil, tuned)
		s.seconds(2 * bands.Known)
		s.servers[1].hidden = 0.6
		s.seconds(25)
		changed := s.settings["i2"]["apache.MaxRequestWorkers"]
		s.paused = true
		s.servers[1].hidden = 0
		c.meanwhile(s.settings["i2"])
		s.seconds(600)
		s.paused = false
		if _, away := s.settings["i2"]["apache.MaxRequestWorkers"]; !away {
			s.settings["i2"]["apache.MaxRequestWorkers"] = changed
		}
		if s.seconds(3); changed == 200 || s.settings["i2"]["apache.MaxRequestWorkers"] != c.want {
			t.Errorf("%s: %v workers after %v, want %v", name, s.settings["i2"]["apache.MaxRequestWorkers"], changed, c.want)
		}
		if plan := s.second(); len(plan.Settings) > 0 {
			t.Errorf("%s: still ordered: %v", name, plan.Settings)
		}
	}
}
