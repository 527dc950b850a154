package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

// fakeDelay is what a server of the cell would have: with the neighbour, three times as many workers are needed.
func fakeDelay(c StreamCell) float64 {
	needed := 2.
	if c.Interfering {
		needed = 6
	}
	return 20 * max(1, needed*float64(c.Weight)/100/float64(c.Workers))
}

func TestStreamPlan(t *testing.T) {
	var asked []StreamCell
	p := StreamPlan{Workers: []int{1, 2, 4, 8, 16}, Weights: []int{100, 50}}
	results, err := p.Measure(func(c StreamCell) (StreamResult, error) {
		asked = append(asked, c)
		return StreamResult{StreamCell: c, Frames: 1, DelayMS: quell.Latency{Mean: new(fakeDelay(c))}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []StreamCell{
		{1, 100, false}, {2, 100, false}, {4, 100, false}, {8, 100, false}, {16, 100, false},
		{1, 100, true}, {2, 100, true}, {4, 100, true}, {8, 100, true}, {16, 100, true},
		{2, 50, true}, // 2 is best without the neighbour; at weight 100 it is measured already
		{8, 50, true},
	}
	if !slices.Equal(asked, want) {
		t.Errorf("measured %v, want %v", asked, want)
	}
	for i, r := range results {
		if r.StreamCell != want[i] {
			t.Errorf("result %d is of %v", i, r.StreamCell)
		}
	}
}

func TestStreamPlanThatFails(t *testing.T) {
	calls := 0
	results, err := StreamPlan{Workers: []int{1, 2}, Weights: []int{50}}.Measure(func(c StreamCell) (StreamResult, error) {
		if calls++; calls == 2 {
			return StreamResult{}, errors.New("the lab is gone")
		}
		return StreamResult{StreamCell: c}, nil
	})
	if err == nil || len(results) != 1 || calls != 2 {
		t.Errorf("%v after %d calls, %d results", err, calls, len(results))
	}
}

func TestFewestWorkers(t *testing.T) {
	for _, c := range []struct {
		delays, unsent []float64
		want           int // index
	}{
		{[]float64{900, 50, 21, 20, 20}, nil, 2}, // 21 is near the least
		{[]float64{20, 20}, nil, 0},
		{[]float64{20, 20}, []float64{0.5, 0}, 1}, // frames that were never sent have no delay
		{[]float64{30, 20, 40}, nil, 1},
	} {
		var results []StreamResult
		for i, d := range c.delays {
			r := StreamResult{StreamCell: StreamCell{Workers: i}, DelayMS: quell.Latency{Mean: &d}}
			if c.unsent != nil {
				r.Unsent = c.unsent[i]
			}
			results = append(results, r)
		}
		if got := fewest(results); got != c.want {
			t.Errorf("%v, unsent %v: %d, want %d", c.delays, c.unsent, got, c.want)
		}
	}
}

func TestStreamingBalancer(t *testing.T) {
	text := fmt.Sprintf(streamingTemplate, "10.77.0.3:8080", "  server h1 10.77.1.2:80 weight 70\n")
	for _, want := range []string{"bind 10.77.0.3:8080\n", "set-header X-Quell-Instance %[srv_name]\n", "server h1 10.77.1.2:80 weight 70\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
