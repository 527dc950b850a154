package agent

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quellhq/quell/probe"
)

// metrics are the agent's Prometheus metrics.
type metrics struct {
	observations  prometheus.Counter
	publishErrors prometheus.Counter
	sensorErrors  *prometheus.CounterVec
	probes        *prometheus.CounterVec
	capacity      *prometheus.GaugeVec
}

func newMetrics() metrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "quell", Subsystem: "agent", Name: name, Help: help}
	}
	return metrics{
		observations:  prometheus.NewCounter(counter("observations_total", "Observations taken, published or not.")),
		publishErrors: prometheus.NewCounter(counter("publish_errors_total", "Observations that could not be published.")),
		sensorErrors:  prometheus.NewCounterVec(counter("sensor_errors_total", "Samples in which a sensor failed."), []string{"sensor"}),
		probes:        prometheus.NewCounterVec(counter("probes_total", "Probes of the machine's own resources."), []string{"resource"}),
		capacity: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "quell", Subsystem: "agent", Name: "network_capacity_bytes_per_second",
			Help: "Capacity of the network interface that is measured."}, []string{"interface"}),
	}
}

// expect begins the counters of sensors.
func (m metrics) expect(sensors []string) {
	for _, name := range sensors {
		m.sensorErrors.WithLabelValues(name)
	}
}

// register adds the metrics to r, if it is set, and those of the probe server, if there is one.
func (m metrics) register(r prometheus.Registerer, server *probe.Server) error {
	if r == nil {
		return nil
	}
	collectors := []prometheus.Collector{m.observations, m.publishErrors, m.sensorErrors, m.probes, m.capacity}
	if server != nil {
		collectors = append(collectors, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "quell", Subsystem: "agent", Name: "probe_bytes_total", Help: "Bytes sent in answer to probes.",
		}, func() float64 { return float64(server.BytesSent()) }))
	}
	var errs []error
	for _, c := range collectors {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}
