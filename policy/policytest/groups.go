package policytest

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

func GroupMax(n int) func(*quell.Service) {
	return func(s *quell.Service) { s.Group.Max = n }
}

func (k Kit) Headroom(v float64) func(*quell.Service) {
	return func(s *quell.Service) { k.Tell(s, "Headroom", v) }
}

func (k Kit) Margin(v float64) func(*quell.Service) {
	return func(s *quell.Service) { k.Tell(s, "ScaleInMargin", v) }
}

func (k Kit) Confirm(n int) func(*quell.Service) {
	return func(s *quell.Service) { k.Tell(s, "Confirm", n) }
}

func Protect(ids ...string) func(*quell.Service) {
	return func(s *quell.Service) { s.Group.Protected = ids }
}

// PooledModels are models that were learned in place behind least connections: a request takes 10 ms alone, and a group of four was seen to
// hold the objective up to a use of held.
func PooledModels(pooling, held float64) *model.Models {
	law := &model.Law{R0MS: 10, P0MS: 5, Exponent: 1, ProbeExponent: 1, SeverityExponent: 1, SpreadIdle: 0.01, SpreadBusy: 0.2, Probes: 1000,
		N: 100, PerRequest: 0.01, Margin: new(float64),
		Together: &model.Together{Metric: quell.Mean, R0MS: 10, Pooling: pooling, Exponent: 1, Neighbour: 1, Ratio: 1, Size: 4, Held: held}}
	return &model.Models{Sections: []model.Section{model.Live{quell.Network: {model.AnyType: law}}}}
}

// Together is a snapshot of instances with one use; taken are neighbours' uses beside the first ones.
func Together(n int, use float64, taken ...float64) *quell.Snapshot {
	s := &quell.Snapshot{At: time.Unix(0, 0).UTC(), Service: "s"}
	for i := range n {
		beside := 0.0
		if i < len(taken) {
			beside = taken[i]
		}
		weight, mean := 1/float64(n), 12.0
		severity := (1-use)/(1-use-beside) - 1
		s.Instances = append(s.Instances, quell.Instance{ID: fmt.Sprintf("i%02d", i+1), State: quell.Ready, Weight: &weight,
			Observation: &quell.Observation{At: s.At, WindowS: 10, LatencyMS: &quell.Latency{Mean: &mean, N: 200},
				Utilization: map[quell.Resource]float64{quell.Network: use}, Severity: map[quell.Resource]float64{quell.Network: severity}}})
	}
	return s
}

func (k Kit) PooledEngine(t *testing.T, models *model.Models) *policy.Engine {
	t.Helper()
	service := LearningService(k.Default())
	service.Group = quell.Group{Min: 1, Max: 30}
	k.Tell(&service, "Confirm", 0)
	k.Tell(&service, "Pooling", policy.Pooling{Learned: true})
	return k.Engine(t, service, models)
}

// Both considers network and processor, in any order.
func (k Kit) Both(confirm int) quell.Service {
	s := k.Golden("prima", 75, confirm)
	k.Tell(&s, "Resources", policy.ResourcesOf(quell.CPU, quell.Network))
	return s
}

// Twins are models that have the network's tables also for the processor.
func Twins(m *model.Models) *model.Models {
	p := m.Prima()
	p.Isolation[quell.CPU] = p.Isolation[quell.Network]
	p.ResponseTime[quell.CPU] = p.ResponseTime[quell.Network]
	p.Interference[quell.CPU] = p.Interference[quell.Network]
	if per, ok := m.Trained.PerRequest[quell.Network]; ok {
		m.Trained.PerRequest[quell.CPU] = per
	}
	return m
}

// LawModels are models that were learned in place: on machines of type big, a request takes and uses half of what it does on small ones.
// Response times exceed predictions by the given factor in one window of ten.
func LawModels(exceeds float64) *model.Models {
	law := func(factor float64) *model.Law {
		margin := math.Log(exceeds)
		w := &model.Law{R0MS: 10 * factor, P0MS: 5 * factor, Exponent: 1, ProbeExponent: 1, SeverityExponent: 1, SpreadIdle: 0.01,
			SpreadBusy: 0.2, Probes: 1000, N: 100, PerRequest: 0.01 * factor}
		if exceeds > 0 {
			w.Margin = &margin
		}
		return w
	}
	return &model.Models{Sections: []model.Section{model.Live{quell.Network: {"small": law(1), "big": law(0.5)}}}}
}

// BothTypes is a snapshot of a small and a big machine without neighbours, each with the given use of its own link.
func BothTypes(small, big float64) *quell.Snapshot {
	rate := 100*small + 200*big
	s := &quell.Snapshot{At: time.Unix(0, 0).UTC(), Service: "s", ArrivalRate: &rate}
	for _, m := range []struct {
		kind      string
		use, slow float64
	}{{"small", small, 1}, {"big", big, 0.5}} {
		weight, mean := 0.5, 10*m.slow/(1-m.use)
		s.Instances = append(s.Instances, quell.Instance{ID: m.kind, Type: m.kind, State: quell.Ready, Weight: &weight,
			Observation: &quell.Observation{At: s.At, WindowS: 10, Utilization: map[quell.Resource]float64{quell.Network: m.use},
				LatencyMS: &quell.Latency{Mean: &mean, N: 200},
				Probe:     map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: 5 * m.slow / (1 - m.use), StddevMS: m.slow, N: 50}}}})
	}
	return s
}

func OrNothing(change func(*quell.Service)) func(*quell.Service) {
	if change == nil {
		return func(*quell.Service) {}
	}
	return change
}

// Feel writes into the snapshot what the instances would measure on shared links.
func Feel(in *quell.Snapshot, neighbours []float64, load float64) {
	for i := range in.Instances {
		use := min(load**in.Instances[i].Weight, .95)
		taken := min(neighbours[i], .96-use)
		in.Instances[i].Observation = &quell.Observation{
			At: in.At, Utilization: map[quell.Resource]float64{quell.Network: use},
			Severity: map[quell.Resource]float64{quell.Network: max(0, taken/(1-use-taken))},
		}
	}
}

// WithPerRequest are the golden models with what a request uses of the network.
func WithPerRequest(tb testing.TB, v float64) *model.Models {
	m := GoldenModels(tb)
	m.Trained.PerRequest = map[quell.Resource]float64{quell.Network: v}
	return m
}
