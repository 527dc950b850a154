package arena

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
)

// judged returns a contest whose candidates have the given violations (in percent, one for each seed) and costs.
func judged(t *testing.T, runs map[Candidate][]float64, costs map[Candidate]float64) *Contest {
	t.Helper()
	c := &Contest{Scenario: brief(), Results: map[Candidate][]scenario.Result{}}
	c.Scenario.Runs = nil
	for e, violations := range runs {
		c.Candidates = append(c.Candidates, e)
		for i, v := range violations {
			r := scenario.Result{Seed: uint64(i + 1), InstanceSeconds: costs[e]}
			r.SLO.ViolationShare = v / 100
			c.Results[e] = append(c.Results[e], r)
		}
	}
	return c
}

var (
	hpaEWMA   = Candidate{Policy: "hpa", Scheduling: quell.EWMA, Target: "50%"}
	hpaLeast  = Candidate{Policy: "hpa", Scheduling: quell.LeastConn, Target: "50%"}
	hpaLow    = Candidate{Policy: "hpa", Scheduling: quell.EWMA, Target: "30%"}
	staticTwo = Candidate{Policy: plain, Scheduling: quell.Prequal, Fixed: 2}
	primaEWMA = Candidate{Policy: subject, Scheduling: quell.EWMA}
	bound     = Candidate{Policy: sim.Clairvoyant, Scheduling: quell.LeastConn}
)

// A rival is compared in the form that an operator would choose: here over peak-EWMA, not over least connections.
func TestRivalsAtTheirBest(t *testing.T) {
	c := judged(t, map[Candidate][]float64{
		primaItself: {10, 12, 11, 10}, hpaEWMA: {0, 2, 1, 0}, hpaLeast: {80, 82, 81, 80}, hpaLow: {0, 0, 0, 0},
		staticTwo: {9, 14, 10, 11}, primaEWMA: {5, 6, 6, 5}, bound: {0, 0, 0, 0},
	}, map[Candidate]float64{primaItself: 100, hpaEWMA: 98, hpaLeast: 90, hpaLow: 150, staticTwo: 100.9, primaEWMA: 104, bound: 60})
	type at struct {
		candidate Candidate
		against   Verdict
	}
	cheap, good := map[string]at{}, map[string]at{}
	for _, r := range c.Rivals() {
		if r.Cheap != nil {
			cheap[r.Policy] = at{r.Cheap.Candidate, r.Cheap.Against}
		}
		if r.Good != nil {
			good[r.Policy] = at{r.Good.Candidate, r.Good.Against}
		}
	}
	want := map[string]at{"hpa": {hpaEWMA, Less}, plain: {staticTwo, Equal}, sim.Clairvoyant: {bound, Less}}
	if !reflect.DeepEqual(cheap, want) {
		t.Errorf("for PRIMA's cost or less: %v, want %v", cheap, want)
	}
	want = map[string]at{"hpa": {hpaEWMA, Less}, subject: {primaEWMA, Less}, sim.Clairvoyant: {bound, Less}}
	if !reflect.DeepEqual(good, want) {
		t.Errorf("for PRIMA's violation or less: %v, want %v", good, want)
	}
	for _, want := range []string{
		"`prima/leastconn` misses the objective for 10.8 ± 1.5% of the time and costs 100 ± 0 instance-seconds.",
		"Of the rivals that cost at most 1% more, `hpa/ewma 50%` (violation 0.8%, cost 98: 2% less than PRIMA's) " +
			"misses the objective for significantly less of the time.",
		"The difference in violation between PRIMA and `static/prequal x2` (violation 11.0%, cost 101: 1% more than PRIMA's) " +
			"may be due to chance.",
		"Judged by the means, `hpa/ewma 50%` (violation 0.8%, cost 98: 2% less than PRIMA's) " +
			"misses the objective no more than PRIMA and costs less.",
		"No other form of PRIMA that costs at most 1% more misses the objective for significantly less of the time.",
		"Of the bound clairvoyant, the cheapest form that misses the objective as little as PRIMA is " +
			"`clairvoyant/leastconn` (violation 0.0%, cost 60: 40% less than PRIMA's).",
	} {
		if got := c.outcome(); !strings.Contains(got, want) {
			t.Errorf("it says %q\nwithout %q", got, want)
		}
	}
}

func TestOutcomeWithoutAMatch(t *testing.T) {
	c := judged(t, map[Candidate][]float64{primaItself: {1, 2, 1}, hpaLeast: {80, 82, 81}, primaEWMA: {0, 0, 0}},
		map[Candidate]float64{primaItself: 100, hpaLeast: 120, primaEWMA: 100})
	for _, want := range []string{
		"Of the rivals that cost at most 1% more, none misses the objective for significantly less of the time. " +
			"Judged by the means, no rival misses the objective as little as PRIMA, whatever it costs.",
	} {
		if got := c.outcome(); !strings.Contains(got, want) {
			t.Errorf("it says %q\nwithout %q", got, want)
		}
	}
	delete(c.Results, primaItself)
	if got := c.outcome(); got != "" || len(c.Rivals()) != 0 {
		t.Errorf("without PRIMA it says %q", got)
	}
}

func TestWrapped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.StringMatching("[a-z±]{1,30}")).Draw(t, "words")
		got := wrapped(strings.Join(words, " "))
		if !slices.Equal(strings.Fields(got), words) {
			t.Fatalf("%q of %q", got, words)
		}
		lines := strings.Split(got, "\n")
		for i, line := range lines {
			next := ""
			if i+1 < len(lines) {
				next, _, _ = strings.Cut(lines[i+1], " ")
			}
			if n := utf8.RuneCountInString(line); n > lineWidth || next != "" && n+1+utf8.RuneCountInString(next) <= lineWidth {
				t.Fatalf("line %q before %q", line, next)
			}
		}
	})
}

// Seeds that one of two candidates did not play are left out of their comparison.
func TestVerdictsAreSeedBySeed(t *testing.T) {
	c := judged(t, map[Candidate][]float64{primaItself: {10, 50, 30, 20}, hpaEWMA: {12, 52, 33, 22}}, nil)
	if got := c.compare(hpaEWMA, primaItself, violationShare); got != More {
		t.Errorf("2 or 3 points more in every seed, and the verdict is %q", got)
	}
	c.Results[hpaEWMA] = c.Results[hpaEWMA][2:]
	c.Results[primaItself] = c.Results[primaItself][:3]
	if got := c.compare(hpaEWMA, primaItself, violationShare); got != Equal {
		t.Errorf("one seed in common, and the verdict is %q", got)
	}
}
