package budget

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var aim99 = Aim{Allowed: 0.01, Startup: 30 * time.Second}

// calmLesson is a period whose load stays as far below the room as is usual.
func calmLesson(excess float64) Lesson { return Lesson{Seconds: 10, Excess: excess} }

// Before anything was seen, a service whose instances start slowly keeps more in reserve, and one that may miss less, too.
func TestThePriorFollowsTheStart(t *testing.T) {
	var r Reserve
	quick, slow := r.Share(Aim{Allowed: 0.01, Startup: 3 * time.Second}), r.Share(aim99)
	strict := r.Share(Aim{Allowed: 0.002, Startup: 30 * time.Second})
	if !(0.05 < quick && quick < slow && slow < strict && strict < MostReserve) {
		t.Errorf("3 s: %v, 30 s: %v, strict: %v", quick, slow, strict)
	}
}

// The reserve becomes what the load rises above the room in the allowed part of the time, and it moves slowly.
func TestTheReserveFollowsTheExcess(t *testing.T) {
	for _, spread := range []float64{0.02, 0.1} {
		rng, r := rand.New(rand.NewPCG(1, 2)), Reserve{}
		for range 3600 {
			before := r.Share(aim99)
			l := calmLesson(math.Exp(spread * rng.NormFloat64()))
			if l.Excess*(1-before) > 1 {
				l.Missed = 1
			}
			r, _ = r.Follow(aim99, l)
			if step := math.Abs(r.Share(aim99) - before); step > 0.06 {
				t.Fatalf("a single period moves it by %v", step)
			}
		}
		want := 1 - math.Exp(-2.33*spread) // the 99th percentile of a normal distribution
		if got := r.Share(aim99); math.Abs(got-want) > 0.03 {
			t.Errorf("spread %v: %v, want %v", spread, got, want)
		}
		if rate := r.Missed / r.Judged; rate < 0.004 || rate > 0.015 {
			t.Errorf("spread %v: %v was missed", spread, rate)
		}
	}
}

// If the predictions are too good, what is really missed raises the reserve all the same; it stays within its bounds.
func TestRealMissesCount(t *testing.T) {
	r := Reserve{}
	for range 360 {
		r, _ = r.Follow(aim99, calmLesson(0.9))
	}
	before := r.Share(aim99)
	for range 60 {
		l := calmLesson(0.9)
		l.Missed = 0.5
		r, _ = r.Follow(aim99, l)
	}
	if after := r.Share(aim99); after < before+0.05 || after > MostReserve {
		t.Errorf("%v before, %v after", before, after)
	}
}

// Where something else than the reserve makes the group large, calm periods do not lower it; misses raise it, as far as they are too many.
func TestPeriodsThatAreNotTheReserves(t *testing.T) {
	r := Reserve{}
	for range 60 {
		r, _ = r.Follow(aim99, calmLesson(0.9))
	}
	before := r
	for k := range 8 * 360 {
		l := calmLesson(0)
		if k > 4*360 && k%100 == 0 {
			l.Missed = 1
		}
		r, _ = r.Follow(aim99, l)
	}
	if r.Share(aim99) < before.Share(aim99) || r.Trim > before.Trim+0.05 {
		t.Errorf("%v, trim %v, before %v, trim %v", r.Share(aim99), r.Trim, before.Share(aim99), before.Trim)
	}
	for range 20 {
		l := calmLesson(0)
		l.Missed = 1
		r, _ = r.Follow(aim99, l)
	}
	if r.Trim < before.Trim+0.1 {
		t.Errorf("trim %v, before %v", r.Trim, before.Trim)
	}
}

// Where a larger reserve does not help, it is taken back, and this is said once.
func TestWhatDoesNotHelpIsTakenBack(t *testing.T) {
	r, said, most := Reserve{}, 0, 0.0
	for range 2 * 360 {
		l := calmLesson(0.9)
		l.Missed = 0.05
		var told string
		r, told = r.Follow(aim99, l)
		most = math.Max(most, r.Trim)
		if strings.Contains(told, "did not help") {
			said++
		}
	}
	if said != 1 || most < 0.15 || r.Trim > 0.05 {
		t.Errorf("said %d times; at most %v, now %v", said, most, r.Trim)
	}
}

// Where it helps, it stays.
func TestWhatHelpsStays(t *testing.T) {
	r := Reserve{}
	for range 3 * 360 {
		l := calmLesson(0.9)
		l.Missed = math.Max(0, 0.05-0.25*math.Max(0, r.Trim))
		var told string
		if r, told = r.Follow(aim99, l); told != "" {
			t.Fatal(told)
		}
	}
	if r.Trim < 0.1 {
		t.Errorf("%v", r.Trim)
	}
}

// A reserve is the same after it was stored, and the one that was given is not changed.
func TestAReserveIsAValue(t *testing.T) {
	r, _ := Reserve{}.Follow(aim99, calmLesson(1.2))
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again Reserve
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		_, _ = r.Follow(aim99, calmLesson(1.5))
	}
	if a, b := again.Share(aim99), r.Share(aim99); a != b {
		t.Errorf("%v and %v", a, b)
	}
	again.Excess = again.Excess[:3] // of another version
	if got := again.Share(aim99); math.IsNaN(got) || got <= 0 {
		t.Errorf("%v", got)
	}
}

// Where periods that say nothing of the reserve and others alternate, what a miss in the former raised goes back in them too.
func TestSurplusPeriodsAreNoRatchet(t *testing.T) {
	aim := Aim{Allowed: 0.01, Startup: time.Minute}
	var r Reserve
	for period := range 12 * 360 {
		l := Lesson{Seconds: 10}
		if period%10 == 0 {
			l.Excess = 0.8
		}
		if period%200 == 5 { // half of what may be missed
			l.Missed = 1
		}
		r, _ = r.Follow(aim, l)
	}
	if r.Trim > 0.02 {
		t.Errorf("half of the budget was used, and the reserve grew by %.3f", r.Trim)
	}
}
