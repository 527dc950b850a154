package command

import (
	"testing"
	"time"

	"github.com/quellhq/quell"
)

func TestMeter(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	up := func(id string, started float64) quell.Member {
		return quell.Member{ID: id, State: quell.Ready, Started: at(started)}
	}
	m := newMeter(at(0))
	steps := []struct {
		why  string
		at   float64
		list []quell.Member
		want float64
	}{
		{"a runs since long before: it costs from the beginning", 10, []quell.Member{up("a", -500)}, 10},
		{"b started at 16", 20, []quell.Member{up("a", -500), up("b", 16)}, 10 + 10 + 4},
		{"a is gone, at the latest now", 30, []quell.Member{up("b", 16)}, 24 + 20},
		{"b failed, at the latest now", 40, []quell.Member{{ID: "b", State: quell.Failed, Started: at(16)}}, 44 + 10},
		{"nothing runs", 50, nil, 54},
		{"c tells a start in the future", 60, []quell.Member{up("c", 61)}, 54},
		{"an answer that comes late changes nothing", 55, []quell.Member{up("d", 0)}, 54},
	}
	for _, s := range steps {
		m.observe(at(s.at), s.list)
		if got := m.seconds(at(max(s.at, m.last.Sub(at(0)).Seconds()))); got != s.want {
			t.Errorf("%s: at %v s the cost is %v, not %v", s.why, s.at, got, s.want)
		}
	}
	if got := m.seconds(at(65)); got != 59 {
		t.Errorf("between lists the cost goes on: %v, not 59", got)
	}
}
