package agent

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
)

// toy is a Setter that records what it is given.
type toy struct {
	mu     sync.Mutex
	values map[string]float64
	fails  error
}

func (d *toy) Set(_ context.Context, name string, value float64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fails == nil {
		d.values[name] = value
	}
	return d.fails
}

func (d *toy) Restore(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.values)
	return d.fails
}

func (d *toy) InForce(context.Context) (map[string]float64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.values), d.fails
}

func TestOrdersComeBackInReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &toy{values: map[string]float64{}}
		j := &journal{begin: time.Now()}
		a, err := New(Options{
			Service: "video", Instance: "i1", Period: time.Second, Sampler: &machine{}, Publish: j.publish,
			Setters: map[string]Setter{"apache": d},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		time.Sleep(1500 * time.Millisecond)
		err = a.Order(ctx, []quell.Setting{{Instance: "i1", Target: "apache", Name: "MaxRequestWorkers", Value: 120}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		d.mu.Lock()
		d.fails = errors.New("it is broken")
		d.mu.Unlock()
		time.Sleep(time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		before, after, broken := j.readings[0], j.readings[1], j.readings[2]
		if len(before.Settings)+len(broken.Settings) > 0 {
			t.Errorf("told before anything was set: %+v; and what could not be read: %+v", before, broken)
		}
		if after.Settings["apache.MaxRequestWorkers"] != 120 || after.Validate() != nil {
			t.Errorf("in force: %v, %v", after.Settings, after.Validate())
		}
	})
}

// slow is a Setter whose Set takes a long time, like a server's check that does not end.
type slow struct {
	*toy
	takes time.Duration
}

func (s slow) Set(ctx context.Context, name string, value float64) error {
	time.Sleep(s.takes)
	return s.toy.Set(ctx, name, value)
}

func TestReadingsGoOnDuringAnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{begin: time.Now()}
		a, err := New(Options{
			Service: "video", Instance: "i1", Period: time.Second, Sampler: &machine{}, Publish: j.publish,
			Setters: map[string]Setter{"apache": slow{&toy{values: map[string]float64{"MaxRequestWorkers": 50}}, 10 * time.Second}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		time.Sleep(500 * time.Millisecond)
		if err := a.Order(ctx, []quell.Setting{{Instance: "i1", Target: "apache", Name: "MaxRequestWorkers", Value: 120}}); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if n := len(j.readings); n != 10 {
			t.Errorf("%d readings in the 10 s that the order took, want 10", n)
		}
		for i, r := range j.readings {
			if r.Settings["apache.MaxRequestWorkers"] != 50 {
				t.Errorf("reading %d: %v in force", i, r.Settings)
			}
		}
	})
}

func TestOrdersThatAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*quell.Setting)
		want   string
	}{
		"no driver for a server": {func(s *quell.Setting) { s.Target = "nginx" },
			"setting nginx.MaxRequestWorkers: this agent has no driver that sets nginx"},
		"a setting of another": {func(s *quell.Setting) { s.Instance = "i2" }, `it is for "i2", and this is "i1"`},
	} {
		d := &toy{values: map[string]float64{}}
		order := quell.Setting{Instance: "i1", Target: "apache", Name: "MaxRequestWorkers", Value: 120}
		tc.change(&order)
		if err := withToy(t, d).Order(t.Context(), []quell.Setting{order}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if len(d.values) > 0 {
			t.Errorf("%s: set all the same", name)
		}
	}
	refuses := &toy{fails: errors.New("120 is outside the bounds")}
	err := withToy(t, refuses).Order(t.Context(), []quell.Setting{{Instance: "i1", Target: "apache", Name: "x", Value: 120}})
	if err == nil || err.Error() != "setting apache.x: 120 is outside the bounds" {
		t.Errorf("what the driver refuses: %v", err)
	}
}

// withToy is an agent whose server apache is a toy.
func withToy(t *testing.T, d *toy) *Agent {
	t.Helper()
	a, err := New(Options{Service: "video", Instance: "i1", Period: time.Second, Sampler: &machine{}, Publish: (&journal{}).publish,
		Setters: map[string]Setter{"apache": d}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The agent applies the orders that it can apply, and its answer names the others.
func TestOrdersInPart(t *testing.T) {
	d := &toy{values: map[string]float64{}}
	err := withToy(t, d).Order(t.Context(), []quell.Setting{
		{Instance: "i1", Target: "nginx", Name: "x", Value: 1}, {Instance: "i1", Target: "apache", Name: "x", Value: 2},
	})
	if err == nil || strings.Contains(err.Error(), "apache") || d.values["x"] != 2 {
		t.Errorf("%v, values %v", err, d.values)
	}
}
