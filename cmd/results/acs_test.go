package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func someACS() acsData {
	run := func(title string, unfairness float64) acsRun {
		return acsRun{Title: title, Unfairness: []float64{unfairness, unfairness + 0.2}, Mean: []float64{2, 3}, Worst: []float64{3, 4},
			Work: []float64{1, 0.98}, Rates: []float64{1, 0.9}, Worse: 1}
	}
	d := acsData{
		Simulated: []acsSize{{2, 2, []acsRun{run("kernel", 1.7), run("acs", 0.95)}}},
		Pairs:     []acsPair{{"one task", []float64{1, 2}, []float64{1.5, 1.6}}},
	}
	for i, c := range acsTroubles {
		c.Gain, c.WindowS, c.Unfairness = 0.5, 2, 1+float64(i)/10
		d.Stability, d.Windows = append(d.Stability, c), append(d.Windows, c)
	}
	return d
}

// someACSLive has one mix, whose second tenant is slowed down twice as much as the first by the kernel, and as much with acs.
func someACSLive() *acsLiveData {
	mix := []acsWorker{{"numbers", 1}, {"sorting", 6}}
	l := &acsLiveData{Machine: somewhere.Machine, Load: "0.1 before and 0.2 after", Alone: []acsLiveRun{
		{Title: "alone", Tenants: mix[:1], Rates: []float64{10}, Processors: []float64{1}},
		{Title: "alone", Tenants: mix[1:], Rates: []float64{20}, Processors: []float64{2}},
	}}
	size := acsLiveSize{Tenants: mix}
	for _, title := range acsModeTitles() {
		rates := []float64{10, 10}
		if strings.HasPrefix(title, "acs") {
			rates = []float64{20. / 3, 40. / 3}
		}
		for repeat := range 3 {
			size.Runs = append(size.Runs, acsLiveRun{Title: title, Repeat: repeat, Tenants: mix, Rates: rates})
		}
	}
	l.Mixes = []acsLiveSize{size}
	return l
}

// Every mix has programs that are known, and no two tenants alike.
func TestACSLiveMixes(t *testing.T) {
	sizes := map[int]int{}
	for _, mix := range acsLiveMixes {
		sizes[len(mix)]++
		seen := map[acsWorker]bool{}
		for _, w := range mix {
			known := false
			for _, p := range acsPrograms {
				known = known || p.name == w.Program
			}
			if !known || w.Workers < 1 || seen[w] {
				t.Errorf("%v: %s", mix, w)
			}
			seen[w] = true
		}
	}
	if sizes[2] < 4 || sizes[4] < 4 || sizes[8] < 4 {
		t.Errorf("mixes by the number of tenants: %v", sizes)
	}
}

func TestACSLiveSlowdowns(t *testing.T) {
	l := someACSLive()
	list, work := l.slowdowns(l.Mixes[0].Runs[0])
	if len(list) != 2 || list[0] != 1 || list[1] != 2 || work != 2 {
		t.Errorf("slowdowns %v, work %v; want 1 and 2, and 2", list, work)
	}
}

// A rate is that of the units between the first and the last one.
func TestUnitCount(t *testing.T) {
	u, at := &unitCount{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	u.add(at) // before it begins
	u.begin()
	for i := range 21 {
		u.add(at.Add(time.Duration(i) * 500 * time.Millisecond))
	}
	if rate, err := u.rate(); err != nil || rate != 2 {
		t.Errorf("rate %v, %v; want 2", rate, err)
	}
	few := &unitCount{}
	few.begin()
	few.follow(bytes.NewReader([]byte("...")), "", "")
	if rate, err := few.rate(); err == nil {
		t.Errorf("three units have a rate of %v", rate)
	}
}
