package main

import (
	"errors"
	"testing"

	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/lab/testbed/kernel"
)

// TestLabCalendar plays the event calendar on two hosts beside a compiler: HAProxy passes requests for all its pages to both instances, no
// request fails, and nothing is left.
func TestLabCalendar(t *testing.T) {
	need.Root(t)
	if err := errors.Join(kernel.CheckCalendar(), kernel.CheckProgram(kernel.Compile)); err != nil {
		need.Skip(t, err.Error())
	}
	l := prepareLab(t, "cal", "calendar", []string{"haproxy"})
	if err := l.start().cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, l.said)
	}
	l.clean(false)
	record := l.record("calendar", 200)
	for id, in := range record.Phase(0, 8).Instances {
		if in.PerSecond < 5 || !(in.Utilization > 0) {
			t.Errorf("%s: %+v", id, in)
		}
	}
}
