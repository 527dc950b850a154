package experiment

import "testing"

// TestRange: groups that start at the same time have ports of their own.
func TestRange(t *testing.T) {
	var p Ports
	addrs, err := p.Free(3)
	if err != nil || len(addrs) != 3 {
		t.Fatal(addrs, err)
	}
	given := map[int]bool{}
	for range 20 {
		r, err := p.Range(52)
		if err != nil || r.Count() != 52 || r.First < firstPort || r.Last > lastPort {
			t.Fatalf("%v, %v", r, err)
		}
		for port := r.First; port <= r.Last; port++ {
			if given[port] {
				t.Errorf("port %d was returned twice", port)
			}
			given[port] = true
		}
	}
	if _, err := p.Range(lastPort - firstPort + 1); err == nil {
		t.Error("a range of all ports, of which some are given")
	}
}
