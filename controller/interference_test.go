package controller

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// Status and metrics show, for each resource, what is known of an instance's neighbours, with the measurements behind it, and for whom its
// tasks wait.
func TestInterferenceIsShown(t *testing.T) {
	play(t, func(r *rig) {
		r.opts.Service.Policy.Name = "prima"
		r.opts.Models = goldenModels(t)
	}, func(r *rig) {
		r.run(0)
		for range 3 {
			r.pass(100 * time.Millisecond) // readings come after the last decision
			for _, id := range []string{"i1", "i2"} {
				reading := agentReading(id, 0.3)
				reading.Observation.WindowS = 10
				reading.Observation.Probe = map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: 15, StddevMS: 1, N: 8}}
				if id == "i1" {
					wait, throttled := 7.5, 0.0
					reading.Observation.Sched = &quell.Sched{Cores: 1, Group: true, RunS: 2.5, WaitS: &wait, ThrottledS: &throttled}
				}
				r.c.Observe(reading, time.Now())
			}
			r.pass(900 * time.Millisecond)
		}
		s := r.c.Status()
		i1, i2 := s.Instances[0], s.Instances[1]
		net := i1.Interference[quell.Network]
		if net.Severity == nil || net.ProbeMS == nil || net.ExpectedMS == nil || net.Use == nil {
			t.Fatalf("network: %+v", net)
		}
		if *net.Severity <= 0 || *net.ProbeMS != 15 || *net.Use != 0.3 || net.Hidden == nil || net.At == nil ||
			math.Abs(15 / *net.ExpectedMS - 1 - *net.Severity) > 1e-9 {
			t.Errorf("network: %+v", net)
		}
		cpu := i1.Interference[quell.CPU]
		if cpu.Origin != quell.NeighboursCause || cpu.Hidden == nil || math.Abs(*cpu.Hidden-0.5) > 1e-6 || cpu.Severity != nil {
			t.Errorf("cpu: %+v", cpu)
		}
		if i1.Waits == nil || i1.Waits.Cause != quell.NeighboursCause || math.Abs(*i1.Waits.Neighbours-0.5) > 1e-6 {
			t.Errorf("waits: %+v", i1.Waits)
		}
		if _, told := i2.Interference[quell.CPU]; told || i2.Waits != nil {
			t.Errorf("an instance whose waiting is not known: %+v, %+v", i2.Interference, i2.Waits)
		}
		body := r.get("/metrics").Body.String()
		for _, line := range []string{
			`quell_interference{measure="hidden",member="i1",origin="neighbours",resource="cpu",service="shop"} 0.`,
			`quell_interference{measure="severity",member="i1",origin="",resource="network",service="shop"} `,
			`quell_waits{cause="neighbours",member="i1",service="shop"} 0.`,
			`quell_waits{cause="quota",member="i1",service="shop"} 0` + "\n",
		} {
			if !strings.Contains(body, line) {
				t.Errorf("the metrics lack %s", line)
			}
		}
		if strings.Contains(body, `quell_waits{cause="own",member="i2"`) {
			t.Error("the metrics have the waiting of i2, which is not known")
		}
		if _, err := json.Marshal(s); err != nil {
			t.Error(err)
		}
		plans := r.journal.plans()
		if last := plans[len(plans)-1].Plan; last.Waits["i1"].Cause != quell.NeighboursCause || last.Cause["i1"] == "" {
			t.Errorf("the journal's plan: waits %+v, cause %v", last.Waits, last.Cause)
		}
	})
}
