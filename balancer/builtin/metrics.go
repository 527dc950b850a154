package builtin

import (
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/certfile"
)

// codeAborted is the code of an incomplete response.
const codeAborted = "aborted"

// codes are the values of the label code.
func codes() []string { return []string{"1xx", "2xx", "3xx", "4xx", "5xx", codeAborted} }

// codeClass turns a status such as 204 into "2xx". Instances may answer with any three digits.
func codeClass(status int) string {
	if status < 100 || status > 599 {
		return "5xx"
	}
	return codes()[status/100-1]
}

// metrics is the balancer's own registry.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	moved    *prometheus.CounterVec
	shed     *prometheus.CounterVec
}

func newMetrics(o *Options) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quell_balancer_requests_total", Help: "Requests finished, by instance and class of the status code.",
		}, []string{"member", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                        "quell_balancer_latency_seconds",
			Help:                        "Response times, from a request's arrival to the last byte, of requests that count as responses.",
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"member"}),
		moved: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quell_balancer_moved_total", Help: "Requests moved to another instance because this one could not be reached.",
		}, []string{"member"}),
	}
	m.shed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quell_balancer_shed_total", Help: "Requests that the instance refused with 429 or 503.",
	}, []string{"member"})
	m.registerer(o).MustRegister(m.requests, m.latency, m.moved, m.shed)
	if o.Bus != nil {
		m.registerer(o).MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quell_balancer_bus_connected", Help: "1 while the balancer is connected to the bus; traffic does not depend on it.",
		}, func() float64 {
			if o.Bus() != nil {
				return 0
			}
			return 1
		}))
	}
	return m
}

func (m *metrics) registerer(o *Options) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"service": o.Service, "balancer": o.Name}, m.registry)
}

// follow adds metrics whose values are read from the pool at each scrape.
func (m *metrics) follow(p *pool, g *connLimiter, cert *certfile.Certificate, o *Options) {
	if cert != nil {
		m.registerer(o).MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quell_balancer_certificate_expiry_timestamp_seconds", Help: "When the certificate in use expires, in seconds since 1970.",
		}, func() float64 { return float64(cert.Expires().Unix()) }))
	}
	perInstance := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"member"}, nil)
	}
	m.registerer(o).MustRegister(&poolCollector{
		pool:     p,
		limiter:  g,
		inFlight: perInstance("quell_balancer_in_flight", "Requests sent to the instance and not finished."),
		weight:   perInstance("quell_balancer_weight", "Weight of the instance."),
		healthy:  perInstance("quell_balancer_healthy", "Whether the instance passes its health checks."),
		unrouted: prometheus.NewDesc("quell_balancer_unrouted_total", "Requests that found no instance.", nil, nil),
		clients:  prometheus.NewDesc("quell_balancer_client_connections", "Open connections of clients.", nil, nil),
		refused:  prometheus.NewDesc("quell_balancer_refused_total", "Connections closed because their client had too many.", nil, nil),
	})
}

func (m *metrics) instance(id string) *instanceMetrics {
	byCode := make(map[string]prometheus.Counter)
	for _, code := range codes() {
		byCode[code] = m.requests.WithLabelValues(id, code)
	}
	return &instanceMetrics{
		byCode: byCode, latency: m.latency.WithLabelValues(id), moved: m.moved.WithLabelValues(id), shed: m.shed.WithLabelValues(id),
	}
}

func (m *metrics) forget(id string) {
	of := prometheus.Labels{"member": id}
	m.requests.DeletePartialMatch(of)
	m.latency.DeletePartialMatch(of)
	m.moved.DeletePartialMatch(of)
	m.shed.DeletePartialMatch(of)
}

// gatherer returns the balancer's metrics with those of its process, which may be nil.
func (m *metrics) gatherer(process prometheus.Gatherer) prometheus.Gatherer {
	if process == nil {
		return m.registry
	}
	return prometheus.Gatherers{m.registry, process}
}

// handler serves /metrics and /healthz. /healthz answers that the balancer runs, and on a second line whether it is connected to the bus.
func (m *metrics) handler(process prometheus.Gatherer, bus func() error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.gatherer(process), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "ok\n")
		if bus == nil {
			return
		}
		if err := bus(); err != nil {
			fmt.Fprintf(w, "bus: %v\n", err)
		}
	})
	return mux
}

type poolCollector struct {
	pool                                                  *pool
	limiter                                               *connLimiter
	inFlight, weight, healthy, unrouted, clients, refused *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *poolCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.inFlight, c.weight, c.healthy, c.unrouted, c.clients, c.refused} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *poolCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(c.unrouted, prometheus.CounterValue, float64(c.pool.unrouted.Load()))
	open, refused := c.limiter.counts()
	ch <- prometheus.MustNewConstMetric(c.clients, prometheus.GaugeValue, float64(open))
	ch <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(refused))
	for _, s := range c.pool.state() {
		c.gauge(ch, c.inFlight, float64(s.InFlight), s)
		c.gauge(ch, c.weight, s.Weight, s)
		up := 0.0
		if s.Healthy {
			up = 1
		}
		c.gauge(ch, c.healthy, up, s)
	}
}

func (c *poolCollector) gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, s quell.BackendState) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.ID)
}
