package model

import "testing"

func TestLegendOfManyLines(t *testing.T) {
	for n, want := range map[int]int{1: 1, 9: 9, 10: 10, 11: 6, 46: 10, 1000: 10} {
		count := 0
		for i := range n {
			if named(i, n) {
				count++
			}
		}
		if count != want || !named(n-1, n) {
			t.Errorf("of %d lines %d are named, want %d with the last", n, count, want)
		}
	}
}
