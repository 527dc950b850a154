package page

import (
	"fmt"
	"testing"
	"time"
)

// What was noticed more than once is told when it has ended, for some minutes, and no longer once it is back.
func TestOver(t *testing.T) {
	var p past
	minute := func(m int) int64 { return int64(m) * time.Minute.Milliseconds() }
	neighbour := Noise{ID: "a", What: "neighbours use about 40% of its network", Since: minute(1)}
	for _, step := range []struct {
		at    int
		noisy []Noise
		want  []Over
	}{
		{1, []Noise{{ID: "a", Since: minute(1), Once: true}, {ID: "b", Since: minute(1), Once: true}}, nil},
		{2, []Noise{neighbour}, nil}, // b was seen once: nothing to tell
		{3, nil, []Over{{"a", neighbour.What, minute(1), minute(3)}}},
		{4, nil, []Over{{"a", neighbour.What, minute(1), minute(3)}}},
		{5, []Noise{{ID: "a", Since: minute(5), Once: true}}, nil}, // back
		{6, []Noise{{ID: "a", What: "x", Since: minute(5)}, {ID: "c", What: "y", Since: minute(2)}}, nil},
		{7, []Noise{{ID: "c", What: "y", Since: minute(2)}}, []Over{{"a", "x", minute(5), minute(7)}}},
		{9, nil, []Over{{"c", "y", minute(2), minute(9)}, {"a", "x", minute(5), minute(7)}}},
		{23, nil, []Over{{"c", "y", minute(2), minute(9)}}},
		{4, nil, nil}, // the clock was set back
	} {
		p.follow(minute(step.at), step.noisy)
		if got := p.last(); fmt.Sprint(got) != fmt.Sprint(step.want) {
			t.Errorf("minute %d: %v, want %v", step.at, got, step.want)
		}
	}
}

// Ten thousand that end at once are kept within bounds.
func TestOverIsBounded(t *testing.T) {
	var all []Noise
	for i := range 10_000 {
		all = append(all, Noise{ID: fmt.Sprintf("i%04d", i), Since: 1})
	}
	var p past
	p.follow(1, all)
	p.follow(2, nil)
	if got := p.last(); len(got) != mostOver || got[0].ID != "i9999" || len(p.over) > keptOver {
		t.Errorf("%d kept, shown %v", len(p.over), got)
	}
}
