package controller

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/life"
)

// The memory used for senders with ever new names is limited, and known senders are not affected.
func TestWhatIsKeptOfReadingsIsBounded(t *testing.T) {
	large := func(instance, sender string) quell.Reading {
		r := quell.Reading{Service: "shop", Instance: instance, Source: quell.FromBalancer, Sender: sender, LatencyHDR: make([]byte, 100<<10)}
		r.ConnectHDR = make([]byte, 100<<10)
		return r
	}
	for name, flood := range map[string]func(i int) quell.Reading{
		"senders of one instance":   func(i int) quell.Reading { return large("i1", fmt.Sprint("s", i)) },
		"instances nobody knows":    func(i int) quell.Reading { return large(fmt.Sprint("ghost", i), "s") },
		"senders of many instances": func(i int) quell.Reading { return large(fmt.Sprint("i", 1+i%3), fmt.Sprint("s", i)) },
	} {
		t.Run(name, func(t *testing.T) {
			g, v := gathering()
			g.snapshot(epoch, v)
			honest := balancerReading(t, "i2", "honest", 7)
			g.add(honest, epoch)
			before := heap()
			const many = 2000 // 400 MB
			for i := range many {
				g.add(flood(i), epoch)
			}
			g.add(honest, epoch)
			if grown := heap() - before; grown > mostKept+(8<<20) {
				t.Errorf("%d MB are kept", grown>>20)
			}
			if _, rejected := g.totals(); rejected < many/2 || rejected > many {
				t.Errorf("%d of %d readings were refused; the last was a known sender's", rejected, many)
			}
			if !slices.ContainsFunc(g.readings["i2"], func(r life.Received) bool { return r.Sender == "honest" }) {
				t.Error("a known sender lost its place")
			}
		})
	}
}

// An unknown group is not a flood: the first readings of 10,000 instances arrive before the first snapshot.
func TestTheFirstReadingsOfALargeGroupAreKept(t *testing.T) {
	g, _ := gathering()
	r := balancerReading(t, "i1", "east", 7)
	for i := range 10_000 {
		r.Instance = fmt.Sprint("i", i)
		g.add(r, epoch)
	}
	if _, rejected := g.totals(); rejected > 0 || len(g.readings) != 10_000 {
		t.Errorf("%d refused, %d instances", rejected, len(g.readings))
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
