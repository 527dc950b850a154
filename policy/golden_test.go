package policy_test

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/policy"
)

// replay runs a service over the shipped snapshots and returns the plans.
func replay(t *testing.T, s quell.Service, file string) []quell.Plan {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "examples", "golden", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e, err := all.NewEngine(s, goldenModels(t))
	if err != nil {
		t.Fatal(err)
	}
	var plans []quell.Plan
	var st policy.State
	for r := strictjson.NewSnapshotReader(file, f); ; {
		snapshot, err := r.Next()
		if errors.Is(err, io.EOF) {
			return plans
		}
		if err != nil {
			t.Fatal(err)
		}
		var plan quell.Plan
		plan, st = e.Decide(snapshot, st)
		plans = append(plans, plan)
	}
}

func wantGroup(t *testing.T, p quell.Plan, add int, remove ...string) {
	t.Helper()
	var change quell.GroupChange
	if p.Group != nil {
		change = *p.Group
	}
	if change.Add != add || strings.Join(change.Remove, " ") != strings.Join(remove, " ") {
		t.Errorf("group %+v, want add %d, remove %v", change, add, remove)
	}
}

// TestTableVIII: each instance has a capacity of 50. Loads of 50, 70, 120, 180 and 300 lead to 1, 2, 3, 4 and 6 instances with equal
// shares.
func TestTableVIII(t *testing.T) {
	plans := replay(t, golden("prima", 75, 0), "table8.jsonl")
	adds := []int{0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 0}
	sizes := []int{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 6, 6}
	for i, p := range plans {
		wantGroup(t, p, adds[i])
		if len(p.Weights) != sizes[i] {
			t.Errorf("snapshot %d: %d weights, want %d", i, len(p.Weights), sizes[i])
		}
		for id, w := range p.Weights {
			if math.Abs(w-1/float64(sizes[i])) > 1e-9 {
				t.Errorf("snapshot %d: %s has %v, want an equal share of %d", i, id, w, sizes[i])
			}
		}
		for id, c := range p.Capacity {
			if math.Abs(c-0.5) > 1e-9 {
				t.Errorf("snapshot %d: capacity of %s is %v, want 0.5", i, id, c)
			}
		}
	}
}

func TestTableVIIIOneAtATime(t *testing.T) {
	s := golden("prima", 75, 0)
	tell(&s, "ScaleOut", quell.One)
	for i, p := range replay(t, s, "table8-one.jsonl") {
		wantGroup(t, p, []int{1, 0, 1, 1, 0, 0, 0}[i])
	}
}

// TestTableIX: at first utilisations are 19.5 and 48.3. Then they are 19.5, 9, 48.3, 12 and 27.3 over ten instances, while scaling in is
// not confirmed. Then the nine instances with the largest capacities (301.25 in sum) suffice for a load of 300.
func TestTableIX(t *testing.T) {
	plans := replay(t, golden("prima", 75, 1), "table9.jsonl")
	at300 := func(p quell.Plan, id string) float64 { return 300 * p.Weights[id] }
	near := func(p quell.Plan, id string, want, tolerance float64) {
		t.Helper()
		if math.Abs(at300(p, id)-want) > tolerance {
			t.Errorf("%s carries %.2f, want %.2f", id, at300(p, id), want)
		}
	}
	wantGroup(t, plans[0], 0)
	wantGroup(t, plans[1], 2)
	near(plans[3], "i1", 19.5, .05)
	near(plans[3], "i8", 48.3, .05)
	wantGroup(t, plans[5], 0)
	wantGroup(t, plans[6], 1)
	wantGroup(t, plans[8], 1)
	ten := plans[10]
	wantGroup(t, ten, 0)
	for id, want := range map[string]float64{"i1": 19.5, "i4": 9, "i5": 48.3, "i9": 12, "i10": 27.3} {
		near(ten, id, want, .05)
	}
	wantGroup(t, plans[11], 0, "i4")
	near(plans[11], "i10", 28.26*300/301.25, .01)
	for id, c := range map[string]float64{"i1": .2019, "i4": .09317, "i9": .1242, "i10": .2826, "i5": .5} {
		if math.Abs(ten.Capacity[id]-c) > 1e-9 {
			t.Errorf("capacity of %s is %v, want %v", id, ten.Capacity[id], c)
		}
	}
}

// TestTableX: for a load of 300, exactly the six instances with a capacity of 50 stay, because a capacity equal to the load suffices.
func TestTableX(t *testing.T) {
	p := replay(t, golden("prima", 75, 0), "table10.jsonl")[0]
	wantGroup(t, p, 0, "i10", "i3", "i9", "i4")
	sixth := 1.0 / 6
	wantWeights(t, p, map[string]float64{"i1": sixth, "i2": sixth, "i5": sixth, "i6": sixth, "i7": sixth, "i8": sixth})
}

// TestSectionVIB: with severities 0.75 and 0.25, LSF divides a utilisation of 40 into 10 and 30. With response times 220 and 105, LR
// divides a total of 50 into 16.15 and 33.85.
func TestSectionVIB(t *testing.T) {
	plans := replay(t, golden("lsf", 200, 0), "lsf.jsonl")
	wantGroup(t, plans[0], 1)
	wantGroup(t, plans[1], 0)
	wantWeights(t, plans[2], map[string]float64{"i1": .25, "i2": .75})
	lr := replay(t, golden("lr", 200, 0), "lr.jsonl")[0]
	wantWeights(t, lr, map[string]float64{"i1": 16.15 / 50, "i2": 33.85 / 50})
}
