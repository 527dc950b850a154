package controller

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// What a meter does not measure is a failure of its own part while it lasts, and ends with it.
func TestWhatIsNotMeasured(t *testing.T) {
	var problem error
	play(t, func(r *rig) { r.opts.Measured = func() error { return problem } }, func(r *rig) {
		r.run(3 * time.Second)
		if s := r.c.Status(); s.LastFailure["measure"] != "" {
			t.Errorf("before: %v", s.LastFailure)
		}
		problem = errors.New("no lines")
		r.pass(2 * time.Second)
		if s := r.c.Status(); !strings.Contains(s.LastFailure["measure"], "no lines") || s.Failures["measure"] == 0 {
			t.Errorf("meanwhile: %v, %v", s.LastFailure, s.Failures)
		}
		problem = nil
		r.pass(2 * time.Second)
		if s := r.c.Status(); s.LastFailure["measure"] != "" || s.Failures["measure"] == 0 {
			t.Errorf("after: %v, %v", s.LastFailure, s.Failures)
		}
		r.kill()
	})
}
