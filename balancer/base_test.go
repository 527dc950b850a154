package balancer

import (
	"maps"
	"testing"
)

func TestBasesAreRelativeToTheirMean(t *testing.T) {
	for _, c := range []struct {
		name   string
		chosen map[string]int
		want   map[string]float64
	}{
		{"none", nil, nil},
		{"one", map[string]int{"a": 7}, nil},
		{"equal ones say nothing", map[string]int{"a": 7, "b": 7}, nil},
		{"one twice as large", map[string]int{"a": 30, "b": 60}, map[string]float64{"a": 30.0 * 2 / 90, "b": 60.0 * 2 / 90}},
		{"0 is no size", map[string]int{"a": 30, "b": 60, "c": 0}, map[string]float64{"a": 30.0 * 2 / 90, "b": 60.0 * 2 / 90}},
		{"0 beside equal ones", map[string]int{"a": 30, "b": 30, "c": 0}, nil},
	} {
		var got map[string]float64
		for name, base := range Bases(c.chosen) {
			if got == nil {
				got = map[string]float64{}
			}
			got[name] = *base
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
