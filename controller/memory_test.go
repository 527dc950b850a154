package controller

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

func TestAMemoryThatCannotBeReached(t *testing.T) {
	play(t, func(r *rig) { r.memory.fault.err = bus.ErrNotConnected }, func(r *rig) {
		r.untouched(func() { r.run(5 * time.Second) })
		if s := r.c.Status(); s.Leading || s.Failures["memory"] == 0 {
			t.Errorf("status %+v", s)
		}
		r.memory.fault.set(nil)
		r.pass(3 * time.Second)
		r.wantIDs("i1", "i2")
	})
}

func TestADamagedMemoryIsFinal(t *testing.T) {
	play(t, func(r *rig) { r.memory.values[memoryKey] = []byte(`{"paused":tru`) }, func(r *rig) {
		r.untouched(func() {
			err := r.c.Run(context.Background())
			if err == nil || !strings.Contains(err.Error(), "the stored memory of the controller is damaged") {
				t.Errorf("got %v", err)
			}
		})
	})
}

// fakeMarker keeps a mark.
type fakeMarker struct {
	fault
	mark   *Mark
	stores bool // also if it fails
}

func (m *fakeMarker) Read() (Mark, error) {
	if m.mark == nil {
		return Mark{}, quell.ErrNoData
	}
	return *m.mark, nil
}

func (m *fakeMarker) Write(mark Mark) error {
	err := m.strike(context.Background())
	if err == nil || m.stores {
		m.mark = &mark
	}
	return err
}

// If only the mark cannot be stored, orders are in force and survive a restart, whether or not the mark was stored all the same.
func TestOrdersWhileTheMarkCannotBeStored(t *testing.T) {
	for _, stores := range []bool{false, true} {
		marker := &fakeMarker{stores: stores}
		play(t, func(r *rig) { r.opts.Marker = marker }, func(r *rig) {
			r.run(3 * time.Second)
			marker.set(errBroken)
			r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.7)})
			reply := r.ask(bus.Command{Name: bus.Pause})
			if s := r.c.Status(); reply.Error != "" || !strings.Contains(string(reply.Body), "would not be noticed") || !s.Paused || s.Store == "" {
				t.Errorf("the reply is %q %s, the status says %+v", reply.Error, reply.Body, s)
			}
			r.pass(3 * time.Second)
			r.restart()
			r.run(3 * time.Second)
			if s := r.c.Status(); s.Lost != "" || !s.Paused || s.Overrides["i1"] != .7 {
				t.Errorf("after a restart the status says %+v", s)
			}
			marker.set(nil)
			r.pass(2 * time.Second)
			if s := r.c.Status(); s.Store != "" || marker.mark.Orders != s.Orders {
				t.Errorf("the mark has %+v, the status says %+v", marker.mark, s)
			}
		})
	}
}

func TestWhatIsRemembered(t *testing.T) {
	shrunk(t, func(r *rig) {
		r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.7)})
		r.pass(2 * time.Second)
		m := remembered(t, r.memory)
		if m.State.Policy != "static" || len(m.State.Instances) != 3 {
			t.Errorf("state %+v", m.State)
		}
		if !maps.Equal(m.Overrides, map[string]float64{"i1": .7}) || m.Draining["i3"].IsZero() || m.Paused {
			t.Errorf("memory %+v", m)
		}
		if w := m.Weights; len(w) != 2 || w["i1"] != .7 {
			t.Errorf("weights %v", w)
		}
	})
}

// If the data folder was emptied, the store is opened again, also if that fails at first and if an order has written the mark meanwhile.
func TestTheStoreIsReopenedUntilThatWorks(t *testing.T) {
	marker, tries := &fakeMarker{}, 0
	play(t, func(r *rig) {
		r.opts.Marker = marker
		r.opts.Reopen = func() error {
			if tries++; tries == 1 {
				return errBroken
			}
			r.memory.fault.set(nil)
			return nil
		}
	}, func(r *rig) {
		r.run(3 * time.Second)
		r.memory.fault.set(bus.ErrStoreClosed)
		marker.mark, r.memory.values = nil, map[string][]byte{}
		r.pass(3 * time.Second)
		if tries != 2 || len(r.memory.values) == 0 || marker.mark == nil {
			t.Errorf("opened %d times, stored %v, the mark is %v", tries, r.memory.values, marker.mark)
		}
	})
}
