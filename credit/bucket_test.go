package credit

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// t2micro returns a kind of credits of AWS's t2.micro.
func t2micro(t *testing.T, r quell.Resource) Bucket {
	t.Helper()
	entry, err := Shipped().Find("t2.micro")
	if err != nil {
		t.Fatal(err)
	}
	b, ok := entry.Buckets()[r]
	if !ok {
		t.Fatalf("t2.micro has no credits of %s", r)
	}
	return b
}

// MRburst, Table 2, and the example of its introduction.
func TestDepletionOfThePaper(t *testing.T) {
	network, cpu := t2micro(t, quell.Network), t2micro(t, quell.CPU)
	for _, tc := range []struct {
		why          string
		b            Bucket
		balance, use float64
		want         float64 // seconds; 0: never
	}{
		{"FTP at a limit of 250 Mbit/s, of which 224 are used: estimated as 757 s", network, 123617, 224.3e6, 757},
		{"Ceph at 400 Mbit/s: estimated as 399 s", network, 123617, 370.8e6, 399},
		{"at the baseline of 61 Mbit/s nothing is spent", network, 123617, 61e6, 0},
		{"30 credits of a processor that is full: one a minute, less a tenth that is earned", cpu, 30, 1, 30 * 60 / 0.9},
		{"half of it", cpu, 30, 0.5, 30 * 60 / 0.4},
		{"at 10% the balance stays", cpu, 30, 0.1, 0},
		{"an empty balance is spent at once", cpu, 0, 1, 0},
	} {
		got, ok := tc.b.Depletion(tc.balance, tc.use)
		if math.Abs(got-tc.want) > 0.005*tc.want || ok != (tc.use > tc.b.Baseline) {
			t.Errorf("%s: got %v s, %v", tc.why, got, ok)
		}
	}
}

func TestBalances(t *testing.T) {
	cpu := t2micro(t, quell.CPU)
	for _, tc := range []struct {
		why                   string
		balance, use, seconds float64
		want                  float64
	}{
		{"an hour of rest earns 6 credits", 0, 0, 3600, 6},
		{"an hour at the baseline earns none", 20, 0.1, 3600, 20},
		{"a minute of the whole processor costs 0.9", 20, 1, 60, 19.1},
		{"nothing is owed", 1, 1, 3600, 0},
		{"144 is the most", 143, 0, 3600, 144},
		{"launch credits beyond it stay", 160, 0, 3600, 160},
		{"until they are spent", 160, 1, 600, 151},
	} {
		if got := cpu.After(tc.balance, tc.use, tc.seconds); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", tc.why, got, tc.want)
		}
	}
}

// A balance is spent exactly when Depletion says, and Lasting is its inverse.
func TestDepletionIsWhenTheBalanceIsSpent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		baseline := rapid.Float64Range(0.01, 1).Draw(t, "baseline")
		b := Bucket{Baseline: baseline, Burst: baseline + 1, PerUse: rapid.Float64Range(1e-6, 10).Draw(t, "per use"), Cap: 1e6}
		balance := rapid.Float64Range(1, 1e6).Draw(t, "balance")
		use := baseline * rapid.Float64Range(1.01, 100).Draw(t, "use")
		seconds, ok := b.Depletion(balance, use)
		if !ok || math.IsInf(seconds, 0) {
			t.Fatalf("got %v, %v", seconds, ok)
		}
		if left := b.After(balance, use, seconds*0.999); left <= 0 {
			t.Fatalf("%v left a thousandth before", left)
		}
		if left := b.After(balance, use, seconds*1.001); left != 0 {
			t.Fatalf("%v left a thousandth after", left)
		}
		if again := b.Lasting(balance, seconds); math.Abs(again-use) > 1e-9*use {
			t.Fatalf("a use of %v lasts %v s, and %v does", use, seconds, again)
		}
	})
}

func TestSound(t *testing.T) {
	good := Bucket{Baseline: 0.1, Burst: 1, PerUse: 1}
	for _, bad := range []func(*Bucket){
		func(b *Bucket) { b.Baseline = 0 }, func(b *Bucket) { b.PerUse = 0 }, func(b *Bucket) { b.Baseline = 2 },
		func(b *Bucket) { b.Cap = math.Inf(1) }, func(b *Bucket) { b.Launch = math.NaN() }, func(b *Bucket) { b.PerUse = -1 },
	} {
		b := good
		if bad(&b); b.Sound() {
			t.Errorf("%+v is taken for sound", b)
		}
	}
	if !good.Sound() || !good.Limits() || (Bucket{Baseline: 1, Burst: 1, PerUse: 1}).Limits() {
		t.Error("a sound bucket is refused, or one without a burst is taken for a limit")
	}
}

// With uses as fractions of the resource, everything else stays the same.
func TestPer(t *testing.T) {
	b := Bucket{Baseline: 0.4, Burst: 2, PerUse: 1.0 / 60, Cap: 576}
	per := b.Per(2)
	if per.Baseline != 0.2 || per.Burst != 1 || math.Abs(per.Drain(0.5)-b.Drain(1)) > 1e-15 || per.Cap != b.Cap {
		t.Errorf("got %+v", per)
	}
}
