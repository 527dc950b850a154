package policy_test

import (
	"math"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// Instances of different types get shares by how many requests each can carry.
func TestTypesOfInstances(t *testing.T) {
	service := learningService(all.Default())
	tell(&service, "Confirm", 0)
	e, err := all.NewEngine(service, lawModels(0))
	if err != nil {
		t.Fatal(err)
	}
	// Within 40 ms a small machine carries 0.75 of its link, 75 requests per second, and a big one 0.875, 175 requests per second.
	plan, _ := e.Decide(bothTypes(0.8, 0.4), policy.State{})
	if got, want := plan.Weights["big"]/plan.Weights["small"], 175.0/75; math.Abs(got-want) > 0.05*want {
		t.Errorf("the big machine gets %.2f times the share of the small one, want %.2f (weights %v)", got, want, plan.Weights)
	}
	for id, ms := range plan.PredictedMS {
		if ms > 40 {
			t.Errorf("%s is predicted to take %.1f ms", id, ms)
		}
	}
}

// planForBig is PRIMA's plan for a big machine alone with this load.
func planForBig(t *testing.T, models *model.Models, margin bool, load float64) quell.Plan {
	t.Helper()
	service := learningService(all.Default())
	service.Group = quell.Group{Min: 1, Max: 2}
	tell(&service, "Confirm", 0)
	tell(&service, "Calibrate", 0.0)
	tell(&service, "Margin", margin)
	e, err := all.NewEngine(service, models)
	if err != nil {
		t.Fatal(err)
	}
	s := bothTypes(0, load)
	s.Instances = s.Instances[1:]
	plan, _ := e.Decide(s, policy.State{})
	return plan
}

// The margin of models that were learned in place takes the place of the headroom.
func TestMarginInPlaceOfHeadroom(t *testing.T) {
	for _, c := range []struct {
		name    string
		exceeds float64
		load    float64 // on the big machine, which is alone; it can carry 0.875 within 40 ms
		adds    bool
	}{
		{"no margin is known: 90% of 0.875 are not enough", 0, 0.83, true},
		{"predictions are never exceeded", 1, 0.83, false},
		{"predictions are exceeded by a fifth: 1 - 5 x 1.2 / 40", 1.2, 0.84, false},
		{"and no more", 1.2, 0.86, true},
		{"by far: no more than half the threshold is left as a margin", 9, 0.74, false},
		{"and no more, too", 9, 0.76, true},
	} {
		plan := planForBig(t, lawModels(c.exceeds), true, c.load)
		if adds := plan.Group != nil && plan.Group.Add > 0; adds != c.adds {
			t.Errorf("%s: at a load of %v, adds %v, want %v: %+v", c.name, c.load, adds, c.adds, plan.Reasons)
		}
		if (plan.MarginMS["big"] > 0) != (c.exceeds > 1) {
			t.Errorf("%s: margins %v", c.name, plan.MarginMS)
		}
	}
}

// Where response times grow slowly with use, headroom leaves little of the objective free, so a part of the learned margin stays free, too.
func TestReserveBesideHeadroom(t *testing.T) {
	for _, c := range []struct {
		name    string
		exceeds float64
		load    float64 // with an exponent of 0.3, a machine carries 0.617 within 40 ms, and 0.407 within 40 ms / (1 + 0.7 * 0.2)
		adds    bool
	}{
		{"no margin is known: 90% of 0.617 are enough", 0, 0.53, false},
		{"no margin is known, and no more", 0, 0.58, true},
		{"predictions are exceeded by a fifth", 1.2, 0.38, false},
		{"and no more", 1.2, 0.43, true},
		{"by far: no more than a fifth is reserved: 0.296", 9, 0.28, false},
		{"and no more, too", 9, 0.32, true},
	} {
		models := lawModels(c.exceeds)
		law := models.Live()[quell.Network]["big"]
		law.R0MS, law.Exponent = 30, 0.3
		plan := planForBig(t, models, false, c.load)
		if adds := plan.Group != nil && plan.Group.Add > 0; adds != c.adds {
			t.Errorf("%s: at a load of %v, adds %v, want %v: %+v", c.name, c.load, adds, c.adds, plan.Reasons)
		}
	}
}
