package agentless

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fleet makes samples of instances.
type fleet struct {
	rng    *rand.Rand
	n      int
	load   float64 // multiplies all rates and lengthens all times
	noise  float64
	change func(i int, s *Sample)
	memory Memory
	at     time.Time
}

func newFleet(n int) *fleet {
	return &fleet{rng: rand.New(rand.NewPCG(3, 4)), n: n, load: 1, noise: 0.05, at: start}
}

func (f *fleet) noisy(ms float64) float64 { return ms * math.Exp(f.noise*f.rng.NormFloat64()) }

func (f *fleet) window() []Finding {
	f.at = f.at.Add(10 * time.Second)
	var samples []Sample
	for i := range f.n {
		rate, ms := f.noisy(50*f.load), f.noisy(20*f.load)
		s := Sample{ID: fmt.Sprintf("w%d", i), Rate: &rate, LatencyMS: &ms,
			ConnectMS: &quell.ProbeStats{MeanMS: f.noisy(0.3), N: 8},
			ProbeMS:   &quell.ProbeStats{MeanMS: f.noisy(5*f.load + 0.5*float64(i%5)), N: 8}}
		if f.change != nil {
			f.change(i, &s)
		}
		samples = append(samples, s)
	}
	findings, next := Judge(f.memory, f.at, samples, 60)
	f.memory = next
	return findings
}

// slowed plays windows and returns which instances were found slowed in any of them.
func (f *fleet) slowed(windows int) string {
	found := map[string]bool{}
	var list []string
	for range windows {
		for _, x := range f.window() {
			if x.Slowed && !found[x.ID] {
				found[x.ID] = true
				list = append(list, x.ID)
			}
		}
	}
	return strings.Join(list, " ")
}

func longer(of int, factor float64) func(int, *Sample) {
	return func(i int, s *Sample) {
		if i == of {
			s.ProbeMS.MeanMS *= factor
			*s.LatencyMS *= factor
		}
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		about  string
		n      int
		before int // calm windows
		change func(*fleet)
		want   string
	}{
		{"calm", 3, 0, func(*fleet) {}, ""},
		{"a neighbour", 3, 20, func(f *fleet) { f.change = longer(1, 1.8) }, "w1"},
		{"a neighbour from the first window", 12, 0, func(f *fleet) { f.change = longer(0, 3) }, "w0"},
		{"all get more load", 3, 20, func(f *fleet) { f.load = 2 }, ""},
		{"one gets more requests", 3, 20, func(f *fleet) {
			f.change = func(i int, s *Sample) {
				if longer(1, 1.8)(i, s); i == 1 {
					*s.Rate *= 2
				}
			}
		}, ""},
		{"one instance alone", 1, 20, func(f *fleet) { f.change = longer(0, 2) }, "w0"},
		{"slow requests without slow downloads", 3, 20, func(f *fleet) {
			f.change = func(i int, s *Sample) {
				if i == 2 {
					*s.LatencyMS *= 3
				}
			}
		}, ""},
		{"connects only", 3, 20, func(f *fleet) {
			f.change = func(i int, s *Sample) {
				if s.ProbeMS = nil; i == 2 {
					s.ConnectMS.MeanMS *= 3
				}
			}
		}, "w2"},
		{"absurd values", 3, 20, func(f *fleet) {
			f.change = func(_ int, s *Sample) {
				s.ProbeMS.MeanMS, *s.LatencyMS, *s.Rate, s.ConnectMS.MeanMS = math.Inf(1), math.NaN(), math.Inf(1), -1
			}
		}, ""},
	} {
		t.Run(c.about, func(t *testing.T) {
			f := newFleet(c.n)
			if got := f.slowed(c.before); got != "" {
				t.Errorf("slowed before: %s", got)
			}
			c.change(f)
			if got := f.slowed(20); got != c.want {
				t.Errorf("slowed: %q, want %q", got, c.want)
			}
			data, err := f.memory.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Decode(data); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFindingsSayWhatIsMissing(t *testing.T) {
	findings, _ := Judge(Memory{}, start, []Sample{{ID: "a", Failed: "404 for /small"}}, 0)
	if f := findings[0]; f.Severity != nil || len(f.Missing) != 3 ||
		!strings.Contains(f.Missing[0], "404") || f.Text() != "a: not known: 404 for /small" {
		t.Errorf("%+v", f)
	}
	f := newFleet(3)
	f.slowed(20)
	f.change = longer(1, 2)
	f.window()
	text := f.window()[1]
	if !text.Slowed || !strings.Contains(text.Text(), "slowed by something beside its requests, severity") || text.Carried == nil {
		t.Errorf("%+v %s", text, text.Text())
	}
}

// A process can be killed at any moment: before anything was measured, or while it writes.
func TestMemorySurvives(t *testing.T) {
	f := newFleet(3)
	f.slowed(5)
	whole, err := f.memory.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		m, err := Decode(whole[:n])
		if (err == nil) != (n == 0) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		Judge(m, start, []Sample{{ID: "w0"}}, 60)
	}
	empty, err := Memory{}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", string(empty), `{"format":"quell-agentless/1"}`, string(whole)} {
		m, err := Decode([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		Judge(m, start, []Sample{{ID: "w0"}, {ID: "new"}}, 60)
	}
	for _, text := range []string{"null", "{}", "[]", `{"format":"quell-agentless/1","known":{"a":null}}`,
		`{"format":"quell-agentless/1","known":{"a":{"passed":-1}}}`, `{"format":"quell-agentless/1","window":-1}`,
		`{"format":"quell-agentless/1","known":{"a":{"rate":{"n":99999}}}}`} {
		if _, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"format":"quell-agentless/1","known":{"a":{"seen":1}}}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if m, err := Decode(data); err == nil {
			Judge(m, start, []Sample{{ID: "a"}, {ID: "b"}}, 60)
		}
	})
}

// BenchmarkJudge judges windows of fleets; the cost of an instance must hardly grow with their number.
func BenchmarkJudge(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFleet(n)
			f.window()
			for range b.N {
				f.window()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/instance")
		})
	}
}

func TestManyInstances(t *testing.T) {
	f := newFleet(10_000)
	f.slowed(8)
	f.change = longer(77, 2)
	if got := f.slowed(3); got != "w77" {
		t.Errorf("slowed: %q", got)
	}
	if f.n = 1; len(f.memory.Known) != 10_000 {
		t.Errorf("%d known", len(f.memory.Known))
	}
	f.memory.Window += forgetAt
	if f.window(); len(f.memory.Known) != 1 {
		t.Errorf("%d are remembered", len(f.memory.Known))
	}
}
