package controller

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// logged makes the rig's controller write its log, without times, into a buffer. The buffer may be read only while the controller does not
// run.
func logged(b *bytes.Buffer) func(*rig) {
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	return func(r *rig) {
		r.opts.Logger = slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: plain}))
	}
}

func TestDecisionsAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	play(t, logged(&log), func(r *rig) {
		r.run(2 * time.Second)
		r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.7)})
		r.pass(5 * time.Second)
		const first = `msg=decision policy=static what="weights i1=0.700 i2=0.300"`
		if n := strings.Count(log.String(), "msg=decision"); n != 1 || !strings.Contains(log.String(), first) {
			t.Fatalf("%d decisions, want one with %s in\n%s", n, first, &log)
		}
		r.do(bus.Command{Name: bus.Pause})
		r.scaler.set(func(s *fakeScaler) { s.add() })
		r.balancer.set(func(b *fakeBalancer) {
			b.backends = append(b.backends, quell.Backend{ID: "i3", Address: "10.0.0.3:80"})
		})
		r.pass(10 * time.Second) // many plans that ask for the same actions
		const second = `what="paused by ann: would set weights i2=0.150 i3=0.150"`
		if n := strings.Count(log.String(), "msg=decision"); n != 2 || !strings.Contains(log.String(), second) {
			t.Errorf("%d decisions, want two, one with %s, in\n%s", n, second, &log)
		}
	})
}

// If a plan was not applied, the journal says why, and what the plan would have changed.
func TestJournalSaysWhyNot(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Mode = quell.Advise; r.opts.Service.Group.Min = 1 }, func(r *rig) {
		r.scaler.set(func(s *fakeScaler) { s.add() })
		r.run(2 * time.Second)
		plans := r.journal.plans()
		if e := plans[len(plans)-1]; e.Why != "advise mode" || len(e.Would) > 0 {
			t.Errorf("nothing to change: why %q, would %q", e.Why, e.Would)
		}
		r.balancer.set(func(b *fakeBalancer) { b.backends = []quell.Backend{{ID: "i1", Address: "10.0.0.1:80"}} })
		r.pass(2 * time.Second)
		plans = r.journal.plans()
		if e := plans[len(plans)-1]; e.Why != "advise mode" || strings.Join(e.Would, "; ") != "set weights i1=1.000" {
			t.Errorf("another weight: why %q, would %q", e.Why, e.Would)
		}
	})
	play(t, nil, func(r *rig) {
		r.run(2 * time.Second)
		r.balancer.set(func(b *fakeBalancer) { b.backends = nil })
		r.balancer.refuse.set(errBroken)
		r.pass(2 * time.Second)
		plans := r.journal.plans()
		if e := plans[len(plans)-1]; e.Applied || !strings.HasPrefix(e.Why, "failed: ") || !strings.Contains(e.Why, errBroken.Error()) {
			t.Errorf("a balancer that refuses: %+v", e)
		}
	})
}

// In the status, the time of something that has not happened yet is absent.
func TestStatusBeforeTheFirstDecision(t *testing.T) {
	play(t, nil, func(r *rig) {
		if got := r.get("/status").Body.String(); strings.Contains(got, "0001-01-01") || strings.Contains(got, `"at"`) {
			t.Errorf("status %s", got)
		}
	})
}

// If an instance's health checks fail, its status shows their request and answer. The plan that gives the instance up shows them as well.
func TestStatusSaysWhatTheHealthCheckGot(t *testing.T) {
	const why = `GET /healthz: 404 Not Found, body "no such file"`
	play(t, func(r *rig) { r.balancer.why = why }, func(r *rig) {
		r.run(3 * time.Second)
		r.balancer.set(func(b *fakeBalancer) { b.sick = map[string]bool{"i2": true} })
		r.pass(time.Second)
		row := r.c.Status().Instances[1]
		if row.State != quell.Failed || row.Health != why || row.Reason != "health check: "+why {
			t.Errorf("row %+v", row)
		}
		r.pass(2 * time.Second)
		if text := reasonsGiven(r, "failed"); text != "giving up i2 ("+why+"): health checks fail" {
			t.Errorf("reason %q", text)
		}
	})
}

// reasonsGiven returns the text of the first reason with this code in the journal.
func reasonsGiven(r *rig, code string) string {
	for _, e := range r.journal.plans() {
		for _, reason := range e.Plan.Reasons {
			if reason.Code == code {
				return reason.Text
			}
		}
	}
	return ""
}
