package model

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

// Export returns what was learned as models that can be stored: the section live, and tables of the section prima with what was measured.
// A learner that begins with these models takes the tables as data. Of several types of instance, the tables describe the one of which
// most is known. If no law is known, the error wraps quell.ErrNoData and says which readings are missing.
func (l *Learner) Export(o FitOptions) (*Models, error) {
	live := l.Live()
	if len(live) == 0 {
		return nil, fmt.Errorf("too little was measured for a model: %s: %w", l.lacks(), quell.ErrNoData)
	}
	trained := &Trained{At: o.At, Service: o.Service, InstanceType: o.InstanceType, Metric: l.Metric}
	tables := &Prima{}
	for _, r := range sortedKeys(live) {
		law := live.Best(r)
		l.Seen[r][live.bestType(r)].tabulate(r, l.Metric, tables)
		trained.Rows += law.N
		if law.PerRequest > 0 {
			quell.Put(&trained.PerRequest, r, law.PerRequest)
		}
		if law.By != nil {
			quell.Put(&trained.By, r, *law.By)
		}
	}
	m := &Models{Trained: trained, Sections: []Section{tables, live}}
	return m, m.Validate()
}

// lacks says which readings are missing for a law.
func (l *Learner) lacks() string {
	var parts []string
	if l != nil {
		for _, r := range sortedKeys(l.Seen) {
			windows, answered := l.Count(r)
			parts = append(parts, fmt.Sprintf("%s: %d windows with a probe, %d of them with a response time", r, windows, answered))
		}
	}
	if parts == nil {
		return "no observation has both a probe and the utilisation of its resource"
	}
	return strings.Join(parts, "; ")
}

// tabulate adds the means of the windows of each kind to the tables of a resource. Windows of similar use form a level.
func (r *Record) tabulate(resource quell.Resource, metric quell.Metric, to *Prima) {
	levels := map[int][]*Window{}
	for i := range r.Windows {
		if w := &r.Windows[i]; w.ProbeN >= fewest {
			levels[r.cell(w)/severityClasses] = append(levels[r.cell(w)/severityClasses], w)
		}
	}
	for _, level := range sortedKeys(levels) {
		use := windowMean(levels[level], func(w *Window) (value, weight float64) { return min(w.Use, lawTop), 1 })
		for class := range severityClasses {
			alike := slices.DeleteFunc(slices.Clone(levels[level]), func(w *Window) bool { return r.cell(w)%severityClasses != class })
			if len(alike) > 0 {
				r.tabulateKind(resource, metric, use, class, alike, to)
			}
		}
	}
}

// tabulateKind adds the mean of windows of one kind. Those of class 0 are taken as undisturbed.
func (r *Record) tabulateKind(resource quell.Resource, metric quell.Metric, use float64, class int, alike []*Window, to *Prima) {
	probes, runs := 0, len(alike)
	for _, w := range alike {
		probes += w.ProbeN
	}
	byProbes := func(value func(w *Window) float64) float64 {
		return windowMean(alike, func(w *Window) (float64, float64) { return value(w), float64(w.ProbeN) })
	}
	severity := 0.0
	if class == 0 {
		alone := byProbes(func(w *Window) float64 { return w.ProbeMS })
		spread := byProbes(func(w *Window) float64 { return w.Spread })
		quell.Put(&to.Isolation, resource, append(to.Isolation[resource],
			Isolation{Utilization: use, ProbeMS: alone, StddevMS: min(alone*math.Sqrt(spread), maxValue), N: probes, Runs: runs}))
	} else {
		severity = min(byProbes(func(w *Window) float64 { return w.ProbeMS / r.Law.probe(w.Use) })-1, maxValue)
		quell.Put(&to.Interference, resource, append(to.Interference[resource],
			Interference{Utilization: use, Interfering: r.Law.interfering(use, severity), Severity: severity, Runs: runs}))
	}
	answered := slices.DeleteFunc(alike, func(w *Window) bool { return w.N < fewest })
	if len(answered) == 0 {
		return
	}
	row := ResponseTime{Utilization: use, Severity: severity, Runs: len(answered)}
	byRequests := func(value func(w *Window) float64) float64 {
		return windowMean(answered, func(w *Window) (float64, float64) { return value(w), float64(w.N) })
	}
	row.LatencyMS.Set(metric, byRequests(func(w *Window) float64 { return w.MetricMS }))
	row.LatencyMS.Set(quell.Mean, byRequests(func(w *Window) float64 { return w.MeanMS }))
	if size := byRequests(func(w *Window) float64 { return w.Size }); size > 1 {
		row.Size, row.Crowd = size, min(byRequests(func(w *Window) float64 { return w.Crowd }), 1)
	}
	for _, w := range answered {
		row.LatencyMS.N += w.N
	}
	quell.Put(&to.ResponseTime, resource, append(to.ResponseTime[resource], row))
}

// windowMean is the weighted mean of a value of windows.
func windowMean(windows []*Window, of func(*Window) (value, weight float64)) float64 {
	var sum, all float64
	for _, w := range windows {
		value, weight := of(w)
		sum, all = sum+value*weight, all+weight
	}
	return sum / all
}
