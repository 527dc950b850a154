package life

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

const startup = 30 * time.Second

// when is a moment of a group whose balancer has an instance.
func when(after time.Duration) *times {
	return &times{now: epoch.Add(after), startup: startup, watch: 500 * time.Millisecond}
}

func TestState(t *testing.T) {
	ill := func(in *Instance) { in.Backend.Healthy, in.Backend.Weight = false, 0 }
	since := func(at time.Time) func(*Instance) { return func(in *Instance) { ill(in); in.Past.Known = at } }
	held := func(in *Instance) { in.Held, in.Backend.Draining = &quell.Held{}, true }
	for name, tc := range map[string]struct {
		is     quell.State // state reported by the scaler
		change func(*Instance)
		want   quell.State
	}{
		"healthy":                                  {quell.Ready, func(*Instance) {}, quell.Ready},
		"starting":                                 {quell.Starting, func(in *Instance) { in.Known = false }, quell.Starting},
		"starting, and a list names it already":    {quell.Starting, func(*Instance) {}, quell.Starting},
		"the balancer has not heard of it":         {quell.Ready, func(in *Instance) { in.Known = false }, quell.Starting},
		"no health check has passed yet":           {quell.Ready, ill, quell.Starting},
		"none has passed for as long as it may be": {quell.Ready, since(epoch.Add(-startup)), quell.Starting},
		"none has passed for longer":               {quell.Ready, since(epoch.Add(-startup - 1)), quell.Failed},
		"it was healthy": {quell.Ready, func(in *Instance) { ill(in); in.Past = Past{Healthy: true, Known: epoch} },
			quell.Failed},
		"it has requests, and checks fail":          {quell.Ready, func(in *Instance) { in.Backend.Healthy = false }, quell.Failed},
		"exited":                                    {quell.Failed, func(*Instance) {}, quell.Failed},
		"exited while it left":                      {quell.Failed, func(in *Instance) { in.Leaving = true }, quell.Failed},
		"the scaler ends it":                        {quell.Draining, func(*Instance) {}, quell.Draining},
		"a plan removed it":                         {quell.Ready, func(in *Instance) { in.Leaving = true }, quell.Draining},
		"a plan removed it before it was ready":     {quell.Starting, func(in *Instance) { in.Leaving, in.Known = true, false }, quell.Draining},
		"the balancer drains it":                    {quell.Ready, func(in *Instance) { in.Backend.Draining = true }, quell.Draining},
		"the balancer drains it for a person":       {quell.Ready, held, quell.Ready},
		"a person took it out, and checks fail too": {quell.Ready, func(in *Instance) { ill(in); held(in); in.Past.Healthy = true }, quell.Ready},
	} {
		in := member(tc.is)
		tc.change(&in)
		if got := in.state(when(0)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// If no instance is ready yet, InForce gives shares before the first health check. Such an instance is starting, not failed: otherwise
// another one would be started in its place.
func TestAShareBeforeTheFirstCheck(t *testing.T) {
	in := member(quell.Ready)
	in.Known = false
	in.Note(epoch) // called between two snapshots, as the controller does
	in.Known, in.Backend.Weight, in.Backend.Healthy = true, 0.5, false
	for _, tc := range []struct {
		after time.Duration
		want  quell.State
	}{{0, quell.Starting}, {startup, quell.Starting}, {startup + 1, quell.Failed}} {
		if got := in.state(when(tc.after)); got != tc.want {
			t.Errorf("%s after %v without a check, want %s", got, tc.after, tc.want)
		}
	}
	in.Past.Known, in.Backend.Healthy = epoch, true
	in.state(when(0))
	in.Backend.Healthy = false
	if got := in.state(when(0)); got != quell.Failed {
		t.Errorf("%s once it was healthy", got)
	}
}

// An instance that a person puts back may take as long to become healthy as a new one.
func TestAHoldForgetsThePast(t *testing.T) {
	in := member(quell.Ready)
	in.Backend.Weight, in.Held, in.Past = 0, &quell.Held{By: "eve"}, Past{Healthy: true, Known: epoch.Add(-time.Hour)}
	in.state(when(0))
	in.Held, in.Backend.Healthy = nil, false
	if got := in.state(when(0)); got != quell.Starting {
		t.Errorf("%s as soon as it is put back", got)
	}
	if got := in.state(when(startup + time.Second)); got != quell.Failed {
		t.Errorf("%s long after it was put back", got)
	}
}

func TestSnapshotShows(t *testing.T) {
	in := member(quell.Ready)
	in.Member.Type, in.Member.Started = "small", epoch.Add(-time.Minute)
	in.Observation = &quell.Observation{}
	out, ahead := in, in
	out.Held, out.Backend.Healthy, out.Backend.Health = &quell.Held{By: "eve"}, false, "refused"
	ahead.Member.Started = epoch.Add(time.Hour)
	s := Snapshot(epoch, &quell.Service{Name: "shop"}, []Instance{in, out, ahead})
	first, second := s.Instances[0], s.Instances[1]
	if s.Service != "shop" || !s.At.Equal(epoch) || first.Type != "small" || first.Observation != in.Observation {
		t.Errorf("%+v", s)
	}
	if *first.AgeS != 60 || *first.Weight != 0.5 || first.Health != "" {
		t.Errorf("a ready one of a minute: %+v", first)
	}
	if second.Weight != nil || second.Held.By != "eve" || second.Health != "refused" {
		t.Errorf("one that a person took out: %+v", second)
	}
	if *s.Instances[2].AgeS != 0 {
		t.Errorf("one that starts in the future is %g s old", *s.Instances[2].AgeS)
	}
}

func TestWeightsAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		group := anyGroup(t)
		s := Snapshot(epoch, &quell.Service{}, group)
		sum, shown := 0.0, 0
		for i, in := range s.Instances {
			if in.ID != group[i].Member.ID {
				t.Fatalf("%s stands where %s is", in.ID, group[i].Member.ID)
			}
			if in.Weight != nil {
				sum += *in.Weight
				shown++
			}
		}
		if shown > 0 && math.Abs(sum-1) > quell.SumTolerance {
			t.Fatalf("weights sum to %g", sum)
		}
	})
}

// The measured share is the part of the requests, whatever the weights are. An instance without a count has none.
func TestMeasuredShare(t *testing.T) {
	group := []Instance{member(quell.Ready), member(quell.Ready), member(quell.Ready)}
	for i, rate := range []float64{30, 90} {
		base := float64(i + 1)
		group[i].Observation = &quell.Observation{RequestRate: &rate}
		group[i].Backend.Base = &base
	}
	s := Snapshot(epoch, &quell.Service{}, group)
	if got := s.Instances; *got[0].Share != 0.25 || *got[1].Share != 0.75 || got[2].Share != nil {
		t.Errorf("shares %v, %v, %v", got[0].Share, got[1].Share, got[2].Share)
	}
	if got := s.Instances; *got[1].Base != 2 || got[2].Base != nil {
		t.Errorf("base weights %v, %v", got[1].Base, got[2].Base)
	}
}

// What was healthy and is gone from the balancer has failed, unless the balancer may only have restarted.
func TestVanishedFromTheBalancer(t *testing.T) {
	seen := func(last quell.State) Instance { // gone since the beginning, after it was in that state
		in := member(last)
		in.Backend.Healthy = last == quell.Ready
		in.state(when(0))
		in.Member.State, in.Known, in.Backend = quell.Ready, false, quell.BackendState{}
		in.Note(epoch)
		return in
	}
	briefly := func(in *Instance) { in.Known = true; in.Note(epoch); in.Known = false }
	back := func(in *Instance) { in.Known, in.Backend.Healthy = true, true }
	for why, c := range map[string]struct {
		last   quell.State
		after  time.Duration
		change func(*Instance)
		want   quell.State
	}{
		"it is not told again":            {quell.Ready, time.Second, func(*Instance) {}, quell.Failed},
		"it was noticed just now":         {quell.Ready, 0, func(*Instance) {}, quell.Starting},
		"it had not been healthy":         {quell.Failed, time.Second, func(in *Instance) { in.Past = Past{Known: epoch} }, quell.Starting},
		"a plan removed it":               {quell.Ready, time.Second, func(in *Instance) { in.Leaving = true }, quell.Draining},
		"a person held it":                {quell.Ready, time.Second, func(in *Instance) { in.Held = &quell.Held{} }, quell.Ready},
		"the scaler starts it anew":       {quell.Ready, time.Second, func(in *Instance) { in.Member.State = quell.Starting }, quell.Starting},
		"it is there again":               {quell.Ready, time.Second, back, quell.Ready},
		"it is there again, and unwell":   {quell.Ready, time.Second, func(in *Instance) { in.Known = true }, quell.Failed},
		"it was there for a while since":  {quell.Ready, time.Second, briefly, quell.Starting},
		"it was started anew in the past": {quell.Ready, time.Second, func(in *Instance) { in.Past = Past{Begun: true} }, quell.Starting},
	} {
		in := seen(c.last)
		c.change(&in)
		if got := in.state(when(c.after)); got != c.want {
			t.Errorf("%s: %s, want %s", why, got, c.want)
		}
	}
	gone, other := seen(quell.Ready), member(quell.Ready)
	service := &quell.Service{Sampling: 10 * time.Second}
	if s := Snapshot(epoch.Add(time.Second), service, []Instance{gone, other}); !s.Instances[0].Gone || s.Instances[1].Gone {
		t.Errorf("%+v", s)
	}
	if s := Snapshot(epoch.Add(time.Second), service, []Instance{gone, gone}); s.Instances[0].State != quell.Starting || s.Instances[0].Gone {
		t.Errorf("the balancer lost all: %+v", s.Instances)
	}
}
