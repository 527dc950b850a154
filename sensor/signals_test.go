package sensor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/golden"
)

// TestSignals prints what machines of several kinds offer.
func TestSignals(t *testing.T) {
	for _, c := range []struct {
		name, before, after string
		options             Options
	}{
		{"machine", "before", "after", Options{}},
		{"group1", "groups1/before", "groups1/after", Options{Cgroup: "/web", Wanted: []quell.Resource{quell.CPU}}},
		{"group2", "groups2/before", "groups2/after", Options{Cgroup: "/system.slice/web.service", Wanted: []quell.Resource{quell.Memory}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &machine{os.DirFS("testdata/" + c.before)}
			c.options.Root = m
			set, err := New(c.options)
			if err != nil {
				t.Fatal(err)
			}
			set.Sample(start)
			for range fewestMoments {
				set.Subsample()
			}
			m.FS = os.DirFS("testdata/" + c.after)
			obs, failures := set.Sample(start.Add(10 * time.Second))
			golden.Compare(t, filepath.Join("testdata", "signals", c.name+".txt"), []byte(described(Signals(c.options, &obs, failures))))
		})
	}
}

func described(list []Signal) string {
	var b strings.Builder
	for _, s := range list {
		fmt.Fprintf(&b, "%s: %s\n", s.Name, strings.Join([]string{s.Now, s.Why, s.Do}, " | "))
	}
	return b.String() + "evidence: " + Evidence(list) + "\n"
}

// TestSignalsOfCounters checks that the message of a counter that is not available, and of one that fails, reaches the person.
func TestSignalsOfCounters(t *testing.T) {
	s := readStream(t, "neighbour")
	o := Options{Root: twoProcessors(), Events: s.events}
	set := NewSet(NewCounters(o))
	set.Sample(start)
	obs, failures := set.Sample(start.Add(time.Second))
	list := Signals(o, &obs, failures)
	if list[0].Now != "0.90 cycles per instruction" || list[1].Now != "0.020 of cache accesses miss" ||
		Evidence(list) != "the processors' counters: counters.cpi, counters.cache_miss_rate" {
		t.Errorf("%+v, evidence %s", list[:2], Evidence(list))
	}

	s.refuses[Cache], s.refuses[Instructions] = syscall.ENOENT, syscall.ENOENT
	obs, failures = NewSet(NewCounters(o)).Sample(start)
	list = Signals(o, &obs, failures)
	if list[0].Now != "" || !strings.Contains(list[0].Why, "show no such counters") || !strings.Contains(list[0].Do, "virtual PMU") ||
		Evidence(list) != "" {
		t.Errorf("%+v, evidence %s", list[:2], Evidence(list))
	}
	list = Signals(Options{Root: fstest.MapFS{}}, &quell.Observation{}, []Failure{{"cpu", errors.New("it is broken")}})
	if i := len(counterSignals); list[i].Why != "it is broken" || list[0].Why != "agent.counters is false" {
		t.Errorf("%+v", list)
	}
}

// Every signal that counts as evidence is in the table.
func TestEvidenceNamesSignals(t *testing.T) {
	known := map[string]bool{}
	for _, s := range signals {
		known[s.name] = true
	}
	for _, name := range append(substitutes, counterSignals...) {
		if !known[name] {
			t.Errorf("no signal is called %s", name)
		}
	}
}
