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
	Progress  *progress.Server // the load is what programs report; nil: it is the number of connections
	Group     string           // path of the control group whose reports count
	last      time.Time
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
	load := obs.Counters[quell.CounterConnections]
	if l.Progress != nil {
		units, err := l.Progress.Take()
		if err != nil {
			return w, err
		}
		sum, _ := progress.Within(units, l.Group)
		load = sum / seconds
	}
	if first {
		return w, nil
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
