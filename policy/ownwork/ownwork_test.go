package ownwork

import (
	"fmt"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// ownWindow is a snapshot of three instances with these uses of the network and request rates.
func ownWindow(k int, uses, rates []float64) *quell.Snapshot {
	s := &quell.Snapshot{At: time.Unix(int64(10*k), 0), Service: "s"}
	for i, use := range uses {
		rate := rates[i]
		s.Instances = append(s.Instances, quell.Instance{ID: fmt.Sprintf("i%d", i+1), State: quell.Ready, Observation: &quell.Observation{
			At: s.At, WindowS: 10, RequestRate: &rate, Utilization: map[quell.Resource]float64{quell.Network: use},
		}})
	}
	return s
}

func TestFindOwnWork(t *testing.T) {
	calm := []float64{0.3, 0.3, 0.3}
	for _, tc := range []struct {
		why         string
		uses, rates []float64
		want        float64 // own work of i1
	}{
		{"a backup takes half of the link", []float64{0.8, 0.3, 0.3}, []float64{30, 30, 30}, 0.5},
		{"a backup, and the balancer sends less", []float64{0.6, 0.4, 0.4}, []float64{10, 40, 40}, 0.5},
		{"a backup where no request goes", []float64{0.6, 0.45, 0.45}, []float64{0, 45, 45}, 0.5},
		{"more load", []float64{0.6, 0.3, 0.3}, []float64{60, 30, 30}, 0},
		{"dearer requests everywhere", []float64{0.6, 0.6, 0.6}, []float64{30, 30, 30}, 0},
		{"chance", []float64{0.38, 0.3, 0.3}, []float64{30, 30, 30}, 0},
		{"what waited is answered after the requests end", []float64{0.3, 0.3, 0.3}, []float64{3, 30, 30}, 0},
	} {
		var costs Costs
		for k := range 10 {
			_, costs = Find(ownWindow(k, calm, []float64{30, 30, 30}), costs, func(quell.Resource, string) float64 { return 0 })
		}
		before := ownWindow(10, tc.uses, tc.rates)
		s, _ := Find(before, costs, func(quell.Resource, string) float64 { return 0 })
		got := s.Instances[0].Observation.OwnWork[quell.Network]
		if tc.want == 0 && got != 0 || got < tc.want-0.25 || got > tc.want+1e-9 {
			t.Errorf("%s: own work %.3f, want %.3f", tc.why, got, tc.want)
		}
		if before.Instances[0].Observation.OwnWork != nil {
			t.Errorf("%s: the snapshot was changed", tc.why)
		}
		for _, in := range s.Instances[1:] {
			if in.Observation.OwnWork != nil {
				t.Errorf("%s: own work of %s", tc.why, in.ID)
			}
		}
	}
}

// A window counts once. One that is earlier than the last one is of a clock that was set back, and counts.
func TestCostsAfterTheClockWasSetBack(t *testing.T) {
	var costs Costs
	for i, k := range []int{360, 361, 361, 1, 2} {
		_, costs = Find(ownWindow(k, []float64{0.3}, []float64{30}), costs, func(quell.Resource, string) float64 { return 0 })
		if got, want := costs["i1"].Network.N, []int{1, 2, 2, 3, 4}[i]; got != want {
			t.Errorf("after window %d: %d counted, want %d", k, got, want)
		}
	}
}

// Machines of different sizes use different parts of themselves for one request; that is no work of their own.
func TestUnequalMachinesHaveNoOwnWork(t *testing.T) {
	var costs Costs
	for k := range 50 {
		var s *quell.Snapshot
		s, costs = Find(ownWindow(k, []float64{0.6, 0.3, 0.3}, []float64{30, 30, 30}), costs,
			func(quell.Resource, string) float64 { return 0 })
		if o := s.Instances[0].Observation; o.OwnWork != nil {
			t.Fatalf("window %d: own work %v", k, o.OwnWork)
		}
	}
}

// The processor time of requests grows beside neighbours in the caches, so own work on processors needs a user that the agent saw.
func TestOwnWorkOnProcessorsIsSeen(t *testing.T) {
	for _, seen := range []bool{false, true} {
		var costs Costs
		var s *quell.Snapshot
		for k := range 12 {
			use := 0.3
			if k > 10 {
				use = 0.7
			}
			s = ownWindow(k, []float64{use, 0.3, 0.3}, []float64{30, 30, 30})
			for i := range s.Instances {
				o := s.Instances[i].Observation
				o.Utilization = map[quell.Resource]float64{quell.CPU: o.Utilization[quell.Network]}
				if i == 0 && k > 10 && seen {
					o.Top = map[quell.Resource]quell.User{quell.CPU: {Name: "/system.slice/backup.service", Use: 0.39}}
				}
			}
			s, costs = Find(s, costs, func(quell.Resource, string) float64 { return 0 })
		}
		if got := s.Instances[0].Observation.OwnWork[quell.CPU]; (got > 0.3) != seen {
			t.Errorf("seen %v: own work %.3f", seen, got)
		}
	}
}

// What requests of other services use of the machines lowers the capacity for this service's requests, is no neighbour, costs its requests
// nothing, and is told apart from a backup.
func TestOtherServicesAreOwnWork(t *testing.T) {
	var costs Costs
	window := func(k int, uses []float64, others float64) *quell.Snapshot {
		s := ownWindow(k, uses, []float64{30, 30, 30})
		for i := range s.Instances {
			s.Instances[i].Observation.Others = map[quell.Resource]float64{quell.Network: others}
		}
		return s
	}
	unknown := func(quell.Resource, string) float64 { return 0 }
	var s *quell.Snapshot
	for k := range 10 {
		s, costs = Find(window(k, []float64{0.7, 0.7, 0.7}, 0.4), costs, unknown)
		for _, in := range s.Instances {
			o := in.Observation
			if use, _ := o.ForRequests(quell.Network); o.OwnWork[quell.Network] != 0.4 || use < 0.299 || use > 0.301 {
				t.Fatalf("window %d: own work %v, %.3f for requests", k, o.OwnWork, use)
			}
		}
	}
	if per := costs["i1"].Network.Per; per < 0.0099 || per > 0.0101 {
		t.Errorf("a request costs %.4f, want 0.01", per)
	}
	s, _ = Find(window(10, []float64{1, 0.7, 0.7}, 0.4), costs, unknown)
	if got := s.Instances[0].Observation.OwnWork[quell.Network]; got < 0.65 || got > 0.71 {
		t.Errorf("with a backup the own work is %.3f, want 0.7", got)
	}
}
