package daemon_test

import (
	"testing"

	"github.com/quellhq/quell/controller"
)

// A comparison goes on when the controller is killed, ends by itself, and is then concluded from the journal.
func TestCompareGoesOnAfterAKill(t *testing.T) {
	r := emulatedService(t)
	flow(r)
	if out, status := r.quell("compare", "--config", r.config); status != 1 || !has(out, "no comparison in the last") {
		t.Errorf("status %d before any comparison: %s", status, out)
	}
	if out, status := r.quell("compare", "--for", "20s", "--turn", "1s", "--config", r.config); status != 1 || !has(out, "too short") {
		t.Errorf("status %d of short turns: %s", status, out)
	}
	begin := []string{"compare", "--for", "10m", "--turn", "2s", "--seed", "3", "--config", r.config}
	if out, status := r.quell(begin...); status != 0 || !has(out, "comparison begun by") {
		t.Fatalf("status %d: %s", status, out)
	}
	if out, status := r.quell(begin...); status != 1 || !has(out, "a comparison is in progress") {
		t.Errorf("status %d of a second one: %s", status, out)
	}
	for _, p := range r.procs {
		if p.name == "controller" {
			p.kill(t)
		}
	}
	r.start("controller")
	s := r.awaitStatus("the comparison to go on", func(s controller.Status) bool { return s.Leading && len(s.Instances) == 2 })
	if s.Comparison == nil || s.Comparison.Seed != 3 || s.Comparison.Turns != 300 {
		t.Errorf("after a kill the status shows %+v", s.Comparison)
	}
	if out, status := r.quell("redline", "i1", "--config", r.config); status != 1 || !has(out, "a comparison is in progress") {
		t.Errorf("status %d of a red-line test meanwhile: %s", status, out)
	}
	if out, status := r.quell("compare", "stop", "--config", r.config); status != 0 || !has(out, "comparison ended by") {
		t.Errorf("status %d of a stop: %s", status, out)
	}
	if out, status := r.quell("compare", "--for", "24s", "--turn", "2s", "--config", r.config); status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	r.awaitStatus("its end", func(s controller.Status) bool { return s.Comparison == nil })
	if out, status := r.quell("compare", "--config", r.config); status != 0 || !has(out, "missed for", "while control was handed back") {
		t.Errorf("status %d: %s", status, out)
	}
	r.awaitWeights(map[string]float64{"i1": .5, "i2": .5})
}
