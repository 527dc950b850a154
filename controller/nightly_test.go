package controller

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/internal/wallclock"
	"github.com/quellhq/quell/model"
)

// night is a group of three whose instances may be tested from two minutes after the start on, for half an hour.
type night struct {
	*rig
	clock *wallclock.Clock
	to    atomic.Pointer[Controller] // that readings are sent to; nil: nothing is reported
	rows  int

	mu     sync.Mutex
	hidden map[string]float64 // severity, by instance
	silent string             // an instance of which nothing is measured
	times  map[string][]byte  // encoded response times, by their number and length
}

// feels sets what is felt of an instance's neighbours.
func (n *night) feels(id string, severity float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hidden[id] = severity
}

// silence ends the reports of an instance.
func (n *night) silence(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = id
}

// again is another controller, as after a crash.
func (n *night) again() {
	n.restart()
	n.to.Store(n.c)
}

func playNight(t *testing.T, change func(*rig), body func(*night)) {
	t.Helper()
	n := &night{hidden: map[string]float64{}, times: map[string][]byte{}}
	play(t, func(r *rig) {
		n.rig, n.clock = r, wallclock.New()
		s := &r.opts.Service
		s.Group.Initial, s.Group.Min = 3, 3
		s.SLO.Threshold = 50 * time.Millisecond
		s.Group.Startup = time.Hour
		s.Sampling, s.Guard.StaleAfter = 10*time.Second, 3
		s.Redline.Nightly = windowIn(2*time.Minute, 30*time.Minute)
		r.opts.Now = n.clock.Now
		r.opts.Rows = func(rows []model.TrainingRow) error { n.rows += len(rows); return nil }
		if change != nil {
			change(r)
		}
	}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		n.to.Store(n.c)
		go n.serve(ctx)
		body(n)
	})
}

// windowIn begins some time after now and lasts for some time.
func windowIn(after, lasts time.Duration) quell.Window {
	h, m, _ := time.Now().Add(after).Clock()
	from := time.Duration(h)*time.Hour + time.Duration(m)*time.Minute
	return quell.Window{From: from, To: (from + lasts) % (24 * time.Hour)}
}

// serve reports of 120 requests per second, each of which takes 10 ms alone; an instance can take 100 of them.
func (n *night) serve(ctx context.Context) {
	for ctx.Err() == nil {
		if c := n.to.Load(); c != nil {
			n.report(c)
		}
		tick.Sleep(ctx, 10*time.Second)
	}
}

func (n *night) report(c *Controller) {
	weights := n.balancer.weights()
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, share := range weights {
		if id == n.silent {
			continue
		}
		rate := 120 * share
		own := agentReading(id, rate/100)
		own.Observation.Severity = map[quell.Resource]float64{quell.Network: n.hidden[id]}
		c.Observe(own, n.clock.Now())
		c.Observe(n.requests(id, rate, 10/max(0.01, 1-rate/100-n.hidden[id]/10)), n.clock.Now())
		c.Observe(proberReading(id, "east", quell.ProbeStats{MeanMS: 10, N: 8}), n.clock.Now())
	}
}

// requests is a balancer's reading of ten seconds.
func (n *night) requests(id string, rate, ms float64) quell.Reading {
	r := balancerReading(n.t, id, "east")
	r.Requests, r.Observation.WindowS, r.Observation.RequestRate = int64(10*rate), 10, &rate
	key := fmt.Sprintf("%d %.2f", r.Requests, ms)
	if n.times[key] == nil {
		n.times[key] = encodedWithin(n.t, time.Minute, slices.Repeat([]float64{ms}, int(r.Requests))...)
	}
	r.LatencyHDR = n.times[key]
	return r
}

func (n *night) begins(id string) int {
	return strings.Count(strings.Join(n.journal.events(), "\n"), "a red-line test of "+id+" begins")
}

func (n *night) equal() {
	n.t.Helper()
	for id, w := range n.balancer.weights() {
		if math.Abs(w-1./3) > 1e-6 {
			n.t.Errorf("the weight of %s is %.3f", id, w)
		}
	}
}

// In each window one instance is tested, the next one in turn; the result is in the journal, the status and the training rows.
func TestNights(t *testing.T) {
	playNight(t, nil, func(n *night) {
		n.run(30 * time.Second)
		if s := n.c.Status().Nightly; s == nil || s.Instance != "" || s.Next.Sub(n.clock.Now()) > 2*time.Minute {
			t.Fatalf("before the window: %+v", s)
		}
		n.pass(2 * time.Minute)
		if s := n.c.Status(); s.Nightly.Instance != "i1" || s.Temporary["i1"].By != byNight {
			t.Fatalf("in the window: %+v, %+v", s.Nightly, s.Temporary)
		}
		n.pass(20 * time.Minute)
		s := n.c.Status().Nightly
		if s.Instance != "" || len(s.Tested) != 1 || !strings.HasPrefix(s.Tested[0].Text, "i1 carries 0.8") || n.rows == 0 {
			t.Fatalf("after the test: %+v, %d rows", s, n.rows)
		}
		n.equal()
		n.wantEvent("red-line test by night: i1 carries 0.8")
		for range 2 { // nobody controls by day
			n.kill()
			n.to.Store(nil)
			n.pass(23*time.Hour + 35*time.Minute)
			n.again()
			n.run(30 * time.Minute)
		}
		for _, id := range []string{"i1", "i2", "i3"} {
			if got := n.begins(id); got != 1 {
				t.Errorf("%d tests of %s in three nights:\n%s", got, id, strings.Join(n.journal.events(), "\n"))
			}
		}
		n.equal()
	})
}

// Several tests in one night, of the instances that are named.
func TestANightOfTwo(t *testing.T) {
	playNight(t, func(r *rig) { r.opts.Service.Redline.Tests, r.opts.Service.Redline.Instances = 5, []string{"i3", "i2"} }, func(n *night) {
		n.run(34 * time.Minute)
		if a, b, c := n.begins("i1"), n.begins("i2"), n.begins("i3"); a != 0 || b != 1 || c != 1 {
			t.Errorf("tests of i1 to i3: %d, %d, %d", a, b, c)
		}
		n.equal()
	})
}

// Nothing is tested while something is in the way, and the status says what.
func TestNightsThatAreNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*night)
		want   string
	}{
		"off":            {func(n *night) { n.reload(func(s *quell.Service) { s.Redline.Nightly = quell.Window{} }) }, ""},
		"advise":         {func(n *night) { n.reload(func(s *quell.Service) { s.Mode = quell.Advise }) }, "advise mode"},
		"paused":         {func(n *night) { n.do(bus.Command{Name: bus.Pause}) }, "paused by ann"},
		"released":       {func(n *night) { n.do(bus.Command{Name: bus.Release}) }, "released by ann"},
		"drained":        {func(n *night) { n.do(bus.Command{Name: bus.Drain, Instance: "i2"}) }, "i2 is out of rotation by ann"},
		"a share is set": {func(n *night) { n.do(bus.Command{Name: bus.Override, Instance: "i2", Weight: at(.3)}) }, "i2 is set by hand"},
		"starting":       {func(n *night) { n.scaler.state("i3", quell.Starting) }, "i3 is starting"},
		"silent":         {func(n *night) { n.silence("i3") }, "i3 is missing, or nothing was measured there"},
		"a neighbour":    {func(n *night) { n.feels("i1", 0.2) }, "i1 has neighbours: severity 0.20"},
		"elsewhere":      {func(n *night) { n.feels("i2", 0.5) }, "i2 has neighbours: severity 0.50"},
		"not known": {func(n *night) { n.reload(func(s *quell.Service) { s.Redline.Instances = []string{"i9"} }) },
			"no instance is left"},
		"the clock is set forward": {func(n *night) { n.clock.Set(3 * time.Minute) }, "the clock was set"},
	} {
		t.Run(name, func(t *testing.T) {
			playNight(t, func(r *rig) { r.opts.Service.Group.Min = 1 }, func(n *night) {
				n.run(30 * time.Second)
				c.before(n)
				n.pass(3 * time.Minute)
				if got := n.begins("i1") + n.begins("i2") + n.begins("i3"); got != 0 {
					t.Errorf("%d tests began", got)
				}
				if s := n.c.Status().Nightly; (s != nil) != (c.want != "") || s != nil && !strings.Contains(s.Waits, c.want) {
					t.Errorf("the status says %+v, want %q", s, c.want)
				}
			})
		})
	}
}

func (n *night) reload(change func(*quell.Service)) {
	n.t.Helper()
	change(&n.opts.Service)
	if err := n.c.Reload(n.opts.Service, nil, false); err != nil {
		n.t.Fatal(err)
	}
}

// Whatever ends a test, the shares of before are back a period later, and no second one is made in that night.
func TestANightIsEnded(t *testing.T) {
	for name, end := range map[string]func(*night){
		"SIGHUP": func(n *night) {
			n.reload(func(s *quell.Service) { s.Redline.Nightly = windowIn(6*time.Hour, time.Hour) })
		},
		"turned off": func(n *night) { n.reload(func(s *quell.Service) { s.Redline.Nightly = quell.Window{} }) },
		"a pause": func(n *night) {
			n.do(bus.Command{Name: bus.Pause})
			n.pass(time.Second)
			n.do(bus.Command{Name: bus.Resume})
		},
		"a neighbour":   func(n *night) { n.feels("i1", 0.9) },
		"one elsewhere": func(n *night) { n.feels("i2", 0.9) },
		"an instance is gone": func(n *night) {
			n.balancer.set(func(b *fakeBalancer) { b.sick["i3"] = true })
			n.pass(20 * time.Second)
			n.balancer.set(func(b *fakeBalancer) { delete(b.sick, "i3") })
		},
		"the clock is set back":    func(n *night) { n.clock.Set(-10 * time.Minute) },
		"the clock is set forward": func(n *night) { n.clock.Set(12 * time.Hour) },
		"the controller is killed": func(n *night) { n.again(); n.run(10 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			playNight(t, nil, func(n *night) {
				n.run(160 * time.Second)
				if n.begins("i1") != 1 {
					t.Fatal("no test began")
				}
				n.pass(30 * time.Second)
				end(n)
				n.pass(30 * time.Second)
				if s := n.c.Status(); len(s.Temporary) > 0 {
					t.Errorf("shares are still set: %+v", s.Temporary)
				}
				n.feels("i1", 0)
				n.feels("i2", 0)
				n.pass(3 * time.Minute)
				n.equal()
				if got := n.begins("i1") + n.begins("i2") + n.begins("i3"); got != 1 {
					t.Errorf("%d tests in a night:\n%s", got, strings.Join(n.journal.events(), "\n"))
				}
			})
		})
	}
}
