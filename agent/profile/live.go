package profile

import (
	"errors"
	"fmt"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/progress"
	"github.com/quellhq/quell/sensor"
)

// Latencies are response times as somebody sees them.
type Latencies interface {
	// Take returns the response times since the previous call, and how many requests failed.
	Take() (ms []float64, failed int, err error)
}

// Live is the Source of a service on this machine.
type Live struct {
	Spending  *sensor.Spending
	Latencies Latencies
	Received  bool             // the network's use is what is received, not what is sent
	Progress  *progress.Server // the load is what programs report; nil: it is the mean number of connections
	Group     string           // path of the control group whose reports count
	last      time.Time

	connections, looked int // the sum of the counts since the last window, and how many counts those are
}

// Subsample implements Source: it counts the connections.
func (l *Live) Subsample() error {
	if l.Progress != nil {
		return nil
	}
	n, err := l.Spending.Connections()
	l.connections += n
	l.looked++
	return err
}

// Take implements Source.
func (l *Live) Take(now time.Time) (w Window, err error) {
	seconds := now.Sub(l.last).Seconds()
	first := l.last.IsZero()
	l.last = now
	var obs quell.Observation
	errUse := l.Spending.Sample(now, &obs)
	ms, failed, err := l.Latencies.Take()
	if err = errors.Join(errUse, err); err != nil {
		return w, fmt.Errorf("measuring the service: %w", err)
	}
	load, err := l.load(seconds)
	if err != nil || first {
		return w, err
	}
	network := quell.CounterSent
	if l.Received {
		network = quell.CounterReceived
	}
	w = Window{Load: load, LatenciesMS: ms, Failed: failed, Use: map[quell.Resource]float64{}}
	for r, counter := range map[quell.Resource]string{quell.CPU: quell.CounterProcessors, quell.Network: network,
		quell.Disk: quell.CounterOperations} {
		if use, known := obs.Counters[counter]; known {
			w.Use[r] = use
		}
	}
	return w, nil
}

// load is the mean of the counts of connections, or the rate of what programs report, since the last window.
func (l *Live) load(seconds float64) (float64, error) {
	if l.Progress == nil {
		mean := float64(l.connections) / float64(max(1, l.looked))
		l.connections, l.looked = 0, 0
		return mean, nil
	}
	units, err := l.Progress.Take()
	if err != nil {
		return 0, err
	}
	sum, _ := progress.Within(units, l.Group)
	return sum / seconds, nil
}
