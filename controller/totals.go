package controller

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/budget"
)

// totals are sums since the start that only metrics show. They may be read during a step.
type totals struct {
	mu         sync.Mutex
	predicts   histogram // measured response times over predicted ones
	applied    bool      // the last plan was carried out
	of, missed amount
	reasons    map[string]int // decisions by the codes of their reasons
	entries    int            // of the journal
	written    time.Time      // when the last one was; zero: none yet
}

// amount is a part of what a service did.
type amount struct{ seconds, requests float64 }

// predicted compares what an instance's response time was with what the decision before had predicted, if that was carried out. before
// are the rows of that decision; applied says whether the present one is carried out.
func (t *totals) predicted(before []InstanceStatus, s *quell.Snapshot, metric quell.Metric, applied bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.applied
	if t.applied = applied; !was {
		return
	}
	last := make(map[string]float64, len(before))
	for i := range before {
		if p := before[i].PredictedMS; p != nil && *p > 0 && !before[i].Stale {
			last[before[i].ID] = *p
		}
	}
	for i := range s.Instances {
		in := &s.Instances[i]
		if in.Observation == nil {
			continue
		}
		ms, measured := in.Observation.LatencyMS.Of(metric)
		if p, ok := last[in.ID]; ok && measured && in.Observation.LatencyMS.N >= leastCompared {
			t.predicts.add(ratioBounds, ms/p, 1)
		}
	}
}

// leastCompared is how many response times of a period are compared with a prediction; fewer say little.
const leastCompared = 10

// judged adds a period that was compared with the objective.
func (t *totals) judged(v *budget.Verdict, period time.Duration) {
	if !v.Judged {
		return
	}
	now := amount{period.Seconds(), v.Requests}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of.seconds += now.seconds
	t.of.requests += now.requests
	t.missed.seconds += now.seconds * v.Missed(quell.OfTime)
	t.missed.requests += now.requests * v.Missed(quell.OfRequests)
}

// decided counts the reasons of a decision, each code once.
func (t *totals) decided(plan *quell.Plan) {
	given := map[string]bool{}
	for _, r := range plan.Reasons {
		if r.Kind().Severity == "" {
			r.Code = otherReason
		}
		given[r.Code] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reasons == nil {
		t.reasons = map[string]int{}
	}
	for code := range given {
		t.reasons[code]++
	}
}

// otherReason counts reasons whose code is not declared.
const otherReason = "other"

// journaled counts an entry of the journal, unless writing it failed.
func (t *totals) journaled(err error, now time.Time) {
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries, t.written = t.entries+1, now
}

// read returns a copy.
func (t *totals) read() (now struct {
	predicts   histogram
	of, missed amount
	reasons    map[string]int
	entries    int
	written    time.Time
}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now.predicts, now.of, now.missed, now.entries, now.written = t.predicts.clone(), t.of, t.missed, t.entries, t.written
	now.reasons = maps.Clone(t.reasons)
	return now
}

var (
	descResponses = prometheus.NewDesc("quell_request_duration_seconds",
		"Response times of all requests, as the balancers measure them. It counts nothing where a balancer tells only their mean.",
		perService, nil)
	descPredictions = prometheus.NewDesc("quell_prediction_ratio",
		"Measured response time of an instance over the predicted one, in periods whose plan was carried out.", perService, nil)
	descJudgedSeconds = prometheus.NewDesc("quell_objective_judged_seconds_total",
		"Time in which response times were compared with the objective.", perService, nil)
	descMissedSeconds = prometheus.NewDesc("quell_objective_missed_seconds_total",
		"The part of that time in which some instance missed the objective.", perService, nil)
	descJudgedRequests = prometheus.NewDesc("quell_objective_judged_requests_total", "Requests of instances that were judged.",
		perService, nil)
	descMissedRequests = prometheus.NewDesc("quell_objective_missed_requests_total",
		"Requests of instances while these missed the objective.", perService, nil)
	descReasons = prometheus.NewDesc("quell_reasons_total", "Decisions by the codes of their reasons.", []string{"service", "code"}, nil)
	descEntries = prometheus.NewDesc("quell_journal_entries_total", "Plans and events that were written to the journal.",
		perService, nil)
	descWritten = prometheus.NewDesc("quell_journal_last_write_timestamp_seconds", "When the journal was last written.", perService, nil)
)

// totals exports what is summed up since the start.
func (m metrics) totals(ch chan<- prometheus.Metric, service string,
	counter, gauge func(d *prometheus.Desc, v float64, labels ...string),
) {
	t, served := m.c.totals.read(), m.c.gather.responses()
	ch <- served.metric(descResponses, responseBounds, m.c.born, service)
	ch <- t.predicts.metric(descPredictions, ratioBounds, m.c.born, service)
	counter(descJudgedSeconds, t.of.seconds)
	counter(descMissedSeconds, t.missed.seconds)
	counter(descJudgedRequests, t.of.requests)
	counter(descMissedRequests, t.missed.requests)
	for _, kind := range append(quell.ReasonKinds(), quell.ReasonKind{Code: otherReason}) { // from the start, so that a first rise can be seen
		if !kind.Host {
			counter(descReasons, float64(t.reasons[kind.Code]), kind.Code)
		}
	}
	counter(descEntries, float64(t.entries))
	if !t.written.IsZero() {
		gauge(descWritten, float64(t.written.UnixMilli())/1000)
	}
}
