package credit

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// follow follows a balance through windows of 10 s of the same use.
func follow(b Bucket, t Track, windows int, use float64, change func(*Reading)) Track {
	for range windows {
		r := Reading{At: t.At.Add(10 * time.Second), WindowS: 10, Use: use}
		if change != nil {
			change(&r)
		}
		t, _ = t.Follow(&b, r)
	}
	return t
}

// Whatever the use was, the true balance lies in the estimate if the use was measured within 2%.
func TestTheBalanceIsInTheEstimate(t *testing.T) {
	b := Bucket{Baseline: 0.2, Burst: 1, PerUse: 1.0 / 60, Cap: 50}
	rapid.Check(t, func(t *rapid.T) {
		truth := rapid.Float64Range(0, 50).Draw(t, "balance")
		known := rapid.Bool().Draw(t, "known")
		track := b.Unknown(begin)
		if known {
			track.Estimate = Exactly(truth)
		}
		for range rapid.IntRange(1, 50).Draw(t, "windows") {
			use, seconds := rapid.Float64Range(0, 1).Draw(t, "use"), rapid.Float64Range(1, 600).Draw(t, "seconds")
			gap := rapid.SampledFrom([]float64{0, 0, 0, 10000}).Draw(t, "gap")
			hidden := rapid.Float64Range(0, 1).Draw(t, "hidden use")
			truth = b.After(b.After(truth, hidden, gap), use, seconds)
			error := rapid.Float64Range(-0.015, 0.015).Draw(t, "error")
			at := track.At.Add(time.Duration((gap + seconds) * float64(time.Second)))
			track, _ = track.Follow(&b, Reading{At: at, WindowS: seconds, Use: use * (1 + error)})
			if slack := 1e-6; truth < track.Low-slack || truth > track.High+slack {
				t.Fatalf("a balance of %v is not in %+v", truth, track.Estimate)
			}
		}
	})
}

func TestWhatIsShownIsTaken(t *testing.T) {
	b := t2micro(t, quell.CPU)
	shown := func(v float64) func(*Reading) { return func(r *Reading) { r.Shown = &v } }
	track := follow(b, b.Unknown(begin), 1, 0.5, shown(100))
	if want := 100 - 0.4*5; track.High != 100 || math.Abs(track.Low-want) > 1e-9 {
		t.Errorf("a new balance, up to 5 minutes old: %+v, want %v to 100", track.Estimate, want)
	}
	hour := follow(b, track, 360, 0.5, shown(100))
	if want := 99 - 0.4*60; math.Abs(hour.Middle()-want) > 1 {
		t.Errorf("while the same is shown, use is integrated: %+v, want about %v", hour.Estimate, want)
	}
	for why, v := range map[string]float64{"twice the cap": 300, "NaN": math.NaN(), "negative": -1} {
		if got := follow(b, hour, 1, 0.5, shown(v)); got.Shown == nil || *got.Shown != 100 || got.High > hour.High {
			t.Errorf("%s is believed: %+v", why, got.Estimate)
		}
	}
}

// A provider shows balances minutes after they were true, sometimes in another order. What was used since then always counts: the truth
// stays in the estimate, and what is learned of earning and spending is exact.
func TestLateBalancesKeepWhatWasUsedSince(t *testing.T) {
	b := Bucket{Baseline: 0.2, Burst: 1, PerUse: 1.0 / 60, Cap: 1000}
	type shown struct {
		balance, used float64 // of all time until then
		at            time.Time
	}
	rapid.Check(t, func(t *rapid.T) {
		truth, used := 500.0, 0.0
		track, law := b.Unknown(begin), Law{}
		newest := shown{balance: truth, at: begin}
		var waiting []shown
		for i := range rapid.IntRange(60, 400).Draw(t, "windows") {
			use := rapid.Float64Range(0, 1).Draw(t, "use")
			truth, used = b.After(truth, use, 10), used+10*use
			now := track.At.Add(10 * time.Second)
			if i%30 == 0 {
				waiting = append(waiting, shown{truth, used, now})
			}
			if len(waiting) > 0 && rapid.IntRange(0, 40).Draw(t, "shows") == 0 {
				k := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
				newest = waiting[k] // perhaps one from before the last one that was shown
			}
			past := quell.CreditPast{AgeS: now.Sub(newest.at).Seconds(), SeenS: now.Sub(newest.at).Seconds(), Used: used - newest.used}
			balance := newest.balance
			var e *Episode
			track, e = track.Follow(&b, Reading{At: now, WindowS: 10, Use: use, Shown: &balance, Past: &past})
			if slack := 1e-6; truth < track.Low-slack || truth > track.High+slack {
				t.Fatalf("a balance of %v is not in %+v; one that was true %v s ago is shown", truth, track.Estimate, past.AgeS)
			}
			if e != nil {
				if want := b.Drain(e.Use); math.Abs(e.Drain-want) > 1e-6 {
					t.Fatalf("an episode with a use of %v drains %v in a second, want %v", e.Use, e.Drain, want)
				}
				law = law.With(*e)
			}
		}
		if learned, ok := law.Bucket(0); ok && math.Abs(learned.Baseline-b.Baseline) > 0.01 {
			t.Fatalf("learned %+v", learned)
		}
	})
}

func TestAnOlderBalanceChangesNothing(t *testing.T) {
	b := t2micro(t, quell.CPU)
	show := func(balance, age, seen float64) func(*Reading) {
		return func(r *Reading) {
			r.Shown, r.Past = &balance, &quell.CreditPast{AgeS: age, SeenS: seen, Used: 0.5 * seen}
		}
	}
	track := follow(b, b.Unknown(begin), 1, 0.5, show(100, 900, 900))
	if want := 100 - 0.4*15; track.Low > want || track.High < want || track.High > 96+0.2 || track.Low < 94-0.2 {
		t.Errorf("15 minutes old: %+v, want what was left then, less what was used since: %v", track.Estimate, want)
	}
	next := follow(b, track, 1, 0.5, nil)
	for _, late := range []float64{910, 925, 1500} {
		if got := follow(b, track, 1, 0.5, show(140, late, late)); got.Estimate != next.Estimate {
			t.Errorf("a balance that is %v s old replaces a newer one: %+v, want %+v", late, got.Estimate, next.Estimate)
		}
	}
	if got := follow(b, track, 1, 0.5, show(80, 60, 60)); got.High > 80 {
		t.Errorf("a newer one does not: %+v", got.Estimate)
	}
	half := follow(b, follow(b, b.Unknown(begin), 60, 0.5, nil), 1, 0.5, show(100, 900, 450))
	if want := 100 - 0.4*15; half.Low > want || half.High < want || !half.Gap {
		t.Errorf("of which half was not measured: %+v, want the mean use for that half", half.Estimate)
	}
}

func TestASlowInstanceHasNoCredits(t *testing.T) {
	b := t2micro(t, quell.CPU)
	slow := func(r *Reading) { r.Slow = true }
	for _, tc := range []struct {
		why    string
		use    float64
		change func(*Reading)
		known  bool // to be empty
	}{
		{"slow, and held at the baseline", 0.1, slow, true},
		{"held at it within 15%", 0.112, slow, true},
		{"slow for another reason: use is far below", 0.05, slow, false},
		{"slow at full speed: neighbours", 0.9, slow, false},
		{"at the baseline, and fast: it asks for no more", 0.1, nil, false},
	} {
		got := follow(b, b.Unknown(begin), 1, tc.use, tc.change)
		if empty := got.High == 0; empty != tc.known {
			t.Errorf("%s: %+v", tc.why, got.Estimate)
		}
	}
	empty := follow(b, b.Unknown(begin), 1, 0.1, slow)
	if got := follow(b, empty, 360, 0, nil); math.Abs(got.Middle()-6) > 0.01 {
		t.Errorf("after an hour of rest: %+v, want 6 credits", got.Estimate)
	}
	if got := follow(b, empty, 1, 0.8, nil); got.High != b.Cap || got.Low != 0 {
		t.Errorf("it bursts, so it was not empty: %+v", got.Estimate)
	}
}

func TestClocksAndGaps(t *testing.T) {
	b := t2micro(t, quell.CPU)
	track := follow(b, Track{Estimate: Exactly(100), Known: true, At: begin}, 6, 0.1, nil)
	same := track
	if got, _ := track.Follow(&b, Reading{At: track.At, WindowS: 10, Use: 1}); got != same {
		t.Errorf("the same reading again changes %+v to %+v", same, got)
	}
	if got, _ := track.Follow(&b, Reading{At: track.At.Add(-time.Minute), WindowS: 10, Use: 1}); got != same {
		t.Errorf("an older one changes %+v to %+v", same, got)
	}
	back, _ := track.Follow(&b, Reading{At: track.At.Add(-time.Hour), WindowS: 10, Use: 1})
	if back.Estimate != track.Estimate || !back.At.Equal(track.At.Add(-time.Hour)) {
		t.Errorf("after the clock went back an hour: %+v", back)
	}
	gone, _ := track.Follow(&b, Reading{At: track.At.Add(time.Hour), WindowS: 10, Use: 0.1})
	if gone.Low > track.Low-53 || gone.High < track.High+5 {
		t.Errorf("after an hour without readings: %+v", gone.Estimate)
	}
	if got := follow(b, Track{}, 3, 0.5, nil); got.Known {
		t.Errorf("nothing was ever known, and yet %+v", got)
	}
}

func TestForecast(t *testing.T) {
	b := t2micro(t, quell.CPU)
	track := follow(b, Track{Estimate: Exactly(200), Known: true, At: begin}, 60, 0.5, nil)
	f, ok := b.Forecast(track)
	want := (200 - 4.0) / 0.4 * 60
	if !ok || f.Depleted == nil || math.Abs(*f.Depleted-want) > 0.01*want || *f.Soonest >= *f.Depleted || *f.Latest <= *f.Depleted {
		t.Errorf("got %+v, want about %v s", f, want)
	}
	if f, ok := b.Forecast(follow(b, track, 200, 0.05, nil)); !ok || f.Depleted != nil || f.Soonest != nil {
		t.Errorf("below the baseline: %+v, %v", f, ok)
	}
	if _, ok := b.Forecast(Track{}); ok {
		t.Error("a forecast of an unknown balance")
	}
	if _, ok := b.Forecast(b.New(begin)); ok {
		t.Error("a forecast before the first use")
	}
	// A use that swings around the baseline: it is not known whether the balance ever runs out.
	swings := Track{Estimate: Exactly(20), Known: true, At: begin}
	for i := range 100 {
		swings = follow(b, swings, 1, 0.105+0.05*float64(i%2*2-1), nil)
	}
	if f, _ := b.Forecast(swings); f.Latest != nil || f.Soonest == nil {
		t.Errorf("a use around the baseline: %+v", f)
	}
}

// In a gap no more was spent than the link can carry, although the table lacks the burst of a t2.micro. So a gap of two seconds, as at a
// restart of the agent, hardly changes when the credits run out.
func TestAGapForgetsNoBalance(t *testing.T) {
	b := t2micro(t, quell.Network)
	track := b.New(begin)
	track.Estimate = Exactly(123_500)
	const use = 85e6
	track, _ = track.Follow(&b, Reading{At: begin.Add(time.Second), WindowS: 1, Use: use})
	before, _ := b.Forecast(track)
	after, _ := track.Follow(&b, Reading{At: begin.Add(4 * time.Second), WindowS: 1, Use: use})
	left, ok := b.Forecast(after)
	if !ok || after.Low < 123_400-2*5000 || after.High > 123_617 || *left.Depleted < 0.95**before.Depleted {
		t.Errorf("%+v before the gap, %+v after it: %v and %v s", track.Estimate, after.Estimate, *before.Depleted, *left.Depleted)
	}
}

// The true balance of a link stays in the estimate over gaps and restarts, whatever was sent in them, and the estimate never begins anew.
func TestGapsOfALinkKeepTheTruth(t *testing.T) {
	b := t2micro(t, quell.Network)
	rapid.Check(t, func(t *rapid.T) {
		track, truth := b.New(begin), b.Launch
		for range rapid.IntRange(1, 30).Draw(t, "windows") {
			gap := rapid.SampledFrom([]float64{0, 0, 2, 5, 60}).Draw(t, "gap")
			hidden, use := rapid.Float64Range(0, 5e9).Draw(t, "hidden"), rapid.Float64Range(0, 1e9).Draw(t, "use")
			truth = b.After(b.After(truth, hidden, gap), use, 1)
			low := track.Low
			at := track.At.Add(time.Duration((gap + 1) * float64(time.Second)))
			track, _ = track.Follow(&b, Reading{At: at, WindowS: 1, Use: use})
			if slack := 1e-6; truth < track.Low-slack || truth > track.High+slack {
				t.Fatalf("a balance of %v is not in %+v", truth, track.Estimate)
			}
			if least := low - 5000*gap - 1100; track.Low < least {
				t.Fatalf("after a gap of %v s at least %v of %v are left, not %v", gap, least, low, track.Low)
			}
		}
	})
}
