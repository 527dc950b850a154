package training

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/sensor"
)

// machine is a machine of two processors with a service that uses a quarter of them.
type machine struct {
	*Machine
	refused error
	broken  error // of the interferer
	last    time.Time
	blind   bool    // the processors' sensor fails
	use     float64 // of the interferer that runs; 0: none does
	since   time.Time
	probing bool
	opened  int
}

func newMachine() *machine {
	m := &machine{}
	m.Machine = New(Options{
		Refuse: func() error { return m.refused },
		Open: func() (Meter, error) {
			m.opened++
			return Meter{Sample: m.sample, Feels: []quell.Resource{quell.CPU}, Counts: func(r quell.Resource) bool { return r == quell.CPU },
				Run: func(ctx context.Context) error {
					m.probing = true
					defer func() { m.probing = false }()
					<-ctx.Done()
					return nil
				}}, nil
		},
		Start: func(r quell.Resource, use float64, _ time.Duration) (Interferer, error) {
			if r != quell.CPU {
				return nil, errors.New("no interferer of " + string(r))
			}
			m.use, m.since = use, time.Now()
			return interferer{m}, nil
		},
	})
	return m
}

func (m *machine) sample(now time.Time) (o quell.Observation, _ []sensor.Failure) {
	if !m.last.IsZero() {
		o.WindowS = now.Sub(m.last).Seconds()
		o.Utilization = map[quell.Resource]float64{quell.CPU: 0.25 + m.use, quell.Network: 0.1}
		if m.blind {
			delete(o.Utilization, quell.CPU)
		}
	}
	m.last = now
	return o, nil
}

type interferer struct{ m *machine }

func (i interferer) Used(time.Duration) (float64, error) {
	return i.m.use * time.Since(i.m.since).Seconds(), i.m.broken
}
func (i interferer) Close() { i.m.use = 0 }

func (m *machine) order(t *testing.T, o bus.Training) bus.Trained {
	t.Helper()
	done, err := m.Order(o)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func near(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }

// What the interferer used is told apart from the service's use, also after the interferer has changed.
func TestOwnAndInterferingUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		defer m.Close()
		if done := m.order(t, bus.Training{ForS: 20}); len(done.Feels) != 1 || done.Observation != nil {
			t.Errorf("the first answer is %+v", done)
		}
		m.order(t, bus.Training{Resource: quell.CPU, Use: 0.5, ForS: 20})
		time.Sleep(10 * time.Second)
		done := m.order(t, bus.Training{Read: true, ForS: 20})
		if !near(done.Own[quell.CPU], 2.5) || !near(done.Interfering[quell.CPU], 5) || !near(done.Own[quell.Network], 1) {
			t.Errorf("after 10 s: own %v, interfering %v", done.Own, done.Interfering)
		}
		m.order(t, bus.Training{Resource: quell.CPU, ForS: 20})
		time.Sleep(4 * time.Second)
		done = m.order(t, bus.Training{Read: true, ForS: 20})
		if !near(done.Own[quell.CPU], 3.5) || !near(done.Interfering[quell.CPU], 5) || done.Observation.WindowS != 4 {
			t.Errorf("after 4 s more without it: own %v, interfering %v, %v s", done.Own, done.Interfering, done.Observation.WindowS)
		}
	})
}

// What an interferer used in a window that a sensor did not measure is not taken from the service's use in others.
func TestOwnUseAfterAFailedReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		defer m.Close()
		m.order(t, bus.Training{Resource: quell.CPU, Use: 0.5, ForS: 60})
		for _, blind := range []bool{false, true, false} {
			m.blind = blind
			time.Sleep(10 * time.Second)
			if done := m.order(t, bus.Training{Read: true, ForS: 60}); blind && !near(done.Own[quell.CPU], 2.5) {
				t.Errorf("without a reading: own %v", done.Own)
			}
		}
		if done := m.order(t, bus.Training{Read: true, ForS: 60}); !near(done.Own[quell.CPU], 5) || !near(done.Interfering[quell.CPU], 15) {
			t.Errorf("after two windows and one without a reading: own %v, interfering %v", done.Own, done.Interfering)
		}
	})
}

// A training ends when it is told to, when it is not renewed, when consent is taken back, and with the agent.
func TestATrainingEnds(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *machine){
		"told": func(t *testing.T, m *machine) { m.order(t, bus.Training{}) },
		"not renewed": func(_ *testing.T, _ *machine) {
			time.Sleep(21 * time.Second)
			synctest.Wait()
		},
		"consent is gone": func(t *testing.T, m *machine) {
			m.refused = errors.New("agent.training is off")
			if _, err := m.Order(bus.Training{ForS: 20}); err == nil {
				t.Error("it goes on without consent")
			}
		},
		"the agent ends": func(_ *testing.T, m *machine) { m.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				m.order(t, bus.Training{Resource: quell.CPU, Use: 0.5, ForS: 20})
				time.Sleep(15 * time.Second)
				m.order(t, bus.Training{ForS: 20})
				time.Sleep(15 * time.Second)
				if synctest.Wait(); m.use == 0 || !m.probing {
					t.Fatal("it ended although it was renewed")
				}
				m.order(t, bus.Training{ForS: 20})
				end(t, m)
				if synctest.Wait(); m.use != 0 || m.probing {
					t.Errorf("the interferer has %v, probing %v", m.use, m.probing)
				}
			})
		})
	}
}

func TestWhatAMachineRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		defer m.Close()
		m.refused = errors.New("set agent.training")
		if _, err := m.Order(bus.Training{ForS: 20}); err == nil || m.opened > 0 {
			t.Errorf("without consent: %v, opened %d times", err, m.opened)
		}
		m.refused = nil
		if _, err := m.Order(bus.Training{Resource: quell.Network, Use: 0.1, ForS: 20}); err == nil {
			t.Error("an interferer that there is not was started")
		}
		m.order(t, bus.Training{Resource: quell.CPU, Use: 0.5, ForS: 20})
		m.broken = errors.New("killed")
		if _, err := m.Order(bus.Training{Read: true, ForS: 20}); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("an interferer that was killed: %v", err)
		}
		m.broken = nil
		if done := m.order(t, bus.Training{Read: true, ForS: 20}); done.Observation == nil {
			t.Error("it does not go on after that")
		}
	})
}
