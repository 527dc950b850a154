package model

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/quellhq/quell"
)

// What was learned can be written to a file, and a learner that begins with that file predicts what the first one predicted.
func TestExportIsAPrior(t *testing.T) {
	for _, metric := range []quell.Metric{quell.Mean, quell.P90} {
		slo := learnedSLO
		slo.Metric = metric
		w := newLawWorld(15)
		var l *Learner
		for p := range 80 {
			l = l.Learn(w.snapshot(three(p, 0.3*float64(p%2))...), slo)
		}
		again := exported(t, l)
		first, next := l.Live().Best(quell.Network), NewLearner(again, slo).Live().Best(quell.Network)
		if next == nil {
			t.Fatalf("%s: a learner that begins with the file knows nothing", metric)
		}
		for _, at := range []struct{ use, severity float64 }{{0.3, 0}, {0.6, 0}, {0.4, 1}} {
			was, is := predicted(first, metric, at.use, at.severity), predicted(next, metric, at.use, at.severity)
			if !near(is, was, 0.25) {
				t.Errorf("%s: at a use of %v and severity %v the first predicts %.1f ms, the next %.1f", metric, at.use, at.severity, was, is)
			}
		}
		if !near(next.PerRequest, first.PerRequest, 0.05) {
			t.Errorf("%s: a request per second uses %v, before %v", metric, next.PerRequest, first.PerRequest)
		}
	}
}

// A service that never had a neighbour gives models without interference, which a file can hold and a learner can begin with.
func TestExportOfACalmService(t *testing.T) {
	w := newLawWorld(17)
	var l *Learner
	for p := range 80 {
		l = l.Learn(w.snapshot(three(p, 0)...), learnedSLO)
	}
	for _, r := range l.Seen[quell.Network] { // none that only chance disturbed either
		r.Windows = slices.DeleteFunc(r.Windows, func(w Window) bool { return r.cell(&w)%severityClasses > 0 })
	}
	m, err := l.Export(FitOptions{Service: "s", InstanceType: "small"})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Prima().Isolation[quell.Network]) == 0 || m.Prima().Interference != nil {
		t.Errorf("%d calm rows, interference %v", len(m.Prima().Isolation[quell.Network]), m.Prima().Interference)
	}
	if NewLearner(m, learnedSLO).Live().Best(quell.Network) == nil {
		t.Error("a learner that begins with calm machines knows nothing")
	}
}

func predicted(w *Law, metric quell.Metric, use, severity float64) float64 {
	ratio, _ := w.ratio(metric)
	return w.response(use, severity, ratio)
}

func TestExportSaysWhatIsMissing(t *testing.T) {
	var none *Learner
	if _, err := none.Export(FitOptions{}); !errors.Is(err, quell.ErrNoData) {
		t.Errorf("without snapshots: %v", err)
	}
	w := newLawWorld(16)
	mute := learnFor(w, nil, 20, func(p int) []machine {
		list := three(p)
		for i := range list {
			list[i].mute = true
		}
		return list
	})
	_, err := mute.Export(FitOptions{})
	if !errors.Is(err, quell.ErrNoData) || !bytes.Contains([]byte(err.Error()), []byte("0 of them with a response time")) {
		t.Errorf("without response times: %v", err)
	}
}

// exported returns the models that a learner exports, as they are read from their file.
func exported(t *testing.T, l *Learner) *Models {
	t.Helper()
	m, err := l.Export(FitOptions{Service: "s", InstanceType: "small"})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := m.Encode(&text); err != nil {
		t.Fatal(err)
	}
	again, err := Decode(text.Bytes(), "")
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// A learner that begins with what a group taught predicts for the group what the first one predicted.
func TestExportOfAGroupIsAPrior(t *testing.T) {
	const n = 8
	truth := &GroupLaw{R0MS: 10, Pooling: 0.9, Exponent: 1, Ratio: RatioOf(quell.P90, 1)}
	slo, w := quell.SLO{Metric: quell.P90, Threshold: learnedSLO.Threshold}, newLawWorld(18)
	var l *Learner
	for p := range 40 {
		s := w.grouped(truth, n, p)
		s.Scheduling = quell.LeastConn
		l = l.Learn(s, slo)
	}
	again := exported(t, l)
	next := NewLearner(again, slo)
	check := func(when string, next *Learner) {
		for _, use := range []float64{0.3, 0.6, 0.75} {
			ms := func(l *Learner) float64 {
				together := lawOf(t, l).Together
				if together == nil {
					t.Fatalf("%s: nothing is known of the group", when)
				}
				s := together.station(slo.Metric)
				return s.ResponseMS(NewQueue(s.Servers(n)), Even(n, use), 0)
			}
			if got, want := ms(next), ms(l); !near(got, want, 0.15) {
				t.Errorf("%s, at a use of %.2f: %.1f ms, want %.1f", when, use, got, want)
			}
		}
	}
	check("at first", next)
	s := w.grouped(truth, n, 0)
	s.Scheduling = quell.LeastConn
	check("after a period", next.Learn(s, slo))
}
