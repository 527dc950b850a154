package policy

import (
	"fmt"
	"testing"

	"github.com/quellhq/quell"
)

// What other services use, and what an instance does beside its requests, are told apart.
func TestOwnWorkIsTold(t *testing.T) {
	member := func(id string, own float64) Member {
		o := &quell.Observation{Utilization: map[quell.Resource]float64{quell.Network: 0.3 + own},
			OwnWork: map[quell.Resource]float64{quell.Network: own}, Others: map[quell.Resource]float64{quell.Network: 0.4}}
		return Member{Instance: &quell.Instance{ID: id, State: quell.Ready, Observation: o}, Fresh: true}
	}
	g := &Group{Members: []Member{member("i1", 0.7), member("i2", 0.4)}}
	var plan quell.Plan
	noteOwnWork(g, &plan)
	var codes []string
	for _, r := range plan.Reasons {
		codes = append(codes, r.Instance+" "+r.Code)
	}
	if want := "[i1 other_services i1 own_work i2 other_services]"; fmt.Sprint(codes) != want || len(plan.OwnWork) != 1 {
		t.Errorf("reasons %v, want %s; own work %v", codes, want, plan.OwnWork)
	}
}
