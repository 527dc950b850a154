package credits

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

var begin = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// fixed is a driver that shows what a test sets.
type fixed struct {
	shown map[quell.Resource]Balance
	err   error
}

func (f *fixed) Run(context.Context) error                  { return nil }
func (f *fixed) Shown() (map[quell.Resource]Balance, error) { return f.shown, f.err }

// window of one period with a utilisation of the processors.
func observed(at time.Time, seconds, use float64) quell.Observation {
	return quell.Observation{At: at, WindowS: seconds, Utilization: map[quell.Resource]float64{quell.CPU: use}}
}

func TestUseSinceTheBalanceIsIntegrated(t *testing.T) {
	f := &fixed{shown: map[quell.Resource]Balance{quell.CPU: {Credits: 30, At: begin.Add(5 * time.Second)}}}
	s := NewSensor(f)
	now := begin
	for _, use := range []float64{0.2, 0.4, 0.8} { // of which half of the first is before the balance
		now = now.Add(10 * time.Second)
		o := observed(now, 10, use)
		if err := s.Sample(now, &o); err != nil || o.Credits[quell.CPU] != 30 {
			t.Fatalf("%v, %v", o.Credits, err)
		}
		if o.Validate() != nil {
			t.Error(o.Validate())
		}
		if now.Equal(begin.Add(30 * time.Second)) {
			got, want := o.CreditsPast[quell.CPU], quell.CreditPast{AgeS: 25, SeenS: 25, Used: 1 + 4 + 8}
			if math.Abs(got.Used-want.Used) > 1e-9 || got.AgeS != want.AgeS || got.SeenS != want.SeenS {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
	}
	f.shown[quell.CPU] = Balance{Credits: 30, At: begin.Add(-30 * time.Second)}
	now = now.Add(10 * time.Second)
	o := observed(now, 10, 0)
	if err := s.Sample(now, &o); err != nil || o.CreditsPast[quell.CPU].AgeS != 70 || o.CreditsPast[quell.CPU].SeenS != 40 {
		t.Errorf("of the time before the start nothing is known: %+v, %v", o.CreditsPast, err)
	}
}

func TestBalancesThatAreNotReported(t *testing.T) {
	for _, tc := range []struct {
		why   string
		at    time.Time
		given error
		want  string
	}{
		{"too old", begin.Add(-2 * time.Hour), nil, "is 2h0m0s old"},
		{"too old because the provider does not answer", begin.Add(-2 * time.Hour), errors.New("no answer"), "no answer"},
		{"of a time to come", begin.Add(time.Hour), nil, ""},
	} {
		s := NewSensor(&fixed{map[quell.Resource]Balance{quell.CPU: {Credits: 30, At: tc.at}}, tc.given})
		o := observed(begin, 10, 0.5)
		err := s.Sample(begin, &o)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || o.Credits != nil {
			t.Errorf("%s: %v, %v", tc.why, o.Credits, err)
		}
	}
}

// However windows lie, no more time is seen than has passed, and the use lies between the lowest and the highest.
func TestThePastIsPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := begin.Add(time.Duration(rapid.IntRange(-600, 600).Draw(t, "at")) * time.Second)
		s, now := NewSensor(&fixed{shown: map[quell.Resource]Balance{quell.CPU: {At: at}}}), begin
		for range rapid.IntRange(1, 60).Draw(t, "windows") {
			seconds := rapid.Float64Range(0, 400).Draw(t, "window")
			now = now.Add(time.Duration((seconds + rapid.Float64Range(0, 300).Draw(t, "gap")) * float64(time.Second)))
			o := observed(now, seconds, rapid.Float64Range(0.2, 0.6).Draw(t, "use"))
			_ = s.Sample(now, &o)
			past, shown := o.CreditsPast[quell.CPU]
			if shown && (o.Validate() != nil || past.Used < 0.2*past.SeenS-1e-6 || past.Used > 0.6*past.SeenS+1e-6) {
				t.Fatalf("%+v: %v", past, o.Validate())
			}
		}
	})
}
