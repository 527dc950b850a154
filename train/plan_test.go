package train

import (
	"errors"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

func TestCellsLeaveOutWhatNothingCouldCarry(t *testing.T) {
	p := Plan{Levels: []float64{0.1, 0.5}, Interference: []float64{0, 0.4, 0.5}, Most: 0.9}
	want := []Cell{{0.1, 0}, {0.5, 0}, {0.1, 0.4}, {0.5, 0.4}, {0.1, 0.5}}
	got := p.Cells()
	if len(got) != len(want) {
		t.Fatalf("cells %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("cell %d is %v, want %v: isolation comes first", i, got[i], want[i])
		}
	}
	if p.Only = []Cell{{0.2, 0.3}}; len(p.Cells()) != 1 || p.Cells()[0] != p.Only[0] {
		t.Errorf("only the given cells are wanted, got %v", p.Cells())
	}
	if p = (Plan{Levels: []float64{0.9}, Interference: []float64{0, 0.05, 0.1}}); len(p.Cells()) != 2 {
		t.Errorf("without a bound 0.95 holds, as a sum with its tolerance; got %v", p.Cells())
	}
}

func TestShippedPlans(t *testing.T) {
	for name, p := range map[string]Plan{"quick": Quick(), "full": Full()} {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	const demoHosts = 8
	q := Quick()
	rounds := (len(q.Cells())*q.MaxRepeat + demoHosts - 1) / demoHosts
	if longest := time.Duration(rounds) * (q.Run + q.WarmUp); longest > 40*time.Second {
		t.Errorf("the quick plan takes %s on %d hosts; the demo has 40s", longest, demoHosts)
	}
}

func TestValidateNamesTheKey(t *testing.T) {
	for path, change := range map[string]func(*Plan){
		"train.levels":       func(p *Plan) { p.Levels = nil },
		"train.interference": func(p *Plan) { p.Interference = []float64{0.1} },
		"train.run":          func(p *Plan) { p.Run = time.Millisecond },
		"train.repeat":       func(p *Plan) { p.Repeat = 0 },
		"train.max_repeat":   func(p *Plan) { p.Repeat, p.MaxRepeat = 3, 2 },
		"train.interval":     func(p *Plan) { p.Interval = 0 },
		"train.confidence":   func(p *Plan) { p.Confidence = 1 },
		"train":              func(p *Plan) { p.Levels = []float64{1.5} },
	} {
		p := Full()
		change(&p)
		var invalid *quell.InvalidError
		if err := p.Validate(); !errors.As(err, &invalid) || invalid.Path != path {
			t.Errorf("%s: got %v", path, err)
		}
	}
}
