package budget

import (
	"math"
	"testing"
)

// TestSlack: a second that is missed lowers what may be used by as much as 99 seconds give back. A long miss counts for some seconds, and a
// part that is allowed is no miss.
func TestSlack(t *testing.T) {
	s := Slack{}.Follow(1, 2)
	if want := 2 * 99 * SlackStep; math.Abs(s.Held-want) > 1e-9 {
		t.Errorf("after two seconds %.5f is left free, want %.5f", s.Held, want)
	}
	long := s.Follow(1, 100)
	if want := LongestMiss * 99 * SlackStep; math.Abs(long.Held-want) > 1e-9 || long.Follow(1, 100) != long {
		t.Errorf("a long miss counts for %.5f, want %.5f", long.Held, want)
	}
	if back := s.Follow(0, 198); math.Abs(back.Held) > 1e-9 || back.Episode != 0 {
		t.Errorf("after 198 s without a miss: %+v", back)
	}
	if half := long.Follow(SlackMissed/2, 100); math.Abs(long.Held-half.Held-50*SlackStep) > 1e-9 || half.Episode != 0 {
		t.Errorf("half of what is allowed is missed for 100 s: %+v, before %+v", half, long)
	}
	if all := long.Follow(SlackMissed, 100); all.Held != long.Held {
		t.Errorf("all that is allowed is missed: %+v, before %+v", all, long)
	}
}
