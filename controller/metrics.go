package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quellhq/quell"
)

// metrics exports the status to Prometheus at the time of a scrape.
type metrics struct{ c *Controller }

var (
	perInstance = []string{"service", "member"}
	perService  = []string{"service"}

	descWeight = prometheus.NewDesc("quell_weight", "Planned fraction of traffic.", perInstance, nil)
	descShare  = prometheus.NewDesc("quell_share", "Part of the requests that an instance got.", perInstance, nil)
	descCut    = prometheus.NewDesc("quell_cut", "What a fast policy leaves of an instance's share.", perInstance, nil)
	descUse    = prometheus.NewDesc("quell_utilization",
		"Own use of the policy's resource, the first of several, as a fraction of capacity.", perInstance, nil)
	descSeverity = prometheus.NewDesc("quell_severity", "Severity factor of interference, calibration included.", perInstance, nil)
	descCapacity = prometheus.NewDesc("quell_capacity", "Effective capacity within the threshold, as a fraction.", perInstance, nil)
	descLimiter  = prometheus.NewDesc("quell_limiter",
		"1 for what limits an instance's capacity, unless that is the only resource.", []string{"service", "member", "limiter"}, nil)
	descInterference = prometheus.NewDesc("quell_interference",
		"Neighbours on a resource of an instance. measure severity: how much longer probes take than without neighbours, as a fraction; "+
			"hidden: estimated use by neighbours, as a fraction. origin: for cpu, what its tasks wait for.",
		[]string{"service", "member", "resource", "measure", "origin"}, nil)
	descWaits = prometheus.NewDesc("quell_waits",
		"Share of the time in which an instance's tasks want to run that they wait for a processor, by cause.",
		[]string{"service", "member", "cause"}, nil)
	descCredits = prometheus.NewDesc("quell_credits", "Estimated credits that a burstable instance has.",
		[]string{"service", "member", "resource"}, nil)
	descDepleted = prometheus.NewDesc("quell_credits_depleted_seconds",
		"When these credits run out if the use stays as it has been, in seconds from now; absent: never.",
		[]string{"service", "member", "resource"}, nil)
	descLatency   = prometheus.NewDesc("quell_latency_seconds", "Response time in the metric of the objective.", perInstance, nil)
	descPredicted = prometheus.NewDesc("quell_predicted_seconds", "Response time predicted at the planned load.", perInstance, nil)
	descOverride  = prometheus.NewDesc("quell_override", "Weight set by hand.", perInstance, nil)
	descStale     = prometheus.NewDesc("quell_stale", "1 where an instance's readings have stopped.", perInstance, nil)
	descUnprobed  = prometheus.NewDesc("quell_unprobed", "1 where an instance reports, but nobody probes it.", perInstance, nil)
	descHeld      = prometheus.NewDesc("quell_instance_held", "1 where a person took an instance out of rotation.",
		[]string{"service", "member", "by"}, nil)
	descHeldSince = prometheus.NewDesc("quell_instance_held_since_timestamp_seconds", "Since when.", perInstance, nil)
	descMissing   = prometheus.NewDesc("quell_instance_missing",
		"1 where the scaler does not list an instance that the balancer finds healthy.", perInstance, nil)
	descInstances = prometheus.NewDesc("quell_instances",
		"Instances by state; held: taken out of rotation by a person; coming: ordered, and not listed by the scaler yet; "+
			"may_come: no longer waited for, and they may still come.",
		[]string{"service", "state"}, nil)
	descSaturation = prometheus.NewDesc("quell_instance_saturation",
		"Requests per second of an instance over what it can take within the objective; above 1 it gets too many.", perInstance, nil)
	descGroupSaturation = prometheus.NewDesc("quell_saturation",
		"Load of the group over its capacity; above 1 the instances do not suffice. Other autoscalers can follow it.", perService, nil)
	descWanted = prometheus.NewDesc("quell_instances_wanted", "How many instances the last decision wants.", perService, nil)
	descIdle   = prometheus.NewDesc("quell_idle", "1 for the reason why plans are not carried out.", []string{"service", "why"}, nil)
	descProbe  = prometheus.NewDesc("quell_probe_failed", "1 where an agent's probes of a resource measured nothing.",
		[]string{"service", "member", "resource"}, nil)
	descLoad      = prometheus.NewDesc("quell_load", "Summed utilisation.", perService, nil)
	descArrivals  = prometheus.NewDesc("quell_arrival_rate", "Requests per second at the balancers.", perService, nil)
	descUnserved  = prometheus.NewDesc("quell_unserved_rate", "Requests per second for which balancers had no instance.", perService, nil)
	descObjective = prometheus.NewDesc("quell_objective_seconds", "Response time that the objective's metric must not exceed.",
		perService, nil)
	descComparison = prometheus.NewDesc("quell_comparison",
		"1 while acting is compared with the shares of before Quell; turn: acting or handed_back, 1 for the one in force.",
		[]string{"service", "turn"}, nil)
	descSampling = prometheus.NewDesc("quell_sampling_seconds", "Sampling period: a decision is made in each.", perService, nil)
	descPaused   = prometheus.NewDesc("quell_paused", "1 while paused by hand.", perService, nil)
	descActing   = prometheus.NewDesc("quell_acting", "1 while plans are carried out.", perService, nil)
	descRefused  = prometheus.NewDesc("quell_balancer_refused", "1 while the balancer obeys another controller.", perService, nil)
	descLost     = prometheus.NewDesc("quell_memory_lost", "1 while nothing is changed because earlier memory was lost.", perService, nil)
	descStore    = prometheus.NewDesc("quell_store_ok", "1 while what is decided can be kept over a restart.", perService, nil)
	descLeading  = prometheus.NewDesc("quell_leading", "1 while this controller holds the service's lease.", perService, nil)
	descModels   = prometheus.NewDesc("quell_models_in_use", "1 while the configured policy decides, 0 while it waits for models.",
		perService, nil)
	descDecisions = prometheus.NewDesc("quell_decisions_total", "Plans that changed something.", perService, nil)
	descSeconds   = prometheus.NewDesc("quell_instance_seconds_total", "Cost so far: start command to exit, summed.", perService, nil)
	descReadings  = prometheus.NewDesc("quell_readings_total", "Readings taken in.", []string{"service", "source"}, nil)
	descRejected  = prometheus.NewDesc("quell_readings_rejected_total", "Readings dropped because they break a rule.", perService, nil)
	descUnknown   = prometheus.NewDesc("quell_unknown_senders", "Senders that report of instances that the service does not have.",
		perService, nil)
	descFailures    = prometheus.NewDesc("quell_failures_total", "Errors by the part they came from.", []string{"service", "part"}, nil)
	descBus         = prometheus.NewDesc("quell_bus_connected", "1 while the controller is connected to the bus.", perService, nil)
	descLastDecided = prometheus.NewDesc("quell_last_decision_timestamp_seconds", "When the last decision was made.", perService, nil)
)

func (metrics) Describe(ch chan<- *prometheus.Desc) { ch <- descDecisions }

func (m metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.c.Status()
	if s.Service == "" {
		return // it has not looked yet
	}
	readings, _ := m.c.gather.totals()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{s.Service}, labels...)...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, append([]string{s.Service}, labels...)...)
	}
	now, states := m.c.shown.read(), map[quell.State]int{}
	for _, in := range s.Instances {
		if in.Held == nil || !now.remembers {
			states[in.State]++
		}
		for d, v := range map[*prometheus.Desc]*float64{
			descWeight: in.Weight, descUse: in.Utilization, descSeverity: in.Severity,
			descCapacity: in.Capacity, descLatency: seconds(in.LatencyMS), descPredicted: seconds(in.PredictedMS), descShare: in.Share,
		} {
			if v != nil {
				gauge(d, *v, in.ID)
			}
		}
		for resource, x := range in.Interference {
			for measure, v := range map[string]*float64{"severity": x.Severity, "hidden": x.Hidden} {
				if v != nil {
					gauge(descInterference, *v, in.ID, string(resource), measure, x.Origin)
				}
			}
		}
		if in.Waits != nil {
			for cause, v := range map[string]*float64{
				quell.OwnCause: in.Waits.Own, quell.QuotaCause: in.Waits.Quota,
				quell.NeighboursCause: in.Waits.Neighbours, quell.HypervisorCause: in.Waits.Hypervisor,
			} {
				if v != nil {
					gauge(descWaits, *v, in.ID, cause)
				}
			}
		}
		for resource, b := range in.Credits {
			gauge(descCredits, b.Left, in.ID, string(resource))
			if b.DepletedS != nil {
				gauge(descDepleted, *b.DepletedS, in.ID, string(resource))
			}
		}
		if in.Limiter != "" {
			gauge(descLimiter, 1, in.ID, in.Limiter)
		}
		if in.RequestRate != nil && in.CanTakeRate != nil && *in.CanTakeRate > 0 {
			gauge(descSaturation, *in.RequestRate / *in.CanTakeRate, in.ID)
		}
		for resource := range in.ProbeFailed {
			gauge(descProbe, 1, in.ID, string(resource))
		}
		if in.Missing != nil {
			gauge(descMissing, 1, in.ID)
		}
		gauge(descStale, bit(in.Stale), in.ID)
		gauge(descUnprobed, bit(in.Unprobed), in.ID)
	}
	if !s.At.IsZero() {
		for _, state := range quell.States {
			gauge(descInstances, float64(states[state]), string(state))
		}
		gauge(descLoad, s.Load)
		gauge(descUnserved, s.Unserved)
		gauge(descLastDecided, float64(s.At.UnixMilli())/1000)
	}
	if s.Wanted != nil {
		gauge(descWanted, float64(*s.Wanted))
	}
	if s.ArrivalRate != nil {
		gauge(descArrivals, *s.ArrivalRate)
	}
	gauge(descActing, bit(s.Leading && s.Refused == "" && s.Lost == "" && !s.Paused && s.Mode == quell.Act))
	gauge(descRefused, bit(s.Refused != ""))
	gauge(descLeading, bit(s.Leading))
	gauge(descBus, bit(s.Bus == ""))
	gauge(descModels, bit(s.HasModels()))
	for _, why := range idleReasons {
		gauge(descIdle, bit(why == now.idle), why)
	}
	gauge(descObjective, now.objective.Seconds())
	gauge(descSampling, m.c.sampling().Seconds())
	if now.remembers {
		m.remembered(&s, gauge, counter)
	}
	gauge(descUnknown, float64(len(s.UnknownSenders)))
	m.totals(ch, s.Service, counter, gauge)
	counter(descDecisions, float64(s.Decisions))
	counter(descRejected, float64(s.Rejected))
	for _, source := range quell.Sources {
		counter(descReadings, float64(readings[source]), string(source))
	}
	for _, part := range parts {
		counter(descFailures, float64(s.Failures[part]), part)
	}
}

// remembered exports what comes from the memory that the leader keeps, or depends on it. In a controller that has not led yet it would say
// that there is nothing, and in one that another one has followed it would stand still. One that no longer leads only because the bus or
// its store fails goes on: nobody else exposes it.
func (m metrics) remembered(s *Status, gauge, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	out := 0
	for i := range s.Instances {
		in := &s.Instances[i]
		if in.Held != nil {
			out++
			gauge(descHeld, 1, in.ID, in.Held.By)
			gauge(descHeldSince, float64(in.Held.Since.UnixMilli())/1000, in.ID)
		}
		if in.Cut != nil {
			gauge(descCut, *in.Cut, in.ID)
		}
	}
	for state, n := range map[string]int{held: out, coming: s.Coming, mayCome: s.MayCome} {
		gauge(descInstances, float64(n), state)
	}
	for id, w := range s.Overrides {
		gauge(descOverride, w, id)
	}
	if s.Capacity != nil && *s.Capacity > 0 { // instances that are held have none
		gauge(descGroupSaturation, s.Load / *s.Capacity)
	}
	counter(descSeconds, s.InstanceSeconds)
	gauge(descPaused, bit(s.Paused))
	gauge(descLost, bit(s.Lost != ""))
	gauge(descStore, bit(s.Store == ""))
	if s.Comparison != nil {
		gauge(descComparison, bit(!s.HandedBack), "acting")
		gauge(descComparison, bit(s.HandedBack), "handed_back")
	}
	if s.Budget != nil {
		m.budget(s, gauge, counter)
	}
}

// parts are the parts of a controller whose failures are counted. A counter that begins with the first failure would not be seen to rise.
var parts = []string{"apply", "journal", "lease", "list", "look", "measure", "memory", "release", "rows", "scaler"}

// seconds turns milliseconds into seconds.
func seconds(ms *float64) *float64 {
	if ms == nil {
		return nil
	}
	return new(*ms / 1000)
}

// States under which metrics count instances, beside their own.
const (
	held    = "held"     // taken out of rotation by a person
	coming  = "coming"   // ordered, and not yet listed by the scaler
	mayCome = "may_come" // ordered, no longer waited for, and may still come
)

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Metrics returns what Prometheus gets of the service.
func (c *Controller) Metrics() prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics{c})
	return registry
}

// Handler serves /metrics, with what else is gathered in this process, /healthz (the process is alive), /readyz (200 if the last decision
// is at most three periods old and the bus can be reached) and /status (JSON).
func (c *Controller) Handler(process ...prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(append(prometheus.Gatherers(process), c.Metrics()), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", c.readyz)
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(c.Status())
	})
	return mux
}

func (c *Controller) readyz(w http.ResponseWriter, _ *http.Request) {
	text, err := c.Ready()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, text)
}

// Ready returns an error if the last decision is too old, or nothing can be changed. Else it says whether decisions are stored.
func (c *Controller) Ready() (text string, err error) {
	s := c.Status()
	switch {
	case s.Bus != "":
		return "", errors.New("bus: " + s.Bus)
	case s.At.IsZero() || c.now().Sub(s.At) > 3*c.sampling():
		return "", errors.New("no decision within three sampling periods")
	case s.Lost != "":
		return "", errors.New("nothing is changed until `quell resume`: " + s.Lost)
	case s.Refused != "":
		return "", errors.New(s.Refused)
	case s.NotLeading != "" && !s.Standby:
		return "", errors.New("this controller does not lead, and knows of none that does: " + s.NotLeading)
	case s.Store != "": // without its store the controller still decides and acts
		return "ok, from memory: " + s.Store, nil
	}
	return "ok", nil
}
