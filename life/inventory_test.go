package life

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// sec is a moment in seconds after the epoch.
func sec(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }

func TestCost(t *testing.T) {
	up := func(id string, started float64) quell.Member {
		return quell.Member{ID: id, State: quell.Ready, Started: sec(started)}
	}
	failed := func(id string, exited float64) quell.Member {
		m := up(id, 0)
		if m.State = quell.Failed; exited > 0 {
			m.Exited = sec(exited)
		}
		return m
	}
	r := NewInventory()
	for _, tc := range []struct {
		why  string
		at   float64
		list []quell.Member
		want float64
	}{
		{"a runs since long before", 10, []quell.Member{up("a", -490)}, 500},
		{"b started at 16; c does not tell when", 20, []quell.Member{up("a", -490), up("b", 16), {ID: "c", State: quell.Starting}}, 510 + 4},
		{"a is gone, at the latest now", 30, []quell.Member{up("b", 16), up("c", 20)}, 520 + 14 + 10},
		{"b exited at 33, as it says", 40, []quell.Member{failed("b", 33), up("c", 20)}, 520 + 17 + 20},
		{"c failed, at the latest now; b still stands there", 50, []quell.Member{failed("b", 33), failed("c", 0)}, 520 + 17 + 30},
		{"c was not failed after all: it costs again from now", 60, []quell.Member{up("c", 20)}, 567},
		{"a list that lacks it for a while ends it", 70, nil, 577},
		{"and does not count it twice", 80, []quell.Member{up("c", 20)}, 577},
		{"a start in the future counts from now", 90, []quell.Member{up("c", 20), up("d", 1000)}, 587},
		{"an exit before the start is none", 100, []quell.Member{up("c", 20), failed("d", 1)}, 597},
		{"nothing runs", 110, nil, 607},
		{"what is forgotten has been counted", 110 + 2*3600, nil, 607},
	} {
		data, err := json.Marshal(r) // a restart in between changes nothing
		if err != nil {
			t.Fatal(err)
		}
		r = NewInventory()
		if err := json.Unmarshal(data, r); err != nil {
			t.Fatal(err)
		}
		r.Anchor(func(at time.Time) time.Time { return at.UTC() })
		r.Look(sec(tc.at), tc.list)
		if got := r.Cost(sec(tc.at)).Seconds(sec(tc.at)); got != tc.want {
			t.Errorf("%s: at %v s the cost is %v, not %v", tc.why, tc.at, got, tc.want)
		}
	}
	if len(r.Stays) > 0 {
		t.Errorf("%v are remembered after two hours", r.Stays)
	}
	r.Look(sec(8000), []quell.Member{up("e", 8000), up("f", 8000)})
	if got := r.Cost(sec(8010)).Seconds(sec(8015)); got != 607+20+10 {
		t.Errorf("between looks the cost goes on: %v", got)
	}
}

// If the scaler reports starts and exits, the cost is always the sum of the instances' running times.
func TestCostIsTheSumOfLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, now, cost := NewInventory(), 0.0, 0.0
		var members []quell.Member
		for step := range rapid.IntRange(1, 20).Draw(t, "steps") {
			passed := float64(rapid.IntRange(0, 100).Draw(t, "seconds"))
			now += passed
			for i := range members {
				if members[i].State == quell.Ready {
					cost += passed
				}
			}
			switch i := len(members) - 1; rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				members = append(members, quell.Member{ID: fmt.Sprint(step), State: quell.Ready, Started: sec(now)})
			case 1:
				if i >= 0 && members[i].State == quell.Ready {
					members[i].State, members[i].Exited = quell.Failed, sec(now)
				}
			case 2:
				members = members[:max(0, i)]
			}
			r.Look(sec(now), members)
			if got := r.Cost(sec(now)).Seconds(sec(now)); got != cost {
				t.Fatalf("cost %v, not %v, at %v", got, cost, now)
			}
		}
	})
}

func TestOrders(t *testing.T) {
	list := func(ids ...string) (members []quell.Member) {
		for _, id := range ids {
			members = append(members, quell.Member{ID: id, State: quell.Starting, Started: epoch})
		}
		return members
	}
	begun := func() *Inventory {
		r := NewInventory()
		r.Look(epoch, list("a", "b"))
		return r
	}
	later := begun()
	later.Order(sec(1), 2, "")
	if n := later.Answer(nil, nil); n != 2 || later.Coming() != 2 {
		t.Errorf("%d come later, %d are coming; nobody was named", n, later.Coming())
	}
	for _, tc := range []struct {
		at   float64
		list []quell.Member
		want int
	}{
		{2, list("a", "b"), 2},
		{3, list("a", "b", "x"), 1},
		{4, list("b", "x"), 1},
		{5, list("a", "b", "x"), 1}, // a was only missing for a while
		{6, list("a", "b", "x", "y", "z"), 0},
	} {
		if later.Look(sec(tc.at), tc.list); later.Coming() != tc.want {
			t.Errorf("at %v s %d are coming, want %d", tc.at, later.Coming(), tc.want)
		}
	}

	named := begun()
	named.Order(sec(1), 2, "")
	if n := named.Answer([]string{"x", "y"}, nil); n != 0 || named.Coming() != 2 {
		t.Errorf("%d come later, %d are coming", n, named.Coming())
	}
	if came := named.Look(sec(2), list("a", "b", "stranger", "y")); len(came) != 1 || came[0] != (Arrival{ID: "y", Named: true}) {
		t.Errorf("came %+v", came)
	}
	if named.Coming() != 1 {
		t.Errorf("%d are coming, and only x is not listed", named.Coming())
	}

	refused := begun()
	refused.Order(sec(1), 3, "")
	if n := refused.Answer([]string{"x"}, errors.New("refused")); n != 0 || refused.Coming() != 1 {
		t.Errorf("%d come later, %d are coming: with an error only x was started", n, refused.Coming())
	}

	unsure := begun()
	unsure.Order(sec(1), 3, "")
	if n := unsure.Answer([]string{"x"}, &quell.UnsureError{Err: errors.New("killed")}); n != 2 || unsure.Coming() != 3 {
		t.Errorf("%d come later, %d are coming: the order may have worked", n, unsure.Coming())
	}

	killed := begun() // between the order and the answer
	killed.Order(sec(1), 1, "")
	if killed.Look(sec(2), list("a", "b", "x")); killed.Coming() != 0 {
		t.Errorf("%d are coming, and x came", killed.Coming())
	}
}

// A scaler that uses an id again names an instance that was listed before: that is an arrival, at once or after the old one was seen to be
// gone.
func TestAnIDThatIsUsedAgain(t *testing.T) {
	one := func(state quell.State) []quell.Member { return []quell.Member{{ID: "web-7", State: state}} }
	for _, name := range []string{"seen to be gone", "not looked at in between", "still listed as failed"} {
		r := NewInventory()
		r.Look(sec(0), one(quell.Ready))
		if name == "seen to be gone" {
			r.Look(sec(5), nil)
		}
		r.Order(sec(10), 1, "")
		r.Answer([]string{"web-7"}, nil)
		if name == "still listed as failed" {
			if came := r.Look(sec(11), one(quell.Failed)); len(came) > 0 || r.Coming() != 1 {
				t.Errorf("%s: the old one arrived: %+v", name, came)
			}
		}
		came := r.Look(sec(12), one(quell.Starting))
		if len(came) != 1 || !came[0].Named || r.Coming() != 0 {
			t.Errorf("%s: came %+v, coming %d", name, came, r.Coming())
		}
		if late := r.Overdue(sec(100), 30*time.Second); len(late) > 0 {
			t.Errorf("%s: still waited for: %+v", name, late)
		}
	}
}

func TestOverdue(t *testing.T) {
	r := NewInventory()
	r.Order(sec(0), 2, "")
	r.Order(sec(10), 1, "")
	r.Answer([]string{"x"}, nil)
	if late := r.Overdue(sec(30), startup); len(late) > 0 || r.Coming() != 3 {
		t.Errorf("%v are late in time", late)
	}
	if late := r.Overdue(sec(30.1), startup); len(late) != 1 || late[0].Count != 2 || r.Coming() != 1 {
		t.Errorf("late: %v; still coming: %d", late, r.Coming())
	}
	if late := r.Overdue(sec(60), startup); len(late) != 1 || !slices.Equal(late[0].IDs, []string{"x"}) || r.Coming() != 0 {
		t.Errorf("late: %v; still coming: %d", late, r.Coming())
	}
	if late := r.Overdue(sec(61), startup); len(late) > 0 || r.MayCome() != 3 {
		t.Errorf("told twice: %v; %d may come", late, r.MayCome())
	}
}

// Orders that are overdue may still have worked: they count against the bound until their instances appear, or long enough has passed.
func TestOverdueOrdersMayStillCome(t *testing.T) {
	r := NewInventory()
	r.Order(sec(0), 2, "")
	r.Answer(nil, &quell.UnsureError{Err: errors.New("killed")})
	r.Order(sec(5), 1, "a")
	r.Answer([]string{"x"}, nil)
	r.Overdue(sec(40), startup)
	if r.Coming() != 0 || r.ComingFor("a") != 0 || r.MayCome() != 3 {
		t.Errorf("%d are coming, %d for a, %d may come", r.Coming(), r.ComingFor("a"), r.MayCome())
	}
	came := r.Look(sec(90), []quell.Member{{ID: "x", State: quell.Ready}, {ID: "y", State: quell.Ready}})
	if len(came) != 2 || came[0].For != "a" || came[1].For != "" || r.MayCome() != 1 {
		t.Errorf("came %+v, %d may come", came, r.MayCome())
	}
	if r.Overdue(sec(300), startup); r.MayCome() != 1 {
		t.Errorf("%d may come after 300 s", r.MayCome())
	}
	if r.Overdue(sec(301), startup); len(r.Orders) != 0 {
		t.Errorf("orders %+v after 301 s", r.Orders)
	}
	r.Order(sec(400), 1, "") // and the controller is away for an hour
	if late := r.Overdue(sec(4000), startup); len(late) != 1 || len(r.Orders) != 0 {
		t.Errorf("late %+v, orders %+v", late, r.Orders)
	}
	if Doubt(10*time.Minute) != 40*time.Minute {
		t.Error("slow machines are doubted for too short a time")
	}
}
