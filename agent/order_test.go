package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
)

// toy is both a Limiter and a Setter, and records what it is given.
type toy struct {
	mu     sync.Mutex
	bound  float64
	values map[string]float64
	fails  error
}

func (d *toy) Limit(_ context.Context, l quell.Limit) error {
	if l.Unit != "bit/s" {
		return fmt.Errorf("unit %q: want bit/s", l.Unit)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bound = l.Value
	return d.fails
}

func (d *toy) InForce(context.Context) (float64, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bound, d.bound > 0, d.fails
}

func (d *toy) Restore(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bound = 0
	return d.fails
}

// server is a toy that is used as a Setter.
type server struct{ *toy }

func (s server) Set(_ context.Context, name string, value float64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails == nil {
		s.values[name] = value
	}
	return s.fails
}

func (s server) Restore(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.values)
	return s.fails
}

func (s server) InForce(context.Context) (map[string]float64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.values), s.fails
}

func TestOrdersComeBackInReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &toy{values: map[string]float64{}}
		j := &journal{begin: time.Now()}
		a, err := New(Options{
			Service: "video", Instance: "i1", Period: time.Second, Sampler: &machine{}, Publish: j.publish,
			Limiters: map[quell.Resource]Limiter{quell.Network: d}, Setters: map[string]Setter{"apache": server{d}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		time.Sleep(1500 * time.Millisecond)
		err = a.Order(ctx, []quell.Limit{{Instance: "i1", Resource: quell.Network, Value: 2e8, Unit: "bit/s"}},
			[]quell.Setting{{Instance: "i1", Target: "apache", Name: "MaxRequestWorkers", Value: 120}})
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
		if len(before.Limits)+len(before.Settings) > 0 || len(broken.Limits)+len(broken.Settings) > 0 {
			t.Errorf("told before anything was set: %+v; and what could not be read: %+v", before, broken)
		}
		if after.Limits[quell.Network] != 2e8 || after.Settings["apache.MaxRequestWorkers"] != 120 || after.Validate() != nil {
			t.Errorf("in force: %v, %v, %v", after.Limits, after.Settings, after.Validate())
		}
	})
}

// slow is a Setter whose Set takes a long time, like a server's check that does not end.
type slow struct {
	server
	takes time.Duration
}

func (s slow) Set(ctx context.Context, name string, value float64) error {
	time.Sleep(s.takes)
	return s.server.Set(ctx, name, value)
}

func TestReadingsGoOnDuringAnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{begin: time.Now()}
		a, err := New(Options{
			Service: "video", Instance: "i1", Period: time.Second, Sampler: &machine{}, Publish: j.publish,
			Setters: map[string]Setter{"apache": slow{server{&toy{values: map[string]float64{"MaxRequestWorkers": 50}}}, 10 * time.Second}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		time.Sleep(500 * time.Millisecond)
		if err := a.Order(ctx, nil, []quell.Setting{{Instance: "i1", Target: "apache", Name: "MaxRequestWorkers", Value: 120}}); err != nil {
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
	limit := func(change func(*quell.Limit)) []quell.Limit {
		l := quell.Limit{Instance: "i1", Resource: quell.Network, Value: 2e8, Unit: "bit/s"}
		change(&l)
		return []quell.Limit{l}
	}
	set := func(change func(*quell.Setting)) []quell.Setting {
		s := quell.Setting{Instance: "i1", Target: "apache", Name: "MaxRequestWorkers", Value: 120}
		change(&s)
		return []quell.Setting{s}
	}
	for name, tc := range map[string]struct {
		limits   []quell.Limit
		settings []quell.Setting
		want     string
	}{
		"no driver for a resource": {limit(func(l *quell.Limit) { l.Resource = quell.Disk }), nil,
			"limit disk: this agent has no driver that limits disk"},
		"no driver for a server": {nil, set(func(s *quell.Setting) { s.Target = "nginx" }),
			"setting nginx.MaxRequestWorkers: this agent has no driver that sets nginx"},
		"a limit of another":      {limit(func(l *quell.Limit) { l.Instance = "i2" }), nil, `limit network: it is for "i2", and this is "i1"`},
		"a setting of another":    {nil, set(func(s *quell.Setting) { s.Instance = "i2" }), `it is for "i2", and this is "i1"`},
		"what the driver refuses": {limit(func(l *quell.Limit) { l.Unit = "furlong" }), nil, `unit "furlong": want bit/s`},
	} {
		d := &toy{values: map[string]float64{}}
		a, err := New(Options{
			Service: "video", Instance: "i1", Period: time.Second, Sampler: &machine{}, Publish: (&journal{}).publish,
			Limiters: map[quell.Resource]Limiter{quell.Network: d}, Setters: map[string]Setter{"apache": server{d}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Order(t.Context(), tc.limits, tc.settings); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if d.bound != 0 || len(d.values) > 0 {
			t.Errorf("%s: set all the same", name)
		}
	}
}

// The agent applies the orders that it can apply, and its answer names the others.
func TestOrdersInPart(t *testing.T) {
	d := &toy{}
	a, err := New(Options{Service: "video", Instance: "i1", Period: time.Second, Sampler: &machine{}, Publish: (&journal{}).publish,
		Limiters: map[quell.Resource]Limiter{quell.Network: d}})
	if err != nil {
		t.Fatal(err)
	}
	err = a.Order(t.Context(), []quell.Limit{
		{Instance: "i1", Resource: quell.Disk, Value: 1, Unit: "1/s"}, {Instance: "i1", Resource: quell.Network, Value: 2e8, Unit: "bit/s"},
	}, nil)
	if err == nil || strings.Contains(err.Error(), "network") || d.bound != 2e8 {
		t.Errorf("%v, bound %v", err, d.bound)
	}
}
