package daemon_test

import (
	"testing"

	"github.com/quellhq/quell/controller"
)

// raise starts a red-line test of i1, and waits until its share has been raised. A test that ends before that, because the machine is too
// busy to measure anything, is started again.
func (r *rig) raise() *proc {
	r.t.Helper()
	var p *proc
	r.await("a raised share", func() (bool, any) {
		ended := p == nil
		if p != nil {
			select {
			case <-p.done:
				ended = true
			default:
			}
		}
		if ended {
			p = r.start("redline", "i1")
			return false, "started"
		}
		s, err := r.status()
		return err == nil && s.Temporary["i1"].Weight > 0.55, p.said()
	})
	return p
}

// backAsBefore waits until nothing of a red-line test is left. A controller that has just started knows of it once it has decided.
func (r *rig) backAsBefore() {
	r.t.Helper()
	r.awaitStatus("no share with an end", func(s controller.Status) bool {
		return s.Leading && !s.At.IsZero() && len(s.Temporary) == 0
	})
	r.awaitWeights(map[string]float64{"i1": .5, "i2": .5})
}

// However a red-line test ends, everything is as before: at its own end, after kill -9 of the command or of command and controller, and
// when an operator pauses meanwhile.
func TestRedlineGoesBack(t *testing.T) {
	r := emulatedService(t)
	flow(r)
	r.awaitStatus("response times", func(s controller.Status) bool {
		return len(s.Instances) == 2 && s.Instances[0].LatencyMS != nil && s.Instances[1].LatencyMS != nil
	})

	if out, status := r.quell("redline", "i11", "--config", r.config); status != 2 || !has(out, `no instance "i11", did you mean "i1"`) {
		t.Errorf("status %d for an unknown instance: %s", status, out)
	}
	r.raise().kill(t)
	r.backAsBefore()

	p := r.raise()
	if out, status := r.quell("pause", "--config", r.config); status != 0 {
		t.Fatal(out)
	}
	if status := p.ends(t); status != 1 || !has(p.said(), "an operator gave an order") {
		t.Errorf("status %d after a pause, it said %s", status, p.said())
	}
	r.backAsBefore()
	if out, status := r.quell("redline", "i1", "--config", r.config); status != 1 || !has(out, "the service was paused by") {
		t.Errorf("status %d in a pause: %s", status, out)
	}
	if out, status := r.quell("resume", "--config", r.config); status != 0 {
		t.Fatal(out)
	}

	p = r.raise()
	if out, status := r.quell("redline", "i2", "--config", r.config); status != 1 || !has(out, "another red-line test runs") {
		t.Errorf("status %d beside another test: %s", status, out)
	}
	p.kill(t)
	for _, x := range r.procs {
		if x.name == "controller" {
			x.kill(t)
		}
	}
	r.start("controller")
	r.backAsBefore()

	out, status := r.quell("redline", "i1", "--limit", "30s", "--config", r.config)
	if status > 1 || !has(out, "i1", "within 500ms", "requests missed the objective") {
		t.Errorf("status %d: %s", status, out)
	}
	r.backAsBefore()
}
