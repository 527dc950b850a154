package life

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// member is an instance that its scaler has in a state and that the balancer has with a share of 0.5.
func member(s quell.State) Instance {
	in := Instance{Member: quell.Member{ID: "i1", Address: "a:1", Probe: "a:2", State: s}, Known: true}
	in.Backend = quell.BackendState{Backend: quell.Backend{ID: "i1", Address: "a:1", Probe: "a:2", Weight: 0.5}, Healthy: true}
	return in
}

func TestNext(t *testing.T) {
	unknown := func(in Instance) Instance { in.Known, in.Backend = false, quell.BackendState{}; return in }
	leaving := func(in Instance, open int64) Instance {
		in.Leaving, in.Since, in.Backend.InFlight = true, epoch.Add(-time.Second), open
		return in
	}
	draining := func(in Instance, open int64) Instance {
		in = leaving(in, open)
		in.Backend.Draining = true
		return in
	}
	atBalancer := func(in Instance, open int64) Instance {
		in.Backend.Draining, in.Backend.InFlight = true, open
		return in
	}
	old := func(in Instance) Instance { in.Since = epoch.Add(-5 * time.Second); return in }
	longAgo := func(in Instance) Instance { in.Since = epoch.Add(-time.Hour); return in }
	ordered := func(in Instance) Instance { in.Held, in.Ordered = &quell.Held{By: "eve"}, true; return in }
	byHand := func(in Instance) Instance { in.Held = &quell.Held{By: "haproxy"}; return in }
	atHand := func(in Instance) Instance { in.Backend.ByHand = &quell.Held{By: "haproxy"}; return in }
	ending := func(in Instance) Instance { in.Ending = true; return in }
	for name, tc := range map[string]struct {
		in   Instance
		want Step
	}{
		"a starting one": {unknown(member(quell.Starting)), Wait},
		"a ready one":    {member(quell.Ready), Share},
		"a ready one that is new to the balancer":  {unknown(member(quell.Ready)), Share},
		"one that exited keeps its place":          {member(quell.Failed), Share},
		"one that exited before it served":         {unknown(member(quell.Failed)), Wait},
		"an order of a person":                     {ordered(member(quell.Ready)), Hold},
		"an order about one that starts":           {ordered(unknown(member(quell.Starting))), Hold},
		"a person at the balancer":                 {byHand(member(quell.Ready)), Share},
		"removed, the balancer not yet told":       {leaving(member(quell.Ready), 0), Drain},
		"removed, requests are open":               {draining(member(quell.Ready), 3), Drain},
		"removed long ago, the balancer not told":  {longAgo(leaving(member(quell.Ready), 5)), Drain},
		"removed, out by hand for too long":        {old(byHand(leaving(atHand(member(quell.Ready)), 3))), Stop},
		"removed and empty":                        {draining(member(quell.Ready), 0), Stop},
		"removed, requests are open for too long":  {old(draining(member(quell.Ready), 3)), Stop},
		"removed before it served":                 {leaving(unknown(member(quell.Starting)), 0), Stop},
		"removed and exited":                       {leaving(member(quell.Failed), 3), Stop},
		"removed, the scaler is ending it already": {draining(member(quell.Draining), 0), Wait},
		"the platform ends it":                     {member(quell.Draining), Drain},
		"the platform ends it, requests are open":  {atBalancer(member(quell.Draining), 3), Drain},
		"the platform ends it, and it is empty":    {atBalancer(member(quell.Draining), 0), Wait},
		"the platform ends it before it served":    {unknown(member(quell.Draining)), Wait},
		"removed, ends by itself, requests open":   {draining(member(quell.Draining), 3), Drain},
		"the scaler was told to end it":            {ending(draining(member(quell.Ready), 0)), Wait},
		"removed although a person took it out":    {ordered(draining(member(quell.Ready), 1)), Drain},
	} {
		if got := tc.in.Next(epoch, 5*time.Second); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	patient := draining(member(quell.Ready), 1)
	if got := patient.Next(epoch.Add(24*time.Hour), 0); got != Drain {
		t.Errorf("without a limit open requests are cut after a day: %d", got)
	}
}

func TestOrphaned(t *testing.T) {
	drains := member(quell.Ready)
	drains.Backend.Draining = true
	for name, tc := range map[string]struct {
		change func(*Instance)
		want   bool
	}{
		"nobody is known to have asked for it": {func(*Instance) {}, true},
		"a plan removed it":                    {func(in *Instance) { in.Leaving = true }, false},
		"a person took it out":                 {func(in *Instance) { in.Held = &quell.Held{By: "eve"} }, false},
		"the balancer keeps it for a person":   {func(in *Instance) { in.Backend.Held = true }, false},
		"the balancer does not have it":        {func(in *Instance) { in.Known = false }, false},
		"it serves":                            {func(in *Instance) { in.Backend.Draining = false }, false},
	} {
		in := drains
		tc.change(&in)
		if in.Orphaned() != tc.want {
			t.Errorf("%s: %t", name, !tc.want)
		}
	}
}

// anyGroup draws a group in which every instance may have any state.
func anyGroup(t *rapid.T) []Instance {
	group := make([]Instance, rapid.IntRange(0, 5).Draw(t, "instances"))
	yes := func(what string) bool { return rapid.Bool().Draw(t, what) }
	for i := range group {
		in := &group[i]
		id := string(rune('a' + i))
		in.Member = quell.Member{ID: id, Address: id + ":1", State: rapid.SampledFrom(quell.States).Draw(t, "state")}
		if in.Known = yes("known"); in.Known {
			in.Backend = quell.BackendState{Backend: quell.Backend{ID: id, Address: id + ":1", Draining: yes("draining")}, Healthy: yes("healthy")}
			in.Backend.InFlight = rapid.Int64Range(0, 2).Draw(t, "open")
			in.Backend.Weight = rapid.Float64Range(0, 1).Draw(t, "weight")
		}
		if yes("held") {
			in.Held, in.Ordered = &quell.Held{By: "eve"}, yes("ordered")
		}
		in.Leaving, in.Ending = yes("leaving"), yes("ending")
		in.Since = epoch.Add(-time.Duration(rapid.IntRange(0, 10).Draw(t, "leaving for")) * time.Second)
	}
	return group
}

func TestFollowLosesNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		group := anyGroup(t)
		weights := map[string]float64{}
		for _, in := range group {
			weights[in.Member.ID] = rapid.Float64Range(0, 1).Draw(t, "share")
		}
		steps := Follow(epoch, group, weights, 5*time.Second)
		listed := map[string]quell.Backend{}
		for _, b := range steps.Backends {
			listed[b.ID] = b
		}
		if len(listed) != len(steps.Backends) {
			t.Fatalf("a backend is listed twice: %v", steps.Backends)
		}
		for _, in := range group {
			id := in.Member.ID
			b, stays := listed[id]
			stops := slices.Contains(steps.Stop, id)
			switch {
			case stops && stays:
				t.Fatalf("%s is stopped and stays in the balancer", id)
			case stops && !in.Leaving:
				t.Fatalf("%s is stopped, though no plan removed it", id)
			case stays && (in.Leaving || in.Ordered || in.Member.State == quell.Draining) != b.Draining:
				t.Fatalf("%+v: as a backend %+v", in, b)
			case b.Draining && b.Weight != 0:
				t.Fatalf("%s drains with a share of %g", id, b.Weight)
			case in.Member.State == quell.Ready && !in.Ending && !stops && !stays:
				t.Fatalf("%s is ready, and the balancer loses it", id)
			}
		}
	})
}

// An instance whose address the scaler no longer knows stays where the balancer has it. One that is nowhere, or where another one is by
// now, is left out: a balancer would refuse the list.
func TestAnInstanceWithoutAnAddress(t *testing.T) {
	homeless := member(quell.Failed)
	homeless.Member.Address, homeless.Member.Probe = "", ""
	other := member(quell.Ready)
	other.Member.ID, other.Member.Address = "i2", "b:1"
	heir := other
	heir.Member.Address = "a:1"
	unknown := homeless
	unknown.Known, unknown.Backend = false, quell.BackendState{}
	unknown.Held, unknown.Ordered = &quell.Held{By: "eve"}, true
	for name, tc := range map[string]struct {
		group []Instance
		want  []string // addresses and probes
	}{
		"the balancer has it":     {[]Instance{homeless, other}, []string{"a:1 a:2", "b:1 a:2"}},
		"another one has its own": {[]Instance{homeless, heir}, []string{"a:1 a:2"}},
		"nobody knows where":      {[]Instance{unknown, other}, []string{"b:1 a:2"}},
	} {
		var got []string
		for _, b := range Follow(epoch, tc.group, nil, 0).Backends {
			got = append(got, b.Address+" "+b.Probe)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestRefilledStepsKeepNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := anyGroup(t), anyGroup(t)
		steps, want := Follow(epoch, before, nil, 5*time.Second), Follow(epoch, after, nil, 5*time.Second)
		steps.Refill(epoch, after, nil, 5*time.Second)
		if !slices.Equal(steps.Backends, want.Backends) || !slices.Equal(steps.Stop, want.Stop) {
			t.Fatalf("refilled %+v, want %+v", steps, want)
		}
	})
}

func TestFollowIsAtRestOnceFollowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := Follow(epoch, anyGroup(t), nil, 5*time.Second)
		inForce := map[string]quell.BackendState{}
		for _, b := range steps.Backends {
			inForce[b.ID] = quell.BackendState{Backend: b}
		}
		if Differs(steps.Backends, inForce) {
			t.Fatalf("differs from itself: %+v", steps.Backends)
		}
	})
}

func TestDiffers(t *testing.T) {
	is := quell.BackendState{Backend: quell.Backend{ID: "i1", Address: "a:1", Probe: "a:2", Weight: 0.5}}
	for name, tc := range map[string]struct {
		change func(*quell.Backend)
		want   bool
	}{
		"the same":          {func(*quell.Backend) {}, false},
		"rounding":          {func(b *quell.Backend) { b.Weight += resolution / 2 }, false},
		"another share":     {func(b *quell.Backend) { b.Weight += 0.01 }, true},
		"another address":   {func(b *quell.Backend) { b.Address = "b:1" }, true},
		"another probe":     {func(b *quell.Backend) { b.Probe = "" }, true},
		"it drains":         {func(b *quell.Backend) { b.Draining = true }, true},
		"a person holds it": {func(b *quell.Backend) { b.Held = true }, true},
		"another one":       {func(b *quell.Backend) { b.ID = "i2" }, true},
	} {
		wanted := is.Backend
		tc.change(&wanted)
		if Differs([]quell.Backend{wanted}, map[string]quell.BackendState{"i1": is}) != tc.want {
			t.Errorf("%s: differs is %t", name, !tc.want)
		}
	}
	byHand := is
	byHand.ByHand = &quell.Held{By: "haproxy"}
	wanted := is.Backend
	wanted.Draining = true
	if Differs([]quell.Backend{wanted}, map[string]quell.BackendState{"i1": byHand}) {
		t.Error("what a person did at the balancer is overruled")
	}
	if !Differs(nil, map[string]quell.BackendState{"i1": is}) {
		t.Error("a backend that is to go is not missed")
	}
}

func TestInForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		group := anyGroup(t)
		planned := map[string]float64{}
		for _, in := range group {
			if rapid.Bool().Draw(t, "planned") {
				planned[in.Member.ID] = rapid.SampledFrom([]float64{0, 0.25, 1}).Draw(t, "share")
			}
		}
		weights := InForce(group, planned)
		ready, reached, sum := 0, 0.0, 0.0
		for _, in := range group {
			if in.Member.State == quell.Ready && !in.Leaving && in.Held == nil {
				ready++
				reached += weights[in.Member.ID]
				sum += planned[in.Member.ID]
			}
		}
		switch {
		case ready > 0 && reached == 0:
			t.Fatalf("%d are ready and get nothing", ready)
		case sum > 0 && reached != sum:
			t.Fatalf("the plan's shares %v became %v", planned, weights)
		case ready > 0 && sum == 0 && math.Abs(reached-1) > quell.SumTolerance:
			t.Fatalf("shares of %v", weights)
		}
	})
}

func TestFirst(t *testing.T) {
	for _, tc := range []struct {
		group quell.Group
		want  int
	}{
		{quell.Group{Min: 2, Max: 5}, 2},
		{quell.Group{Min: 2, Max: 5, Initial: 3}, 3},
		{quell.Group{Min: 2, Max: 5, Initial: 9}, 5},
	} {
		if got := First(tc.group); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc.group, got, tc.want)
		}
	}
}

func TestWatch(t *testing.T) {
	for sampling, want := range map[time.Duration]time.Duration{time.Second: 250 * time.Millisecond,
		10 * time.Second: 500 * time.Millisecond} {
		if got := Watch(sampling); got != want {
			t.Errorf("every %v of %v, want %v", got, sampling, want)
		}
	}
}
