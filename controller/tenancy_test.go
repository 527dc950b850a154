package controller

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// A status has what agents tell of their machines' tenants, of silent agents nothing, and of many machines those with the slowest tenants.
func TestTenanciesInTheStatus(t *testing.T) {
	g := newGather(quell.Service{Name: "s"}, slog.New(slog.DiscardHandler))
	var rows []InstanceStatus
	for i := range 50 {
		id, slowdown := fmt.Sprintf("i%d", i), float64(1+i)
		rows = append(rows, InstanceStatus{ID: id, Stale: i == 49})
		r := quell.Reading{Service: "s", Instance: id, Source: quell.FromAgent, Sender: id}
		if i > 0 {
			r.Tenancy = &quell.Tenancy{Policy: "acs", Tenants: []quell.TenantState{{Name: "a"}, {Name: "b", Slowdown: &slowdown}}}
		}
		g.add(r, time.Unix(100, 0))
	}
	addTenancies(rows, g.tenancies())
	told := 0
	for i := range rows {
		if rows[i].Tenancy != nil {
			told++
		}
		if want := i >= 49-mostTenancies && i < 49; want != (rows[i].Tenancy != nil) {
			t.Errorf("row %d has a tenancy: %t, want %t", i, !want, want)
		}
	}
	if told != mostTenancies {
		t.Errorf("%d tenancies, want %d", told, mostTenancies)
	}
	if plain := (quell.Reading{Service: "s", Instance: "i0"}); bulk(&plain) >= bulk(&quell.Reading{Service: "s", Instance: "i0",
		Tenancy: &quell.Tenancy{Tenants: make([]quell.TenantState, quell.MostTenants)}}) {
		t.Error("a tenancy counts as nothing in the memory of readings")
	}
	g.add(quell.Reading{Service: "s", Instance: "i1", Source: quell.FromAgent, Sender: "i1"}, time.Unix(110, 0)) // its policy has ended
	if _, there := g.tenancies()["i1"]; there {
		t.Error("the tenancy of an earlier reading is told")
	}
}
