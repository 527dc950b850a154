package controller

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// An agent reports, but its probe port is blocked: the group can still grow, and status and metrics name the instance.
func TestAClosedProbePortStopsNothing(t *testing.T) {
	play(t, func(r *rig) {
		s := &r.opts.Service
		s.Policy.Name, s.Guard.StaleAfter = "prima", 3
		r.opts.Models = goldenModels(t)
	}, func(r *rig) {
		probed := []string{"i1"}
		talk := func(seconds int) {
			for range seconds {
				now := time.Now()
				for _, id := range []string{"i1", "i2"} {
					use := 0.1
					if id == "i1" {
						use = 0.6
					}
					reading := agentReading(id, use)
					if slices.Contains(probed, id) {
						reading.Observation.Severity = map[quell.Resource]float64{quell.Network: 0}
					}
					r.c.Observe(reading, now)
				}
				r.pass(time.Second)
			}
		}
		unprobed := func() (ids []string) {
			for _, in := range r.c.Status().Instances {
				if in.Unprobed {
					ids = append(ids, in.ID)
				}
			}
			return ids
		}
		starts := func() int { r.scaler.mu.Lock(); defer r.scaler.mu.Unlock(); return len(r.scaler.starts) }
		r.run(0)
		talk(3)
		before := starts()
		if ids := unprobed(); len(ids) > 0 {
			t.Fatalf("unprobed at once: %v", ids)
		}
		talk(20)
		if ids := unprobed(); !slices.Equal(ids, []string{"i2"}) || starts() == before {
			t.Errorf("unprobed: %v, %d starts: %v", ids, starts(), r.c.Status().Reasons)
		}
		body := httptest.NewRecorder()
		r.c.Handler().ServeHTTP(body, httptest.NewRequest("GET", "/metrics", nil))
		for _, line := range []string{`quell_unprobed{member="i1",service="shop"} 0`, `quell_unprobed{member="i2",service="shop"} 1`} {
			if !strings.Contains(body.Body.String(), line+"\n") {
				t.Errorf("the metrics lack %s", line)
			}
		}
		probed = []string{"i1", "i2"}
		talk(2)
		if ids := unprobed(); len(ids) > 0 {
			t.Errorf("%v still unprobed", ids)
		}
	})
}
