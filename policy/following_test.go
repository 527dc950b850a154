package policy_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// played makes decisions over windows in which instances have these weights and get these shares of n requests.
func played(t *testing.T, rows [][]string) (said []string, last policy.State) {
	t.Helper()
	e, err := all.NewEngine(guarding("static", func(*quell.Service) {}), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		s := snap(t, i, row...)
		for k := range s.Instances {
			in := &s.Instances[k]
			rate := *in.Share * 100
			in.Observation.RequestRate, in.Observation.WindowS = &rate, period
		}
		var plan quell.Plan
		plan, last = e.Decide(s, last)
		for _, r := range plan.Reasons {
			if r.Code == "unfollowed" || r.Code == "followed" {
				said = append(said, r.Code)
			}
		}
	}
	return said, last
}

func repeated(n int, row ...string) [][]string { return slices.Repeat([][]string{row}, n) }

// Requests that do not follow the weights for some windows are said once, and once that they do again.
func TestFollowing(t *testing.T) {
	stuck, follows := []string{"i1 weight=0.2 got=0.5", "i2 weight=0.8 got=0.5"}, []string{"i1 weight=0.2 got=0.22", "i2 weight=0.8 got=0.78"}
	half := []string{"i1 weight=0.2 got=0.35", "i2 weight=0.8 got=0.65"}
	for why, c := range map[string]struct {
		rows [][]string
		said []string
		part float64
	}{
		"they follow":                {repeated(20, follows...), nil, 0},
		"stuck for too short a time": {append(repeated(policy.ApartFor-1, stuck...), follows), nil, 0},
		"stuck, and said once":       {repeated(20, stuck...), []string{"unfollowed"}, 0},
		"half of it":                 {repeated(20, half...), []string{"unfollowed"}, 0.5},
		"stuck, and then no more":    {append(repeated(10, stuck...), follows), []string{"unfollowed", "followed"}, 0},
		"even weights, uneven shares": {repeated(20, "i1 weight=0.5 got=0.8", "i2 weight=0.5 got=0.2"),
			[]string{"unfollowed"}, 1},
		"a reading is missing": {append(repeated(3, stuck...), append(repeated(1, "i1 weight=0.2 got=0.5 seen=1000", "i2 weight=0.8 got=0.5"),
			repeated(2, stuck...)...)...), []string{"unfollowed"}, 0},
	} {
		said, st := played(t, c.rows)
		if !slices.Equal(said, c.said) || math.Abs(st.Following.Part-c.part) > 1e-9 {
			t.Errorf("%s: said %q, part %v; want %q, %v", why, said, st.Following.Part, c.said, c.part)
		}
		data, err := json.Marshal(&st)
		var again policy.State
		if err == nil {
			err = restore(data, &again)
		}
		if err != nil || again.Following != st.Following {
			t.Errorf("%s: %+v became %+v, %v", why, st.Following, again.Following, err)
		}
	}
}

// Few requests, and differences that chance explains, say nothing.
func TestFollowingNeedsRequests(t *testing.T) {
	weight, other, share, rest := 0.3, 0.7, 0.45, 0.55
	for requests, want := range map[float64]int32{20: 0, 60: 0, 2000: 1} {
		rate := requests / 2
		g := &policy.Group{}
		for _, x := range [][2]*float64{{&weight, &share}, {&other, &rest}} {
			m := &policy.Member{Instance: &quell.Instance{Weight: x[0], Share: x[1],
				Observation: &quell.Observation{RequestRate: &rate, WindowS: 1}}}
			m.Fresh = true
			g.Ready = append(g.Ready, m)
		}
		if got := (policy.Following{}).Follow(g, quell.RoundRobin); got.Apart != want {
			t.Errorf("of %v requests %+v, want %d", requests, got, want)
		}
		if got := (policy.Following{}).Follow(g, quell.LeastConn); got.Apart != 0 {
			t.Errorf("over leastconn %+v", got)
		}
	}
}

// Of a change of weights only the part is expected that was seen.
func TestExpectedShare(t *testing.T) {
	weight, got := 0.2, 0.5
	m := &policy.Member{Instance: &quell.Instance{Weight: &weight, Share: &got}}
	m.Planned = 0.1
	for f, want := range map[policy.Following]float64{{}: 0.1, {Apart: policy.ApartFor, Part: 0}: 0.5,
		{Apart: policy.ApartFor, Part: 0.5}:     0.45,
		{Apart: policy.ApartFor - 1, Part: 0.5}: 0.1} {
		if have := f.Expected(m); math.Abs(have-want) > 1e-9 {
			t.Errorf("%+v: %v, want %v", f, have, want)
		}
	}
}
