package train

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// noisyProbes returns probe times of a shared link, scattered by half of their mean.
type noisyProbes struct{ fail error }

func (m noisyProbes) Probes(_ context.Context, r RunRequest, p Probing) ([]float64, error) {
	rng := rand.New(rand.NewPCG(r.Seed, uint64(p.Count)))
	singles := make([]float64, int(r.Run/p.Spacing()))
	for i := range singles {
		singles[i] = 2 / (1 - r.Level - r.Interference) * (1 + 0.5*rng.NormFloat64())
	}
	return singles, m.fail
}

func study(machines ...ProbedMachine) ProbingStudy {
	return ProbingStudy{
		Probings: []Probing{{Period: 4 * time.Second, Count: 1, Bytes: 1_000_000}, {Period: 4 * time.Second, Count: 16, Bytes: 25_000}},
		Cells:    []Cell{{0.4, 0.2}}, Run: 4000 * time.Second, Machines: machines, Seed: 1,
	}
}

// TestStudyOfProbing checks that the mean of sixteen independent probes is four times as precise as a single probe.
func TestStudyOfProbing(t *testing.T) {
	scores, err := study(noisyProbes{}, noisyProbes{}).Study(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one, many := scores[0], scores[1]
	if one.Windows != 1000 || many.Windows != 1000 {
		t.Errorf("%d and %d periods, want 1000", one.Windows, many.Windows)
	}
	if math.Abs(many.Severity-0.5) > 0.05 { // 0.2 / (1 - 0.4 - 0.2)
		t.Errorf("severity %.2f, want 0.5", many.Severity)
	}
	if ratio := one.Error / many.Error; ratio < 3.6 || ratio > 4.4 {
		t.Errorf("one probe errs %.2f times as much as sixteen, want 4", ratio)
	}
	if math.Abs(many.Alone-0.125) > 0.02 || many.Error < many.Alone {
		t.Errorf("alone the severity scatters by %.3f, under interference by %.3f", many.Alone, many.Error)
	}
	if share := many.Share(40e6); math.Abs(share-0.02) > 1e-9 {
		t.Errorf("16 x 25 kB in 4 s are %v of 40 Mbit/s", share)
	}
}

func TestStudyOfProbingFails(t *testing.T) {
	broken := errors.New("broken")
	if _, err := study(noisyProbes{fail: broken}).Study(t.Context()); !errors.Is(err, broken) ||
		!strings.Contains(err.Error(), "1000000 bytes") {
		t.Errorf("got %v", err)
	}
	if _, err := study().Study(t.Context()); err == nil {
		t.Error("no machine: accepted")
	}
	short := study(noisyProbes{})
	short.Run = 4 * time.Second
	if _, err := short.Study(t.Context()); !errors.Is(err, quell.ErrNoData) {
		t.Errorf("one period only: %v", err)
	}
}

// TestLiveProbesWithWhatIsAsked checks that one download per period is possible, although an ordinary prober makes at
// least eight.
func TestLiveProbesWithWhatIsAsked(t *testing.T) {
	m := newMachine(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("file")) })
	machines, err := Live(liveOptions(m))
	if err != nil {
		t.Fatal(err)
	}
	singles, err := machines[0].(ProbedMachine).Probes(t.Context(),
		RunRequest{Resource: quell.Network, Cell: Cell{0.1, 0.2}, Run: time.Second, Seed: 1},
		Probing{Period: 100 * time.Millisecond, Count: 1, Bytes: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(singles); n < 5 || n > 9 { // ten slots, the first of which opens the connection
		t.Errorf("%d probes in ten periods", n)
	}
}
