package controller

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What a meter does not measure is a failure of its own part while it lasts, and ends with it.
func TestWhatIsNotMeasured(t *testing.T) {
	var silent atomic.Bool
	measured := func() error {
		if silent.Load() {
			return errors.New("no lines")
		}
		return nil
	}
	play(t, func(r *rig) { r.opts.Measured = measured }, func(r *rig) {
		r.run(3 * time.Second)
		if s := r.c.Status(); s.LastFailure["measure"] != "" {
			t.Errorf("before: %v", s.LastFailure)
		}
		silent.Store(true)
		r.pass(2 * time.Second)
		if s := r.c.Status(); !strings.Contains(s.LastFailure["measure"], "no lines") || s.Failures["measure"] == 0 {
			t.Errorf("meanwhile: %v, %v", s.LastFailure, s.Failures)
		}
		silent.Store(false)
		r.pass(2 * time.Second)
		if s := r.c.Status(); s.LastFailure["measure"] != "" || s.Failures["measure"] == 0 {
			t.Errorf("after: %v, %v", s.LastFailure, s.Failures)
		}
		r.kill()
	})
}
