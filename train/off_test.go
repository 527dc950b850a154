package train

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/model"
)

// A run becomes a row only if about as many requests were sent in its time as were due in it.
func TestALoadThatIsOff(t *testing.T) {
	const warmUp, run = time.Second, 10 * time.Second
	for name, tt := range map[string]struct {
		due  int           // requests, evenly spread over warm-up and run
		late time.Duration // by which each is sent too late
		shed int           // of those in the run, the first that are not sent
		off  bool
	}{
		"in time":                       {due: 1100},
		"all late, but as many":         {due: 1100, late: 900 * time.Millisecond},
		"so late that the run ends":     {due: 1100, late: 4 * time.Second, off: true},
		"a tenth is not sent":           {due: 1100, shed: 100},
		"a quarter is not sent":         {due: 1100, shed: 250, off: true},
		"few requests, one is not sent": {due: 4, shed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			load := &sent{Recorder: loadgen.NewRecorder()}
			for i := range tt.due {
				at := time.Duration(i) * (warmUp + run) / time.Duration(tt.due)
				s := loadgen.Sample{Intended: at, Sent: at + tt.late, Finished: at + tt.late + time.Millisecond, Status: 200}
				if at >= warmUp && tt.shed > 0 {
					s.Err, tt.shed = loadgen.ErrShed, tt.shed-1
				}
				load.add(s, warmUp, warmUp+run)
			}
			m := &live{LiveOptions: LiveOptions{MaxOff: 0.2}}
			request := RunRequest{Resource: quell.CPU, Cell: Cell{Level: 0.5}, WarmUp: warmUp, Run: run}
			_, err := m.fill(model.TrainingRow{Observation: &quell.Observation{}}, request, load)
			off, is := errors.AsType[*OffError](err)
			if is != tt.off || !is && err != nil {
				t.Fatalf("got %v", err)
			}
			if is && (off.Wanted < 99 || off.Wanted > 101 || off.Came > 80) {
				t.Errorf("got %+v", off)
			}
		})
	}
}

// lagging is a machine whose load is off at one level, for a time.
type lagging struct {
	*sharedLink
	off bool
}

func (m *lagging) Measure(ctx context.Context, r RunRequest) (model.TrainingRow, error) {
	if m.off && r.Level == 0.3 {
		return model.TrainingRow{}, &OffError{Wanted: 30, Came: 12}
	}
	return m.sharedLink.Measure(ctx, r)
}

// A cell that was loaded otherwise than wanted has no row and is said; the others are measured, and the same training makes its rows later.
func TestTrainingGoesOnAfterALoadThatIsOff(t *testing.T) {
	m := &lagging{sharedLink: &sharedLink{}, off: true}
	plan := small()
	plan.Levels, plan.Interference = []float64{0.1, 0.3}, []float64{0, 0.2}
	var said []Cell
	var saved []model.TrainingRow
	o := Options{Resource: quell.Network, Plan: plan, Machines: []Machine{m}, Seed: 7,
		Save: func(r model.TrainingRow) error { saved = append(saved, r); return nil },
		Off: func(c Cell, off *OffError) {
			if said = append(said, c); off.Wanted != 30 || off.Came != 12 {
				t.Errorf("said %v", off)
			}
		}}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "2 of 4 cells were loaded otherwise than wanted") {
		t.Fatalf("got %v", err)
	}
	for _, r := range saved {
		if r.Level == 0.3 {
			t.Errorf("a row of %+v was kept", r)
		}
	}
	if len(said) != 2 || len(saved) == 0 {
		t.Errorf("said %v, kept %d rows", said, len(saved))
	}
	m.off, o.Rows = false, saved
	rows, err := Run(t.Context(), o)
	if err != nil || len(rows) <= len(o.Rows) {
		t.Errorf("%d rows later: %v", len(rows), err)
	}
}

// An adaptive plan chooses cells by the rows before, so there a load that is off ends the training.
func TestAnAdaptiveTrainingEndsAtALoadThatIsOff(t *testing.T) {
	o := Options{Resource: quell.Network, Plan: Learn(quell.Mean, 40, 40, 0, 1), Machines: []Machine{&lagging{&sharedLink{}, true}}, Seed: 7}
	if _, err := Run(t.Context(), o); !errors.As(err, new(*OffError)) {
		t.Errorf("got %v", err)
	}
}
