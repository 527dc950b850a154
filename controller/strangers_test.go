package controller

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// An agent with a wrong instance name is shown in the status and logged once. The last readings of a removed instance are neither shown nor
// logged.
func TestUnknownSendersAreShown(t *testing.T) {
	var log bytes.Buffer
	play(t, logged(&log), func(r *rig) {
		r.run(2 * time.Second)
		r.c.Observe(agentReading("gone", .1), time.Now())
		for range 6 {
			r.c.Observe(agentReading("node-z", .1), time.Now())
			r.c.Observe(agentReading("i1", .1), time.Now())
			r.pass(time.Second)
		}
		s := r.c.Status()
		if len(s.UnknownSenders) != 1 {
			t.Fatalf("unknown senders %+v", s.UnknownSenders)
		}
		if u := s.UnknownSenders[0]; u.Instance != "node-z" || u.Source != quell.FromAgent || u.Sender != agentReading("node-z", 0).Sender ||
			u.Readings != 6 {
			t.Errorf("it shows %+v", u)
		}
		if page := r.get("/metrics").Body.String(); !strings.Contains(page, `quell_unknown_senders{service="shop"} 1`) {
			t.Errorf("metrics\n%s", page)
		}
		if n := strings.Count(log.String(), "readings come for an instance that the service does not have"); n != 1 ||
			!strings.Contains(log.String(), "instance=node-z") {
			t.Errorf("%d lines in\n%s", n, &log)
		}
		r.pass(10 * time.Second)
		if s := r.c.Status(); len(s.UnknownSenders) != 0 {
			t.Errorf("still shown: %+v", s.UnknownSenders)
		}
	})
}

// However many names of unknown instances are sent, the controller's memory stays limited.
func TestUnknownSendersAreBounded(t *testing.T) {
	g, v := gathering()
	g.snapshot(epoch, v)
	for i := range 10_000 {
		r := agentReading(fmt.Sprint("ghost", i), .1)
		g.add(r, epoch)
	}
	if len(g.strange.seen) != mostStrange {
		t.Errorf("%d are followed", len(g.strange.seen))
	}
}

// A flood of invalid readings causes only two log lines, whatever the readings contain.
func TestAFloodOfBadReadingsIsTwoLines(t *testing.T) {
	var log bytes.Buffer
	play(t, logged(&log), func(r *rig) {
		r.run(time.Second)
		for i := range 14_384 {
			r.c.Reject(fmt.Errorf("reading on quell.shop.reading.agent.i1: utilization: %d.5 is more than 2", i))
			if i%100 == 0 {
				r.pass(time.Millisecond)
			}
		}
		r.pass(15 * time.Second)
		if n := strings.Count(log.String(), "dropped a reading"); n != 2 ||
			!strings.Contains(log.String(), `msg="dropped a reading: over" times=14384`) {
			t.Errorf("%d lines in\n%s", n, &log)
		}
		if got := r.c.Status().Rejected; got != 14_384 {
			t.Errorf("%d are counted", got)
		}
	})
}
