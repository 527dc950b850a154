package controller

import (
	"cmp"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

// mostTenancies bounds the instances whose tenancies a status has. With quell.MostTenants in each, they take about 300 kB of JSON at most.
const mostTenancies = 32

// addTenancies adds to the rows of a status how agents' own policies divide the machines. Silent agents have none.
func addTenancies(rows []InstanceStatus, told map[string]*quell.Tenancy) {
	var with []*InstanceStatus
	for i := range rows {
		if row := &rows[i]; told[row.ID] != nil && !row.Stale {
			with = append(with, row)
		}
	}
	slices.SortFunc(with, func(a, b *InstanceStatus) int {
		return cmp.Or(-cmp.Compare(worst(told[a.ID]), worst(told[b.ID])), strings.Compare(a.ID, b.ID))
	})
	for _, row := range with[:min(len(with), mostTenancies)] {
		row.Tenancy = told[row.ID]
	}
}

// worst is the largest slowdown of a machine's tenants; 0 if none is known.
func worst(t *quell.Tenancy) (most float64) {
	for _, one := range t.Tenants {
		if one.Slowdown != nil {
			most = max(most, *one.Slowdown)
		}
	}
	return most
}
