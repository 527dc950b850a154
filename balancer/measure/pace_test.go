package measure

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	var p Pace
	p.Set(10*time.Second, 0)
	if p.Fast() || p.Shortest() != 10*time.Second {
		t.Errorf("without a fast policy: %v, %t", p.Shortest(), p.Fast())
	}
	p.Set(10*time.Second, time.Second)
	if !p.Fast() || p.Shortest() != time.Second || !p.Ends(time.Unix(20, 3e8)) || p.Ends(time.Unix(21, 0)) {
		t.Errorf("with one: %v, %t", p.Shortest(), p.Fast())
	}
}
