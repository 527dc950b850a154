package main

import (
	"slices"
	"testing"
	"time"
)

// What the command says is read as a person reads it: who is named, before and after the neighbour came, and who at the end.
func TestWhatALookSaid(t *testing.T) {
	var s saidLines
	for _, part := range []string{"looking at 3 server(s) from here\n10:00:01  web-2: slowed by something beside its requests, sev",
		"erity 0.4\n10:00:02  web-2: as usual, severity 0.1\n"} {
		if n, err := s.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	came := time.Now()
	for _, line := range []string{"10:00:03  web-1: slowed by something beside its requests, severity 0.9",
		"10:00:04  web-1: slowed by something beside its requests, severity 0.8", "", "1 of 3 judged server(s) are slowed by something beside",
		"  web-1: slowed by something beside its requests, severity 0.9, as downloads show", "  web-3: as usual"} {
		if _, err := s.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	l := s.look(came)
	l.Beside = "web-1"
	if !l.Found() || !slices.Equal(l.Wrong(), []string{"web-2"}) || !l.Ends() || len(l.Named) != 2 {
		t.Errorf("%+v", l)
	}
	if none := (outsideLook{Beside: "web-1"}); none.Found() || none.Ends() || none.Wrong() != nil {
		t.Errorf("%+v", none)
	}
}

// The neighbours of a live hour come one after the other, within each half, and the same for the same seed.
func TestNeighboursOfALiveHour(t *testing.T) {
	for seed := range uint64(200) {
		visits := liveVisits(seed, 3)
		if len(visits) < 2 || !slices.Equal(visits, liveVisits(seed, 3)) {
			t.Fatalf("seed %d: %+v", seed, visits)
		}
		at := time.Duration(0)
		for _, v := range visits {
			if v.comes < at || v.goes <= v.comes || v.goes >= liveLasts || v.machine < 0 || v.machine > 2 || v.use < 0.4 || v.use > 0.6 {
				t.Errorf("seed %d: %+v", seed, v)
			}
			at = v.goes
		}
	}
}
