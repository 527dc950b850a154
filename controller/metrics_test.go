package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/golden"
)

func (r *rig) get(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.c.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func TestMetrics(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.75)})
		r.pass(time.Millisecond)
		reading := agentReading("i1", .4)
		reading.Observation.Severity = map[quell.Resource]float64{quell.Network: 1.5}
		r.c.Observe(reading, time.Now())
		r.c.Observe(balancerReading(t, "i1", "east", 16, 16, 16), time.Now())
		r.c.Reject(errors.New("utilization: 7 is more than 2"))
		r.journal.fault.set(errBroken)
		r.pass(time.Second)
		r.scaler.set(func(s *fakeScaler) { s.slow = true; s.add() })
		r.pass(time.Second)
		got := r.get("/metrics")
		if got.Code != 200 {
			t.Fatalf("status %d", got.Code)
		}
		golden.Compare(t, "testdata/metrics.txt", got.Body.Bytes())
	})
}

// What comes from the leader's memory is exposed until another controller leads: by one whose lease ended because the bus does not answer,
// too. A cut whose time is over is not.
func TestMetricsOfTheMemory(t *testing.T) {
	l := &lead{held: true}
	play(t, func(r *rig) { withFast(r); budgeted(0.99)(r); r.opts.Lead = l.ask }, func(r *rig) {
		r.serve(20, 600, 20)
		r.run(15 * time.Second)
		r.do(bus.Command{Name: bus.Drain, Instance: "i3"})
		r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.6)})
		r.pass(5 * time.Second)
		memory := []string{
			`quell_instances{service="shop",state="held"}`, `quell_instances{service="shop",state="coming"}`,
			`quell_instances{service="shop",state="may_come"}`, `quell_instance_held{by="ann",member="i3",service="shop"}`,
			`quell_override{member="i1",service="shop"}`, `quell_paused{service="shop"}`, `quell_store_ok{service="shop"}`,
			`quell_memory_lost{service="shop"}`, `quell_slo_burn_rate{service="shop",window="1h"}`,
		}
		want := func(when string, remembered, cut bool) {
			t.Helper()
			series := r.scrape()
			for _, name := range memory {
				if _, shown := series[name]; shown != remembered {
					t.Errorf("%s: %s is exposed: %v", when, name, shown)
				}
			}
			if _, shown := series[`quell_cut{member="i2",service="shop"}`]; shown != cut {
				t.Errorf("%s: the cut is exposed: %v", when, shown)
			}
			status, sum := r.c.Status(), 0.
			for name, v := range series {
				if strings.HasPrefix(name, "quell_instances{") && !strings.Contains(name, "com") {
					sum += v
				}
			}
			if n := len(status.Instances); sum != float64(n) {
				t.Errorf("%s: %v instances by state, of %d", when, sum, n)
			}
		}
		behind := fmt.Errorf("%w: held by another", ErrStandby)
		for _, step := range []struct {
			when            string
			leads           bool
			because         error
			lasts           time.Duration
			remembered, cut bool
		}{
			{"it leads", true, nil, time.Second, true, true},
			{"another one leads", false, behind, time.Second, false, false},
			{"the bus is gone then", false, errBroken, 10 * time.Second, false, false},
			{"it leads again", true, nil, 20 * time.Second, true, true},
			{"the lease ends, and no other controller is known", false, errBroken, 20 * time.Second, true, false},
		} {
			l.set(step.leads, step.because)
			r.pass(step.lasts)
			want(step.when, step.remembered, step.cut)
		}
	})
}

// A controller that starts again, and does not lead yet, exposes nothing of its memory, which is empty: it would say that nobody has
// paused, and that the instances have cost nothing.
func TestMetricsBeforeTheFirstLead(t *testing.T) {
	l := &lead{err: errBroken}
	play(t, func(r *rig) { budgeted(0.99)(r); r.opts.Lead = l.ask }, func(r *rig) {
		want := func(when string, decided, remembered bool) {
			t.Helper()
			series := r.scrape()
			for name, exposed := range map[string]bool{
				`quell_load{service="shop"}`: decided, `quell_unserved_rate{service="shop"}`: decided,
				`quell_instances{service="shop",state="ready"}`: decided,
				`quell_instances{service="shop",state="held"}`:  remembered, `quell_instances{service="shop",state="coming"}`: remembered,
				`quell_instance_seconds_total{service="shop"}`: remembered, `quell_paused{service="shop"}`: remembered,
				`quell_store_ok{service="shop"}`: remembered, `quell_memory_lost{service="shop"}`: remembered,
				`quell_leading{service="shop"}`: true, `quell_bus_connected{service="shop"}`: true,
			} {
				if _, shown := series[name]; shown != exposed {
					t.Errorf("%s: %s is exposed: %v", when, name, shown)
				}
			}
		}
		if series := r.scrape(); len(series) > 0 {
			t.Errorf("it has not looked yet, and exposes %v", series)
		}
		r.run(15 * time.Second)
		want("the lease cannot be asked for", true, false)
		l.set(true, nil)
		r.pass(15 * time.Second)
		want("it leads", true, true)
	})
}

func TestHealth(t *testing.T) {
	play(t, nil, func(r *rig) {
		want := func(when string, alive, ready int) {
			t.Helper()
			if a, b := r.get("/healthz").Code, r.get("/readyz").Code; a != alive || b != ready {
				t.Errorf("%s: alive %d, ready %d; want %d, %d", when, a, b, alive, ready)
			}
		}
		want("before the first decision", 200, 503)
		r.run(1500 * time.Millisecond)
		want("after it", 200, 200)
		r.balancer.fault.set(errBroken)
		r.pass(2 * time.Second)
		want("with two decisions missed", 200, 200)
		r.pass(2 * time.Second)
		want("with four missed", 200, 503)
		r.balancer.fault.set(nil)
		r.pass(time.Second)
		want("when it goes on", 200, 200)
	})
}

func TestStatusPage(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		w := r.get("/status")
		var s Status
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || s.Service != "shop" || len(s.Instances) != 2 {
			t.Errorf("%v, %s", err, w.Body)
		}
		if kind := w.Header().Get("Content-Type"); kind != "application/json" {
			t.Errorf("type %s", kind)
		}
	})
}

// Status and metrics show credits and when they run out.
func TestCreditsAreShown(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.step()
		r.step()
		r.follow(func(p *quell.Plan) {
			p.Credits = map[string]quell.Balances{"i1": {quell.CPU: {Left: 28.5, DepletedS: at(90)}, quell.Network: {Left: 1000}}}
		})
		if s := r.c.Status(); s.Instances[0].Credits[quell.CPU].Left != 28.5 || s.Instances[1].Credits != nil {
			t.Errorf("%+v", s.Instances)
		}
		got := r.get("/metrics").Body.String()
		for _, want := range []string{
			`quell_credits{member="i1",resource="cpu",service="shop"} 28.5`, `quell_credits{member="i1",resource="network",service="shop"} 1000`,
			`quell_credits_depleted_seconds{member="i1",resource="cpu",service="shop"} 90`,
		} {
			if !strings.Contains(got, want+"\n") {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
		if strings.Count(got, "quell_credits_depleted_seconds{") != 1 {
			t.Error("credits that do not run out have a time")
		}
	})
}

// Status and metrics show what limits an instance's capacity.
func TestTheLimiterIsShown(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.step()
		r.step()
		r.follow(func(p *quell.Plan) { p.Limiter = map[string]string{"i1": "cpu"} })
		s := r.c.Status()
		if len(s.Instances) != 2 || s.Instances[0].Limiter != "cpu" || s.Instances[1].Limiter != "" {
			t.Errorf("%+v", s.Instances)
		}
		const want = `quell_limiter{limiter="cpu",member="i1",service="shop"} 1` + "\n"
		if got := r.get("/metrics").Body.String(); !strings.Contains(got, want) || strings.Count(got, "quell_limiter{") != 1 {
			t.Errorf("the metrics lack %s", want)
		}
	})
}
