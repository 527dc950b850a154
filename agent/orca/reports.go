// Package orca answers balancers that ask an instance for load reports (Open Request Cost Aggregation, xds.service.orca.v3), from which
// they compute its weight themselves: rps / utilization. What an instance should get, the controller says; how much of it is used, the
// agent measures.
package orca

import (
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	orcadata "github.com/cncf/xds/go/xds/data/orca/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
)

const (
	// scale is the weight that clients compute for an instance that should get all requests. They round weights to whole numbers.
	scale = 1e6
	// Clients ignore reports with a utilization or rate of 0. An idle instance must be reported, too.
	leastUtilization, mostUtilization = 0.01, 100
)

// Reports are the load reports of a machine, one for each of its services. Its methods may be called concurrently.
type Reports struct {
	now func() time.Time
	log *slog.Logger

	mu      sync.Mutex
	use     map[quell.Resource]float64
	of      map[string]*told // by service
	streams int
}

// told is what a service's controller says of this machine.
type told struct {
	report quell.LoadReport
	until  time.Time // zero: nothing yet
	silent bool      // it was logged that the report has ended
}

// New makes the reports of a machine. now must be monotonic.
func New(now func() time.Time, log *slog.Logger) *Reports {
	return &Reports{now: now, log: log, of: map[string]*told{}}
}

// Serve makes the services those for which there are reports. What is known of the others is forgotten.
func (r *Reports) Serve(services []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.of, func(name string, _ *told) bool { return !slices.Contains(services, name) })
	for _, name := range services {
		if r.of[name] == nil {
			r.of[name] = &told{}
		}
	}
}

// Tell notes what a service's controller says.
func (r *Reports) Tell(service string, report quell.LoadReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.of[service]
	if t == nil {
		return
	}
	if t.silent {
		r.log.Info("load reports follow the controller again", "service", service)
	}
	*t = told{report: report, until: r.now().Add(time.Duration(report.ValidS * float64(time.Second)))}
	t.silent = report.ValidS == 0 // it was ended on purpose
}

// Observe notes how much of the machine's resources is used, once per sampling period.
func (r *Reports) Observe(use map[quell.Resource]float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.use = use
	for name, t := range r.of {
		if !t.until.IsZero() && !t.silent && !r.valid(t) {
			t.silent = true
			r.log.Warn("nothing heard from the controller: load reports only tell plain utilization, and clients forget the weight",
				"service", name)
		}
	}
}

func (r *Reports) valid(t *told) bool { return r.now().Before(t.until) }

// Load returns the report for a client that asked for this authority (the host of its request).
//
// With a report of the controller that is still valid, application_utilization is the use over the capacity, and rps_fractional is such
// that rps / utilization is the instance's share: it is no measured rate. Without one there is neither, so that clients keep the last
// weight until it expires (weight_expiration_period) and then use the mean of the other instances' weights.
func (r *Reports) Load(authority string) *orcadata.OrcaLoadReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	load := &orcadata.OrcaLoadReport{CpuUtilization: r.use[quell.CPU], Utilization: map[string]float64{}}
	for resource, use := range r.use {
		if resource != quell.CPU {
			load.Utilization[string(resource)] = math.Min(use, 1)
		}
	}
	t := r.pick(authority)
	if t == nil || !r.valid(t) {
		return load
	}
	load.ApplicationUtilization = math.Min(math.Max(r.utilization(&t.report), leastUtilization), mostUtilization)
	load.RpsFractional = load.ApplicationUtilization * math.Max(t.report.Share*scale, 1)
	return load
}

// pick returns the service that a client means. Of several services on a machine, the authority names it.
func (r *Reports) pick(authority string) *told {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		authority = host
	}
	if t := r.of[authority]; t != nil || len(r.of) != 1 {
		return t
	}
	for _, t := range r.of {
		return t
	}
	return nil
}

// utilization returns the use over the capacity. While the capacity is not known, it is the largest use of a resource.
func (r *Reports) utilization(report *quell.LoadReport) float64 {
	if use, measured := r.use[report.Resource]; measured && report.Capacity != nil {
		return use / *report.Capacity
	}
	var most float64
	for _, use := range r.use {
		most = math.Max(most, use)
	}
	return most
}

var (
	descValid = prometheus.NewDesc("quell_agent_load_report_valid",
		"1 while load reports follow the controller. 0: they only tell plain utilization.", []string{"service"}, nil)
	descStreams = prometheus.NewDesc("quell_agent_load_report_streams", "Clients that get load reports now.", nil, nil)
)

// Describe implements prometheus.Collector.
func (r *Reports) Describe(descs chan<- *prometheus.Desc) { descs <- descValid; descs <- descStreams }

// Collect implements prometheus.Collector.
func (r *Reports) Collect(metrics chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, t := range r.of {
		value := 0.0
		if r.valid(t) {
			value = 1
		}
		metrics <- prometheus.MustNewConstMetric(descValid, prometheus.GaugeValue, value, name)
	}
	metrics <- prometheus.MustNewConstMetric(descStreams, prometheus.GaugeValue, float64(r.streams))
}
