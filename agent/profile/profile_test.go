package profile

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
)

// service is a file server in synthetic time: a link of 100 units that users share. It is its own limiter.
type service struct {
	users      func(elapsed time.Duration) float64
	fails      func(limit float64) int
	refuses    quell.Resource
	began      time.Time
	limit      float64 // of the network; 0: none
	cpu        float64 // of the processors; 0: none
	set        []float64
	worst      float64 // longest response time
	silent     bool    // it gives no response times
	pauses     []int   // windows in which it gives none
	windows    int
	subsamples int
	blind      error // of looking at connections
	stuck      error // of lifting a limit
}

func (s *service) Take(now time.Time) (Window, error) {
	if s.began.IsZero() {
		s.began = now
	}
	users := s.users(now.Sub(s.began))
	link := 100.0
	if s.limit > 0 {
		link = math.Min(link, s.limit)
	}
	if s.cpu > 0 {
		link = math.Min(link, 100*s.cpu)
	}
	ms := 1000 * users / link
	s.worst = math.Max(s.worst, ms)
	w := Window{Load: users, Use: map[quell.Resource]float64{quell.Network: link, quell.CPU: link / 100}}
	s.windows++
	if !s.silent && !slices.Contains(s.pauses, s.windows) {
		w.LatenciesMS = slices.Repeat([]float64{ms}, 10)
	}
	if s.fails != nil {
		w.Failed = s.fails(s.limit)
	}
	return w, nil
}

func (s *service) Subsample() error {
	s.subsamples++
	return s.blind
}

func (s *service) Limit(r quell.Resource, value float64) error {
	if r != "" && r == s.refuses {
		return errors.New("the kernel refuses")
	}
	if r == "" && s.stuck != nil {
		return s.stuck
	}
	s.limit, s.cpu = 0, 0
	switch r {
	case quell.Network:
		s.limit = value
	case quell.CPU:
		s.cpu = value
	}
	s.set = append(s.set, value)
	return nil
}

func constant(users float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return users }
}

// profiled runs a profiler on a service, with an objective of a second.
func profiled(t *testing.T, s *service, longest time.Duration) (plan *credit.Sparse, told string, err error) {
	t.Helper()
	plan, err = credit.NewSparse(credit.SparseOptions{Resources: []quell.Resource{quell.CPU, quell.Network}, ObjectiveMS: 1000, Worst: 3})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), longest)
		defer stop()
		err = Run(ctx, Options{Plan: plan, Source: s, Limiter: s, Window: 5 * time.Second, Windows: 3, Percentile: 0.95, Idle: 4 * time.Minute,
			Tell: func(text string) { lines = append(lines, text) }})
	})
	if s.stuck == nil && s.limit+s.cpu != 0 {
		t.Error("a limit is left in force")
	}
	return plan, strings.Join(lines, "\n"), err
}

// Under a load that varies, everything is measured once, and the profile tells the limits that keep the objective.
func TestProfileOfAService(t *testing.T) {
	s := &service{users: func(elapsed time.Duration) float64 {
		return []float64{50, 50, 20, 35, 35}[min(4, int(elapsed/(3*time.Minute)))]
	}}
	plan, told, err := profiled(t, s, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	p, err := credit.NewProfile(plan.Rows())
	if err != nil {
		t.Fatalf("%v\n%s", err, told)
	}
	for users, want := range map[float64]float64{50: 50, 35: 35} {
		if c, ok := p.Tightest(quell.Network, users, 1000); !ok || math.Abs(c.Limit-want) > 0.1*want {
			t.Errorf("%v users: limited to %v, want %v\n%s", users, c.Limit, want, told)
		}
	}
	if s.worst > 3.5*1000 && !strings.Contains(told, "lifted at once") {
		t.Errorf("%v ms\n%s", s.worst, told)
	}
}

// Response times beyond the bound, and failed requests, lift a limit after one window.
func TestProfileLiftsLimitsAtOnce(t *testing.T) {
	for why, change := range map[string]func(*service){
		"too slow": func(*service) {},
		"failures": func(s *service) {
			s.fails = func(limit float64) int {
				if limit > 0 && limit < 60 {
					return 1
				}
				return 0
			}
		},
	} {
		s := &service{users: constant(90)}
		change(s)
		plan, told, err := profiled(t, s, time.Hour)
		if err != nil {
			t.Fatalf("%s: %v", why, err)
		}
		if !strings.Contains(told, "lifted at once") {
			t.Errorf("%s: %s", why, told)
		}
		for _, row := range plan.Rows() {
			if row.Limited == quell.Network && row.Limit < 20 {
				t.Errorf("%s: the row went on to %v", why, row.Limit)
			}
		}
	}
}

// What cannot be limited is left out. A service without response times, or without load, is a mistake of the user's.
func TestProfileOfWhatCannotBeMeasured(t *testing.T) {
	s := &service{users: constant(50), refuses: quell.CPU}
	plan, told, err := profiled(t, s, time.Hour)
	if err != nil || plan.Refused()[quell.CPU] == "" || !strings.Contains(told, "the kernel refuses") {
		t.Errorf("%v, %v\n%s", err, plan.Refused(), told)
	}
	if _, err := credit.NewProfile(plan.Rows()); err != nil {
		t.Errorf("of the network alone: %v", err)
	}
	for want, s := range map[string]*service{
		"response times in 5s": {users: constant(50), silent: true},
		"had no load":          {users: constant(0)},
	} {
		_, _, err := profiled(t, s, time.Hour)
		if user := new(quell.UserError); !errors.As(err, &user) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	s = &service{users: constant(50), blind: errors.New("no connections")}
	if _, _, err := profiled(t, s, time.Hour); !errors.Is(err, s.blind) {
		t.Errorf("connections that cannot be counted: %v", err)
	}
	s = &service{users: constant(50), stuck: errors.New("it stays")}
	if _, _, err := profiled(t, s, time.Hour); err == nil || !strings.Contains(err.Error(), "it stays") {
		t.Errorf("a limit that cannot be lifted: %v", err)
	}
}

// A window with too few response times is not measured, and one after it is.
func TestProfileWaitsForResponses(t *testing.T) {
	s := &service{users: constant(50), pauses: []int{3, 4}}
	plan, told, err := profiled(t, s, time.Hour)
	if err != nil {
		t.Fatalf("%v\n%s", err, told)
	}
	if s.subsamples != subsamples*(s.windows-1) {
		t.Errorf("%d looks at the connections in %d windows", s.subsamples, s.windows-1)
	}
	if rows := plan.Rows(); len(rows) < 3 || rows[0].Limited != "" || rows[2].Limited != "" {
		t.Errorf("without a limit three windows are measured: %+v", rows)
	}
}

// An end in the middle is no error, and what was measured until then is kept.
func TestProfileIsInterrupted(t *testing.T) {
	s := &service{users: constant(50)}
	plan, _, err := profiled(t, s, 100*time.Second)
	if err != nil || len(plan.Rows()) == 0 {
		t.Errorf("%v, %d rows", err, len(plan.Rows()))
	}
}
