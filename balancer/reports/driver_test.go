package reports

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/balancertest"
	"github.com/quellhq/quell/balancer/health"
)

// agents are those of a service, which keep what they are told.
type agents struct {
	mu     sync.Mutex
	told   map[string]quell.LoadReport
	orders int
	silent map[string]bool
}

func (a *agents) tell(_ context.Context, instance string, r quell.LoadReport) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.silent[instance] {
		return errors.New("the agent of " + instance + " did not answer")
	}
	a.told[instance] = r
	a.orders++
	return r.Validate()
}

// share returns what an agent was told, and forgets how many orders there were.
func (a *agents) share(instance string) (share float64, orders int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.orders = 0 }()
	return a.told[instance].Share, a.orders
}

func driverOf(t *testing.T, a *agents, memory string) *Driver {
	t.Helper()
	d, err := New(Options{Tell: a.tell, Period: 2 * time.Second, Drain: time.Hour, Memory: memory,
		Health: health.Options{Interval: time.Hour, Timeout: time.Second, Fall: 1, Rise: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func backends(shares ...float64) (list []quell.Backend) {
	for i, share := range shares {
		list = append(list, quell.Backend{ID: fmt.Sprintf("i%d", i+1), Address: fmt.Sprintf("127.0.0.1:%d", i+1), Weight: share})
	}
	return list
}

func stateOf(t *testing.T, d *Driver, id string) quell.BackendState {
	t.Helper()
	states, err := d.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("%s is unknown", id)
	return quell.BackendState{}
}

func TestAgentsAreToldWhatChanges(t *testing.T) {
	a := &agents{told: map[string]quell.LoadReport{}, silent: map[string]bool{"i3": true}}
	memory := filepath.Join(t.TempDir(), "reports.json")
	d := driverOf(t, a, memory)
	apply := func(list []quell.Backend) {
		t.Helper()
		if err := d.Apply(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	apply(backends(.5, .3, .2))
	if s, orders := a.share("i1"); s != .5 || orders != 2 || stateOf(t, d, "i1").Address == "" || stateOf(t, d, "i3").Address != "" {
		t.Errorf("i1 was told %v, with %d orders; states %+v and %+v", s, orders, stateOf(t, d, "i1"), stateOf(t, d, "i3"))
	}
	a.silent["i3"] = false
	apply(backends(.5, .3, .2))
	if s, orders := a.share("i3"); s != .2 || orders != 1 {
		t.Errorf("i3 was told %v, with %d orders; want it alone to be told", s, orders)
	}
	if err := d.Inform(t.Context(), quell.Network, map[string]float64{"i1": .4, "i2": 0}, nil); err != nil {
		t.Fatal(err)
	}
	one, two := a.told["i1"], a.told["i2"]
	if one.Capacity == nil || *one.Capacity != .4 || one.Resource != quell.Network || one.ValidS != 6 || two.Capacity != nil {
		t.Errorf("i1 was told %+v, i2 %+v", one, two)
	}
	drained := backends(.6, .4, .1)
	drained[2].Draining, drained[2].Weight = true, 0
	apply(drained)
	if s, _ := a.share("i3"); s != 0 || stateOf(t, d, "i3").InFlight != 1 || !stateOf(t, d, "i3").Draining {
		t.Errorf("i3 drains: told %v, state %+v", s, stateOf(t, d, "i3"))
	}

	next := driverOf(t, a, memory)
	if s := stateOf(t, next, "i1"); s.Weight != .6 || s.Address != "" {
		t.Errorf("the next controller finds %+v; want the share, and no address until the agent is told", s)
	}
	if err := next.Inform(t.Context(), quell.Network, nil, nil); err != nil || stateOf(t, next, "i1").Address == "" {
		t.Errorf("%v; state %+v", err, stateOf(t, next, "i1"))
	}
	if unknown, err := next.Restore(t.Context()); err != nil || unknown != nil || a.told["i1"].ValidS != 0 {
		t.Errorf("restored with %v, %v; i1 was told %+v", unknown, err, a.told["i1"])
	}
	if states, _ := next.State(t.Context()); len(states) != 0 {
		t.Errorf("after a release there is %+v", states)
	}
}

func TestManyAgents(t *testing.T) {
	const n = 1000
	a := &agents{told: map[string]quell.LoadReport{}, silent: map[string]bool{}}
	shares := make([]float64, n)
	for i := range shares {
		shares[i] = 1. / n
		a.silent[fmt.Sprintf("i%d", i+1)] = i%100 == 0
	}
	d := driverOf(t, a, "")
	if err := d.Apply(t.Context(), backends(shares...)); err != nil {
		t.Fatal(err)
	}
	if _, orders := a.share("i2"); orders != n-10 {
		t.Errorf("%d agents were told", orders)
	}
	err := d.Inform(t.Context(), quell.Network, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "the agent of i1 did not answer") || !strings.Contains(err.Error(), "and 7 agents more") {
		t.Errorf("says %v", err)
	}
}

func TestWithoutABus(t *testing.T) {
	memory := filepath.Join(t.TempDir(), "reports.json")
	if err := os.WriteFile(memory, []byte(`[{"id": "i1", "address": "127.0.0.1:1", "share": 2}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Memory: memory}); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("a damaged memory: %v", err)
	}
	d, err := New(Options{Period: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if unknown, err := d.Restore(t.Context()); err != nil || len(unknown) != 1 || !strings.Contains(unknown[0], "3s") {
		t.Errorf("a release without a controller says %v, %v", unknown, err)
	}
}

func TestContract(t *testing.T) {
	a := &agents{told: map[string]quell.LoadReport{}, silent: map[string]bool{}}
	memory := filepath.Join(t.TempDir(), "reports.json")
	open := func() balancer.Driver { return driverOf(t, a, memory) }
	balancertest.Contract(t, open, []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"}, 0)
}
