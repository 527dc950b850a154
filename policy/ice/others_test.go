package ice

import (
	"testing"
	"time"

	"github.com/quellhq/quell/policy/bands"
)

const workers, keepAlive = "apache.MaxRequestWorkers", "apache.KeepAliveTimeout"

// tunedShop is a shop in which both parameters of i2 were changed because of interference. It returns the changed values.
func tunedShop(t *testing.T) (s *shop, now map[string]float64, changed [2]float64) {
	t.Helper()
	s = newShop(t, 3, nil, tuned)
	s.seconds(2 * bands.Known)
	s.servers[1].hidden, s.servers[1].ms = 0.6, 45
	s.seconds(25)
	now = s.settings["i2"]
	if now[workers] == 200 || now[keepAlive] == 5 {
		t.Fatalf("nothing was changed: %v", now)
	}
	return s, now, [2]float64{now[workers], now[keepAlive]}
}

func (s *shop) calm() { s.servers[1].hidden, s.servers[1].ms = 0, 20 }

// If somebody else sets a parameter while ice holds it, that value stays. The other parameters go back, and the next interference changes
// all of them again.
func TestICELeavesWhatSomebodyElseSets(t *testing.T) {
	for name, both := range map[string]bool{"one": false, "all": true} {
		s, now, _ := tunedShop(t)
		now[workers] = 300
		want := map[string]float64{workers: 300, keepAlive: 5}
		if both {
			now[keepAlive], want[keepAlive] = 3, 3
		}
		s.second()
		s.second()
		if plan := s.second(); !hasReason(plan, "setting", "i2") {
			t.Errorf("%s: %v", name, plan.Reasons)
		}
		for range 100 {
			if s.second(); now[workers] != 300 {
				t.Fatalf("%s: during the interference: %v", name, now)
			}
		}
		s.calm()
		for range 100 {
			if s.second(); now[workers] != 300 {
				t.Fatalf("%s: after the interference: %v", name, now)
			}
		}
		if now[keepAlive] != want[keepAlive] {
			t.Errorf("%s: after the interference: %v, want %v", name, now, want)
		}
		s.servers[1].hidden, s.servers[1].ms = 0.6, 45
		if s.seconds(60); now[workers] >= 300 {
			t.Errorf("%s: in the next interference: %v", name, now)
		}
		s.calm()
		if s.seconds(100); now[workers] != 300 || now[keepAlive] != want[keepAlive] {
			t.Errorf("%s: after the next interference: %v, want %v", name, now, want)
		}
	}
}

// While nginx reloads, it may have any number of workers for a moment. That is no one else's value, whether parameters change or go back.
func TestICEValuesOfAMoment(t *testing.T) {
	s, now, changed := tunedShop(t)
	moment := func() {
		for _, n := range []float64{7, 9} {
			now[workers] = n
			s.second()
		}
		now[workers] = changed[0] // nothing else is in the file
		s.second()
	}
	for range 3 {
		if moment(); now[workers] != changed[0] {
			t.Fatalf("during the interference: %v", now)
		}
	}
	s.refused = map[string]bool{workers: true}
	s.calm()
	s.seconds(60)
	moment()
	s.refused = nil
	if s.seconds(3); now[workers] != 200 || now[keepAlive] != 5 {
		t.Errorf("after the interference: %v", now)
	}
}

// A parameter that is back is not ordered any more, although another one is not back yet.
func TestICEParametersGoBackOneByOne(t *testing.T) {
	s, now, changed := tunedShop(t)
	s.refused = map[string]bool{keepAlive: true}
	s.calm()
	s.seconds(60)
	if plan := s.second(); now[workers] != 200 || len(plan.Settings) != 1 || plan.Settings[0].Key() != keepAlive {
		t.Errorf("%v of %v", plan.Settings, now)
	}
	now[workers] = 300
	s.refused = nil
	if s.seconds(5); changed[1] == 5 || now[workers] != 300 || now[keepAlive] != 5 {
		t.Errorf("in the end: %v", now)
	}
}

// A value of before that an agent refuses for a day is given up. Until then it is ordered, also if the clock goes back.
func TestICEAValueThatIsRefusedForEver(t *testing.T) {
	s, now, _ := tunedShop(t)
	s.refused = map[string]bool{keepAlive: true}
	s.calm()
	s.seconds(60)
	s.now = s.now.Add(-time.Hour)
	s.seconds(60)
	s.now = s.now.Add(23 * time.Hour)
	if plan := s.seconds(2); len(plan.Settings) != 1 {
		t.Fatalf("after 23 hours: %v", plan.Settings)
	}
	s.now = s.now.Add(time.Hour)
	if plan := s.second(); len(plan.Settings) > 0 || !hasReason(plan, "setting", "i2") {
		t.Fatalf("after 24 hours: %v, %v", plan.Settings, plan.Reasons)
	}
	s.seconds(30)
	s.servers[1].hidden = 0.6
	if s.seconds(40); now[workers] == 200 {
		t.Errorf("the next interference changes nothing: %v", now)
	}
}
