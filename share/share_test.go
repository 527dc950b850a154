package share

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const period = 10 * time.Second

// play lets three services share four machines for some periods, and returns the last snapshots by service. use returns what a machine
// uses, and rates what each service asks of it.
func play(l *Ledger, from, periods int, rates func(k, machine int) map[string]float64,
	use func(k, machine int, perS map[string]float64) float64,
) map[string]quell.Snapshot {
	last := map[string]quell.Snapshot{}
	for k := from; k < from+periods; k++ {
		for s, service := range []string{"api", "shop", "web"} {
			at := began.Add(time.Duration(k)*period + time.Duration(s)*100*time.Millisecond)
			snapshot := quell.Snapshot{At: at, Service: service}
			for m, id := range []string{"m1", "m2", "m3", "m4"} {
				perS := rates(k, m)
				own, asked := perS[service]
				o := &quell.Observation{At: at, WindowS: period.Seconds(),
					Utilization: map[quell.Resource]float64{quell.CPU: use(k, m, perS)}}
				if asked {
					o.RequestRate = &own
				}
				snapshot.Instances = append(snapshot.Instances, quell.Instance{ID: id, State: quell.Ready, Observation: o})
			}
			l.Enter(&snapshot)
			last[service] = snapshot
		}
	}
	return last
}

var costs = map[string]float64{"api": 0.010, "shop": 0.002, "web": 0.004}

func linear(_, _ int, perS map[string]float64) float64 {
	sum := 0.01
	for service, r := range perS {
		sum += costs[service] * r
	}
	return sum
}

// varied are rates that vary by chance, as those of independent clients.
func varied(seed uint64) func(k, machine int) map[string]float64 {
	return func(k, machine int) map[string]float64 {
		rng := rand.New(rand.NewPCG(seed, uint64(k*10+machine)))
		return map[string]float64{"api": 10 * (0.7 + 0.6*rng.Float64()), "shop": 60 * (0.7 + 0.6*rng.Float64()),
			"web": 40 * (0.7 + 0.6*rng.Float64())}
	}
}

func wantOthers(t *testing.T, last map[string]quell.Snapshot, perS map[string]float64, machine int, within float64) {
	t.Helper()
	for service, s := range last {
		want := 0.0
		for other, r := range perS {
			if other != service {
				want += costs[other] * r
			}
		}
		got := s.Instances[machine].Observation.Others[quell.CPU]
		if math.Abs(got-want) > within {
			t.Errorf("%s: others use %.3f, want %.3f", service, got, want)
		}
	}
}

// Requests of different costs are told apart when rates vary by themselves, also when one machine makes a backup all the time.
func TestCostsAreLearned(t *testing.T) {
	var l Ledger
	rates := varied(1)
	last := play(&l, 0, 60, rates, linear)
	wantOthers(t, last, rates(59, 2), 2, 0.02)

	var robust Ledger
	last = play(&robust, 0, 120, rates, func(k, m int, perS map[string]float64) float64 {
		if m == 3 && k >= 30 {
			return linear(k, m, perS) + 0.4
		}
		return linear(k, m, perS)
	})
	wantOthers(t, last, rates(119, 1), 1, 0.04)
}

// While rates never change, nothing tells the costs apart: requests count alike, and together they explain the whole use.
func TestEqualCostsUntilRatesVary(t *testing.T) {
	var l Ledger
	same := func(int, int) map[string]float64 { return map[string]float64{"api": 20, "shop": 20, "web": 20} }
	last := play(&l, 0, 40, same, linear)
	for service, s := range last {
		if got, want := s.Instances[0].Observation.Others[quell.CPU], 0.33*2/3; math.Abs(got-want) > 0.03 {
			t.Errorf("%s: others use %.3f, want %.3f", service, got, want)
		}
	}
}

// One service alone has no others, and a service that is gone counts no longer.
func TestAServiceThatIsGone(t *testing.T) {
	var l Ledger
	rates := varied(2)
	play(&l, 0, 60, rates, linear)
	alone := func(k, m int) map[string]float64 { return map[string]float64{"api": rates(k, m)["api"]} }
	last := play(&l, 60, 5, alone, linear)
	if got := last["api"].Instances[0].Observation.Others; got != nil {
		t.Errorf("others use %v", got)
	}
	var fresh Ledger
	if last := play(&fresh, 0, 5, alone, linear); last["api"].Instances[0].Observation.Others != nil {
		t.Error("a service alone has others")
	}
}

// What others use is never more than the machine uses.
func TestOthersWithinUse(t *testing.T) {
	var l Ledger
	rates := varied(3)
	last := play(&l, 0, 40, rates, func(k, m int, perS map[string]float64) float64 {
		if m == 0 {
			return 0.3 * linear(k, m, perS) // a faster machine of the same type
		}
		return linear(k, m, perS)
	})
	for service, s := range last {
		o := s.Instances[0].Observation
		if o.Others[quell.CPU] > o.Utilization[quell.CPU] || o.Others[quell.CPU] <= 0 {
			t.Errorf("%s: others use %v of %v", service, o.Others, o.Utilization)
		}
	}
}

// A restart goes on with what was learned, and a damaged file is refused.
func TestKeep(t *testing.T) {
	var l Ledger
	rates := varied(4)
	play(&l, 0, 60, rates, linear)
	data, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	last := play(again, 60, 1, rates, linear)
	wantOthers(t, map[string]quell.Snapshot{"web": last["web"]}, rates(60, 0), 0, 0.03)
	for _, bad := range []string{"", "{}", string(data[:len(data)/2]),
		`{"format":"quell-shared-1","laws":[{"resource":"cpu","law":{"services":["a"],"information":[[1]],"moment":[1,2]}}]}`,
		`{"format":"quell-shared-1","laws":[{"resource":"cpu"}]}`} {
		if _, err := Decode([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
