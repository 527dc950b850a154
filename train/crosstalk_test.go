package train

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// separate is a machine on which each kind of probe responds only to neighbours on its own resource. Single probe times vary at random by
// half of their mean. Its agent reports nothing about the network.
type separate struct {
	fail  error
	asked chan<- RunRequest
}

func (m separate) Watch(_ context.Context, r RunRequest, period time.Duration) (seen []quell.Observation, err error) {
	m.asked <- r
	rng := rand.New(rand.NewPCG(r.Seed, 0))
	for range int(r.Run / period) {
		o := quell.Observation{Utilization: map[quell.Resource]float64{}, Probe: map[quell.Resource]quell.ProbeStats{}}
		for _, resource := range []quell.Resource{quell.CPU, quell.Disk, quell.Memory} {
			neighbour := 0.0
			if r.Disturb == resource {
				neighbour = r.Interference
			}
			mean := 2 / (1 - r.Level - neighbour)
			o.Utilization[resource] = r.Level
			o.Probe[resource] = quell.ProbeStats{MeanMS: mean * (1 + 0.5*rng.NormFloat64()/4), StddevMS: mean / 2, N: 16}
		}
		o.WindowS, o.Sched = 1, waiting(r.Level, r.Disturb, r.Interference)
		seen = append(seen, o)
	}
	return seen, m.fail
}

// waiting is how long the tasks of a control group of one processor wait that use own of it beside neighbours on the processor.
func waiting(own float64, disturbed quell.Resource, use float64) *quell.Sched {
	busy := own
	if disturbed == quell.CPU {
		busy += use
	}
	wait := own * busy / (1 - busy)
	return &quell.Sched{Cores: 1, Group: true, RunS: own, WaitS: &wait}
}

func crosstalk(machines ...WatchedMachine) CrosstalkStudy {
	return CrosstalkStudy{
		Resource: quell.CPU, Level: 0.4, Baseline: []float64{0.5, 1, 1.5}, Period: time.Second, Periods: 399, Confidence: 0.99, Seed: 1,
		Neighbours: []Neighbour{{quell.CPU, 0.4}, {quell.Disk, 0.3}}, Machines: machines,
	}
}

// TestCrosstalk checks that each neighbour is detected by the probes of its own resource, and that the probes of other resources report one
// only as often as the statistical test errs by chance.
func TestCrosstalk(t *testing.T) {
	asked := make(chan RunRequest, 100)
	s := crosstalk(separate{asked: asked}, separate{asked: asked})
	c, err := s.Study(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Cells) != 3 || c.Cells[0].Neighbour != (Neighbour{}) || c.Cells[2].Neighbour != s.Neighbours[1] || len(c.Isolation) != 3 {
		t.Fatalf("cells %+v, isolation of %d resources", c.Cells, len(c.Isolation))
	}
	if alone := c.Isolation[quell.Disk][2]; alone.N != 16*400 || math.Abs(alone.Utilization-0.6) > 1e-9 || math.Abs(alone.ProbeMS/5-1) > 0.03 {
		t.Errorf("the disk alone %+v", alone)
	}
	for _, cell := range c.Cells {
		use, share := 0.0, 0.0
		if cell.Resource == quell.CPU {
			use, share = cell.Use, 1
		}
		if w := cell.Waited; w == nil || w.Periods != 400 || w.Share() != share || math.Abs(w.Use-use) > 1e-6 {
			t.Errorf("%s: waited %+v", cell.Neighbour, w)
		}
		if cell.Periods() != 400 {
			t.Errorf("%s: %d periods, want 200 of each machine", cell.Neighbour, cell.Periods())
		}
		for r, f := range cell.Felt {
			severity := 0.0
			if r == cell.Resource {
				severity = cell.Use / (1 - 0.4 - cell.Use)
			}
			if math.Abs(f.Severity-severity) > 0.1 || f.Probes != 16 || math.Abs(f.Utilization-0.4) > 1e-9 {
				t.Errorf("%s: %s felt %+v, want a severity of %.2f", cell.Neighbour, r, f, severity)
			}
			if share := f.Share(); r == cell.Resource && share < 0.9 || r != cell.Resource && share > 0.05 {
				t.Errorf("%s: %s significant in %.1f%% of periods", cell.Neighbour, r, 100*share)
			}
		}
	}
	seeds := map[uint64]bool{}
	for range len(asked) {
		r := <-asked
		if seeds[r.Seed] || r.Run != 200*time.Second {
			t.Errorf("run %+v, seeds %v", r, seeds)
		}
		seeds[r.Seed] = true
	}
}

func TestCrosstalkFails(t *testing.T) {
	if _, err := crosstalk().Study(t.Context()); err == nil || !strings.Contains(err.Error(), "at least one machine") {
		t.Errorf("got %v", err)
	}
	broken := errors.New("broken")
	_, err := crosstalk(separate{fail: broken, asked: make(chan RunRequest, 100)}).Study(t.Context())
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "at utilisation 0.20 beside no neighbour") {
		t.Errorf("got %v", err)
	}
}
