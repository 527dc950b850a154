package model

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/quellhq/quell"
)

// NewLearner returns a learner that begins with the tables of trained models as if they had been measured in place. What is measured later
// replaces them. prior may be nil.
func NewLearner(prior *Models, slo quell.SLO) *Learner {
	l := &Learner{Metric: slo.Metric, Prior: prior.Fingerprint()}
	if prior == nil {
		return l
	}
	for _, r := range sortedKeys(prior.Prima().ResponseTime) {
		record := trainedRecord(prior, r, slo)
		if record == nil {
			continue
		}
		quell.Put(&l.Seen, r, map[string]*Record{AnyType: record})
		if prior.Trained != nil && prior.Trained.InstanceType != "" {
			l.Seen[r][prior.Trained.InstanceType] = record
			quell.Put(&l.Base, r, prior.Trained.InstanceType)
		}
	}
	return l
}

// Fingerprint tells models from others: equal ones have the same. It is "" for nil.
func (m *Models) Fingerprint() string {
	if m == nil {
		return ""
	}
	hash := sha256.New()
	if err := m.Encode(hash); err != nil {
		return ""
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

// trainedRequests is how many response times, and trainedProbes how many probes, a row of a table counts for.
const trainedRequests, trainedProbes = 100, 40

// trainedRecord returns the rows of a resource's tables as windows; nil if they lack the objective's metric.
func trainedRecord(m *Models, r quell.Resource, slo quell.SLO) *Record {
	if len(m.Prima().Isolation[r]) == 0 {
		return nil
	}
	alone := newBaseline(m.Prima().Isolation[r], untested)
	record := &Record{}
	perRequest := 0.0
	if m.Trained != nil {
		perRequest = m.Trained.PerRequest[r]
		if by, ok := m.Trained.By[r]; ok {
			record.By = &by
		}
	}
	for _, row := range m.Prima().ResponseTime[r] {
		ms, ok := row.LatencyMS.Of(slo.Metric)
		if !ok || !(ms > minProbeMS) {
			continue
		}
		iso, spread, _ := alone.Isolation(row.Utilization)
		w := Window{Use: row.Utilization, ProbeMS: iso * (1 + row.Severity), Spread: min(square(spread/iso), widest), ProbeN: trainedProbes,
			MeanMS: ms, MetricMS: ms, N: trainedRequests, Alone: row.Size <= 1, Size: row.Size, Crowd: row.Crowd}
		if mean, ok := row.LatencyMS.Of(quell.Mean); ok && mean > minProbeMS {
			w.MeanMS = mean
		}
		if perRequest > 0 {
			w.Rate = row.Utilization / perRequest
		}
		record.add(w)
	}
	record.Law = record.fit(slo, 0, len(m.Prima().ResponseTime) == 1)
	if record.Law != nil && slices.ContainsFunc(record.Windows, func(w Window) bool { return !w.Alone }) {
		record.Law.Together = record.Law.together(record.Windows, slo, balanced{}) // the rule is known with the first snapshot
	}
	return record
}
