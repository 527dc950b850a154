package health

import "testing"

func TestHealthIsCountedInARow(t *testing.T) {
	tests := []struct {
		why    string
		checks string // + for a check that passed, - for one that failed
		want   bool
	}{
		{"nobody knows it yet", "", false},
		{"the first success is enough", "+", true},
		{"also after failures", "---+", true},
		{"fall 3: two failures are not enough", "+--", true},
		{"three are", "+---", false},
		{"a success starts the count again", "+--+--", true},
		{"rise 2: one success is not enough", "+---+", false},
		{"two are", "+---++", true},
		{"a failure starts the count again", "+---+-+", false},
	}
	for _, tt := range tests {
		var h State
		for _, c := range tt.checks {
			was := h.Up
			if changed := h.Observe(c == '+', 3, 2); changed != (h.Up != was) {
				t.Errorf("%s: changed %v from %v to %v", tt.why, changed, was, h.Up)
			}
		}
		if h.Up != tt.want {
			t.Errorf("%s: %q leads to healthy %v", tt.why, tt.checks, h.Up)
		}
	}
}
