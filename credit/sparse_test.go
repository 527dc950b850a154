package credit

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

var sparseOptions = SparseOptions{Resources: []quell.Resource{quell.Network, quell.CPU}, ObjectiveMS: 20_000, Worst: 6,
	Least: map[quell.Resource]float64{quell.Network: 61e6}}

func newSparse(t testing.TB, o SparseOptions) *Sparse {
	t.Helper()
	s, err := NewSparse(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drive lets a plan measure a server at these loads, in turn, and returns the cells in their order.
func (s fileServer) drive(plan *Sparse, loads ...float64) (cells []SparseCell) {
	for _, load := range loads {
		for range 100 {
			c, ok := plan.Next(load)
			if !ok {
				break
			}
			var rows []ProfileRow
			for range 5 {
				rows = append(rows, s.window(c.Limited, c.Limit, load))
			}
			plan.Add(c, rows)
			cells = append(cells, c)
		}
	}
	return cells
}

// At the first load a row of limits of each resource is measured, from the loosest on; at other loads one limit. The profile that results
// predicts limits that were not measured, and less than a quarter of an exhaustive search was measured.
func TestSparseMeasuresARowAndAColumn(t *testing.T) {
	server := fileServer{link: 500e6, disk: 3000, noise: rand.New(rand.NewPCG(1, 1))}
	plan := newSparse(t, sparseOptions)
	cells := server.drive(plan, 50, 10, 20, 51, 35)
	if len(cells) != 9+3+3+3 {
		t.Fatalf("%d cells: %v", len(cells), cells)
	}
	if cells[0].Limited != "" || cells[1].Limited != quell.Network || cells[4].Limit >= cells[3].Limit || cells[5].Limited != quell.CPU {
		t.Errorf("the first load: %v", cells[:9])
	}
	if least := cells[4].Limit; math.Abs(least-61e6) > 1 {
		t.Errorf("the tightest limit is %v, and the baseline 61e6", least)
	}
	// 50 users and 20 s need 200 Mbit/s: of the row's limits 428, 223, 117 and 61 it is the second.
	if c := cells[10]; c.Limited != quell.Network || c.Limit != cells[2].Limit || c.Load != 10 {
		t.Errorf("the second load has %+v, want the limit %v", c, cells[2].Limit)
	}
	measured, exhaustive := plan.Share()
	if measured != len(cells) || 4*measured > exhaustive {
		t.Errorf("%d of %d pairs", measured, exhaustive)
	}
	p := profileOf(t, plan.Rows())
	for _, users := range []float64{15, 30, 50} {
		c, ok := p.Tightest(quell.Network, users, 20_000)
		if want := math.Max(61e6, users*fileBits/20); !ok || math.Abs(c.Limit-want) > 0.08*want {
			t.Errorf("for %v users: limited to %v (%t), want %v", users, c.Limit, ok, want)
		}
	}
}

// A limit under which response times are far too long ends its row, and so does one under which nothing could be measured.
func TestSparseStopsInTime(t *testing.T) {
	server := fileServer{link: 500e6, disk: 3000}
	o := sparseOptions
	o.ObjectiveMS, o.Worst = 9000, 2
	plan := newSparse(t, o)
	cells := server.drive(plan, 50)
	tight := 0
	for _, c := range cells {
		if c.Limited != "" && server.window(c.Limited, c.Limit, 50).LatencyMS > plan.WorstMS() {
			tight++
		}
	}
	if tight != 2 || len(cells) >= 9 {
		t.Errorf("%d cells, %d of them far beyond the objective", len(cells), tight)
	}
	plan = newSparse(t, sparseOptions)
	server.drive(plan, 0, math.NaN(), math.Inf(1), -1)
	c, _ := plan.Next(50)
	plan.Add(c, []ProfileRow{server.window("", 0, 50)})
	c, _ = plan.Next(50)
	plan.Add(c, nil)
	if next, ok := plan.Next(50); !ok || next.Limited != quell.CPU {
		t.Errorf("after a limit of the network under which nothing could be measured: %+v", next)
	}
	plan.Refuse(quell.CPU, "the kernel refuses")
	if next, ok := plan.Next(50); ok {
		t.Errorf("after the processor was refused, too: %+v", next)
	}
	if _, err := NewProfile(plan.Rows()); err == nil {
		t.Error("one row makes a profile")
	}
}

// A resource that is not measured or hardly used is not limited, and the reason is told.
func TestSparseRefuses(t *testing.T) {
	o := sparseOptions
	o.Resources = []quell.Resource{quell.Network, quell.Disk, quell.CPU}
	plan := newSparse(t, o)
	c, _ := plan.Next(10)
	plan.Add(c, []ProfileRow{{LatencyMS: 5, Use: map[quell.Resource]float64{quell.Network: 60e6, quell.CPU: 0}}})
	for r, why := range map[quell.Resource]string{quell.Network: "no limit would save", quell.Disk: "not measured", quell.CPU: "no limit"} {
		if !strings.Contains(plan.Refused()[r], why) {
			t.Errorf("%s: %q", r, plan.Refused()[r])
		}
	}
	if _, ok := plan.Next(10); ok || len(plan.Limitable()) > 0 {
		t.Errorf("%v can be limited", plan.Limitable())
	}
	for why, change := range map[string]func(*SparseOptions){
		"no resources": func(o *SparseOptions) { o.Resources = nil },
		"no objective": func(o *SparseOptions) { o.ObjectiveMS = 0 },
		"NaN":          func(o *SparseOptions) { o.ObjectiveMS = math.NaN() },
		"one limit":    func(o *SparseOptions) { o.PerRow = 1 },
		"worst":        func(o *SparseOptions) { o.Worst = 0.5 },
	} {
		o := sparseOptions
		change(&o)
		if _, err := NewSparse(o); err == nil {
			t.Errorf("%s: accepted", why)
		}
	}
}

// Whatever loads come in whatever order, a plan ends, measures no cell twice, and sets no limit below the least.
func TestSparseEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		server := fileServer{link: 500e6, disk: 3000}
		o := sparseOptions
		o.PerRow = rapid.IntRange(2, 6).Draw(t, "limits")
		plan, err := NewSparse(o)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[SparseCell]bool{}
		for range 200 {
			load := rapid.Float64Range(1, 100).Draw(t, "load")
			c, ok := plan.Next(load)
			if !ok {
				continue
			}
			if seen[c] {
				t.Fatalf("%+v is measured again", c)
			}
			seen[c] = true
			if c.Limited == quell.Network && c.Limit < 61e6*(1-1e-9) || !c.Same(load) {
				t.Fatalf("%+v at %v", c, load)
			}
			var rows []ProfileRow
			if rapid.IntRange(0, 9).Draw(t, "lost") > 0 {
				rows = []ProfileRow{server.window(c.Limited, c.Limit, load)}
			}
			plan.Add(c, rows)
		}
		for i, row := range plan.Rows() {
			if row.Load == 0 || row.LatencyMS == 0 {
				t.Fatalf("row %d: %+v", i, row)
			}
		}
	})
}
