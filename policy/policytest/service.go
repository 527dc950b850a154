package policytest

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
	"github.com/quellhq/quell/setting"
	"github.com/quellhq/quell/stats"
)

// Golden is the configuration of the published sequences: headroom 1, margin 0, tolerance 0, no guard.
func (k Kit) Golden(name string, thresholdMS float64, confirm int) quell.Service {
	s := quell.DefaultService()
	s.Name = "video"
	s.SLO = quell.SLO{Metric: quell.Mean, Threshold: time.Duration(thresholdMS * float64(time.Millisecond))}
	s.Policy.Name = name
	k.Tell(&s, "Headroom", 1)
	k.Tell(&s, "ScaleInMargin", 0)
	k.Tell(&s, "Confirm", confirm)
	k.Tell(&s, "Tolerance", 0)
	k.Tell(&s, "Calibrate", 0)
	s.Guard = quell.Guard{}
	return s
}

// Configured reads the policy of a configuration, such as "policy: {name: pid, proportional: 0.3}". The error lists its mistakes.
func (k Kit) Configured(text string) (p quell.Policy, err error) {
	d := yaml.NewDecoder("quell.yaml")
	p.Name = k.Default()
	d.Decode([]byte(text), setting.Table{setting.Opt("policy", k.Keys(&p), "the policy and its settings")})
	return p, d.Err()
}

// Guarding is a service with the golden policy and one rule of the guard.
func (k Kit) Guarding(policy string, change func(*quell.Service)) quell.Service {
	s := k.Golden(policy, 75, 0)
	s.Sampling = Period * time.Second
	change(&s)
	return s
}

// LearningService is a service of two instances whose policy learns its models.
func LearningService(name string) quell.Service {
	s := quell.DefaultService()
	s.Name, s.SLO, s.Policy = "s", quell.SLO{Metric: quell.Mean, Threshold: 40 * time.Millisecond}, quell.Policy{Name: name}
	s.Group.Min, s.Group.Max, s.Group.Fixed = 2, 2, true
	return s
}

// Example returns the path of a file in the folder examples.
func Example(tb testing.TB, path ...string) string {
	tb.Helper()
	for root := ".."; len(root) < 20; root = filepath.Join(root, "..") {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return filepath.Join(append([]string{root, "examples"}, path...)...)
		}
	}
	tb.Fatal("there is no go.mod above")
	return ""
}

// GoldenModels are the shipped models, and those of a lawful group for the policy that needs them.
func GoldenModels(tb testing.TB) *model.Models {
	tb.Helper()
	m, err := modelfile.Load(Example(tb, "golden", "models.json"))
	if err != nil {
		tb.Fatal(err)
	}
	m.Sections = append(m.Sections, LawfulDial())
	return m
}

// PeakRate is the rate of requests, per second, that an instance of LawfulDial serves at most.
const PeakRate = 1000

// LawfulDial is the section that a training on instances would give whose p90 is 3 ms / (1 - rho), where rho is the use of the contended
// resource by the instance and its neighbours, and whose response times are exponentially distributed.
func LawfulDial() *model.Dial {
	leaf := func(class string) *stats.Tree { return &stats.Tree{Class: class, Count: 10} }
	return &model.Dial{
		PeakRate: PeakRate, DetectMS: 1.1 * 3 / 0.8, DetectByClassMS: map[string]float64{"search": 1.1 * 6 / 0.8}, DetectRate: 200,
		Calm: model.Queueing{0, 3, 0}, Tail: 1 / math.Log(10),
		Usual: map[string]float64{"connect_ms_p90": 0.4, "iowait": 0.02},
		Classifier: &stats.Tree{Feature: "connect_ms_p90", Threshold: 2, Above: leaf("network"),
			Below: &stats.Tree{Feature: "iowait", Threshold: 0.2, Above: leaf("disk"),
				Below: &stats.Tree{Feature: "cpu_user_ratio", Threshold: 1.3, Above: leaf("memory"),
					Below: &stats.Tree{Feature: "cpu_system_ratio", Threshold: 1.3, Above: leaf("cpu"), Below: leaf("none")}}}},
		Expected: map[string]model.Expected{"cpu_user": {PerRequest: map[string]float64{"*": 0.0005}},
			"cpu_system": {PerRequest: map[string]float64{"*": 0.0002}}},
		Queueing: map[quell.Resource]model.Queueing{quell.CPU: {0, 3, 0}, quell.Network: {0, 3, 0}, quell.Memory: {0, 3, 0}},
	}
}

// SharingModels are the tables that a training would give on a link that is shared equally (processor sharing): with
// a response time of 10 ms without neighbours, severity is U_int/(1-U-U_int) and the response time 10 ms/(1-U-U_int).
func SharingModels(tb testing.TB) *model.Models {
	tb.Helper()
	prima := &model.Prima{
		Isolation:    map[quell.Resource][]model.Isolation{},
		ResponseTime: map[quell.Resource][]model.ResponseTime{},
		Interference: map[quell.Resource][]model.Interference{},
	}
	m := &model.Models{
		Trained:  &model.Trained{PerRequest: map[quell.Resource]float64{quell.Network: 0.01}},
		Sections: []model.Section{prima},
	}
	for level := 1; level <= 9; level++ {
		u := float64(level) / 10
		alone := 10 / (1 - u)
		prima.Isolation[quell.Network] = append(prima.Isolation[quell.Network],
			model.Isolation{Utilization: u, ProbeMS: alone, StddevMS: 1, N: 50})
		for step := range 9 {
			interfering := float64(step) * (0.96 - u) / 8
			free := 1 - u - interfering
			response := 10 / free
			prima.ResponseTime[quell.Network] = append(prima.ResponseTime[quell.Network], model.ResponseTime{
				Utilization: u, Severity: interfering / free, LatencyMS: quell.Latency{Mean: &response},
			})
			if step > 0 {
				prima.Interference[quell.Network] = append(prima.Interference[quell.Network], model.Interference{
					Utilization: u, Interfering: interfering, Severity: interfering / free,
				})
			}
		}
	}
	return m
}

// Show changes what an instance measures in the way in which neighbours at a resource do.
func Show(o *quell.Observation, of quell.Resource) {
	switch of {
	case quell.Network:
		o.TCP["connect_ms_p90"] = 4
	case quell.Disk:
		o.CPU.IOWait = new(0.4)
	case quell.Memory:
		o.CPU.User *= 1.8
	case quell.CPU:
		o.CPU.System *= 1.8
	}
}

// WantWeights compares a plan's weights.
func WantWeights(t *testing.T, p quell.Plan, want map[string]float64) {
	t.Helper()
	if len(p.Weights) != len(want) {
		t.Errorf("weights %v, want %v", p.Weights, want)
	}
	for id, w := range want {
		if math.Abs(p.Weights[id]-w) > 5e-4 {
			t.Errorf("weight of %s is %.5f, want %.5f", id, p.Weights[id], w)
		}
	}
}

// Weighs compares some of a plan's weights.
func Weighs(t *testing.T, what string, got, want map[string]float64) {
	t.Helper()
	for id, w := range want {
		if math.Abs(got[id]-w) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}
