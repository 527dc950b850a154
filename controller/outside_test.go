package controller

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// outsiders are three instances, of which a balancer reports, and agents if they run.
type outsiders struct {
	*rig
	log     bytes.Buffer
	connect map[string]float64 // milliseconds; 0: the log does not tell
	agents  map[string]bool
	mute    bool // no balancer reports
}

func fromOutside(t *testing.T, change func(*rig), body func(o *outsiders)) {
	o := &outsiders{connect: map[string]float64{"i1": 0.31, "i2": 0.33, "i3": 0.29}, agents: map[string]bool{}}
	play(t, func(r *rig) {
		r.opts.Service.Group.Initial, r.opts.Service.Group.Min = 3, 3
		r.opts.Logger = slog.New(slog.NewTextHandler(&o.log, nil))
		if change != nil {
			change(r)
		}
	}, func(r *rig) {
		o.rig = r
		body(o)
	})
}

// periods plays periods, and returns the texts of the reason no_agent in the last one.
func (o *outsiders) periods(n int) string {
	o.t.Helper()
	for range n {
		for id, ms := range o.connect {
			if !o.mute {
				reading := balancerReading(o.t, id, "east", slices.Repeat([]float64{20}, 40)...)
				if ms > 0 {
					reading.Observation.TCP = map[string]float64{"connect_ms_p90": ms}
				}
				o.c.Observe(reading, o.c.now())
			}
			if o.agents[id] {
				o.c.Observe(agentReading(id, 0.4), o.c.now())
			}
		}
		o.step()
		o.pass(time.Second)
	}
	var texts []string
	for _, r := range o.c.Status().Reasons {
		if r.Code == "no_agent" {
			texts = append(texts, r.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// logged returns how often the log says something of i2.
func (o *outsiders) logged(text string) (n int) {
	for line := range strings.Lines(o.log.String()) {
		if strings.Contains(line, text) && strings.Contains(line, "instance=i2") {
			n++
		}
	}
	return n
}

func TestAnInstanceWithoutAnAgentIsJudgedFromOutside(t *testing.T) {
	fromOutside(t, nil, func(o *outsiders) {
		if said := o.periods(12); said != "" {
			t.Errorf("in calm: %q", said)
		}
		o.connect["i2"] = 0.8
		said := o.periods(3)
		for _, want := range []string{"i2: slowed by something beside its requests, severity 1.", "as connects show",
			"up to 40 requests/s within the objective", "a share of 0.17 instead of 0.33", "none is changed"} {
			if !strings.Contains(said, want) {
				t.Errorf("%q lacks %q", said, want)
			}
		}
		o.wantWeights(map[string]float64{"i1": 1. / 3, "i2": 1. / 3, "i3": 1. / 3})

		o.agents["i2"] = true
		if said := o.periods(1); said != "" {
			t.Errorf("beside an agent's readings: %q", said)
		}
		o.periods(5)
		o.agents["i2"] = false
		if said := o.periods(2); said != "" {
			t.Errorf("the agent has only just ended: %q", said)
		}
		if said := o.periods(4); !strings.Contains(said, "i2: slowed") {
			t.Errorf("without its agent: %q", said)
		}
		if a, b := o.logged("no agent reports"), o.logged("an agent reports again"); a != 2 || b != 1 {
			t.Errorf("logged %d and %d times, want 2 and 1:\n%s", a, b, &o.log)
		}
		o.connect["i2"] = 0.33
		if said := o.periods(3); said != "" {
			t.Errorf("after the neighbour: %q", said)
		}
	})
}

// What is missing is said, where the policy needs it.
func TestWhatIsMissingFromOutside(t *testing.T) {
	prima := func(r *rig) { r.opts.Service.Policy.Name, r.opts.Models = "prima", goldenModels(r.t) }
	for _, c := range []struct {
		about  string
		change func(r *rig)
		set    func(o *outsiders)
		want   string // of the only text; empty: there is none
	}{
		{"no log", prima, func(o *outsiders) { o.mute = true }, ""},
		{"whole milliseconds", prima, func(o *outsiders) { o.connect = map[string]float64{"i1": 1, "i2": 1, "i3": 2} },
			"i1, i2, i3 are judged by requests and times to connect alone, and nothing shows neighbours there. Use of " +
				"processors, memory, disk and link is not known; 3 have no usable time to connect (HAProxy logs whole milliseconds)"},
		{"one has no agent", prima, func(o *outsiders) { o.agents = map[string]bool{"i1": true, "i2": true} },
			"i3 is judged by requests and times to connect alone, and nothing shows neighbours there. Use of processors, " +
				"memory, disk and link is not known"},
		{"a policy without neighbours", nil, func(*outsiders) {}, ""},
	} {
		t.Run(c.about, func(t *testing.T) {
			fromOutside(t, c.change, func(o *outsiders) {
				c.set(o)
				if said := o.periods(8); said != c.want {
					t.Errorf("%q, want %q", said, c.want)
				}
			})
		})
	}
}
