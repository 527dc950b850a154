package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy/ice"
)

// iceLab has the page's experiments on the lab's machines. They are played one at a time, because neighbours on the processors of one lab
// would disturb another lab. Without neighbours, in live-calm, a second lab can only cause more false cuts. No run takes more than five
// minutes.
func iceLab() labPage {
	return labPage{name: "ice", labs: 1, parts: []labPart{
		{name: "live-onsets", of: "ice-onsets", trains: true, seeds: 3, title: "How soon ICE acts beside PRIMA", sum: iceOnsetsLive},
		{name: "live-table", of: "ice-table", seeds: 3, title: "Table I: a neighbour that computes", sum: iceTableLive},
		{name: "live-parameters", of: "ice-parameters", seeds: 3, title: "Table I: server parameters", sum: iceTableLive},
		{name: "live-table-compile", of: "ice-table-compile", seeds: 5, title: "Table I: a neighbour that compiles", sum: iceTableLive},
		{name: "live-detector", of: "ice-onsets", command: "alternate", title: "The detector, second by second"},
		{name: "live-streaming", of: "streaming", command: "streaming", seeds: 3, title: "Streams",
			args: []string{"--workers", "1,2,3,10", "--weights", "100,80,70,60", "--run", "8s"}},
		{name: "live-calm", of: "ice-calm", seeds: 14, alone: 2, title: "How often ICE cuts for nothing", sum: iceCalmLive},
	}}
}

// playICE plays those runs of the lab that have no record yet: all of them (live), or those of one part.
func playICE(ctx context.Context, name string) error {
	lab := iceLab()
	if name == "live" {
		return playParts(ctx, lab.parts, lab.labs, false)
	}
	i := slices.IndexFunc(lab.parts, func(p labPart) bool { return p.name == name })
	if i < 0 {
		return fmt.Errorf("the ice page has no part %q", name)
	}
	return playParts(ctx, lab.parts[i:i+1], cmp.Or(lab.parts[i].alone, lab.labs), false)
}

// fallen is the part of what it had before that a cut leaves at most.
const fallen = 0.95

// iceOnsetsLive sums up how long it takes from each onset of a neighbour until ICE cuts its instance's share. That another policy gives it
// less does not count.
func iceOnsetsLive(f *partFigures, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	var delays []float64
	f.Reaction = &reactionFigures{}
	for _, records := range plays {
		r := records[0]
		if r == nil {
			continue
		}
		f.Reaction.Failed += r.Result.Errors
		for _, n := range presences(sc) {
			f.Reaction.Onsets++
			if at, cut := r.CutAfter(n.instance, n.from, n.to, fallen); cut {
				delays = append(delays, at-n.from)
			}
		}
	}
	f.Reaction.sum(delays)
	return nil
}

// presence is a time in which a neighbour is beside an instance, in seconds.
type presence struct {
	instance string
	from, to float64
}

// presences lists when neighbours are there. The scaler starts i1 on h1, i2 on h2 and so on.
func presences(sc *scenario.Scenario) (list []presence) {
	for i, e := range sc.Timeline {
		if e.Interfere == nil || e.Interfere.Use == 0 {
			continue
		}
		n := presence{"i" + strings.TrimPrefix(e.Interfere.Host, "h"), e.At.Seconds(), sc.Duration.Seconds()}
		for _, later := range sc.Timeline[i+1:] {
			if later.Interfere != nil && later.Interfere.Host == e.Interfere.Host {
				n.to = later.At.Seconds()
				break
			}
		}
		list = append(list, n)
	}
	return list
}

// calmFigures count the cuts in time without neighbours.
type calmFigures struct {
	Hours   float64
	Cuts    int
	Seconds float64 // with a cut
	Failed  int64
}

// PerHour is the number of cuts in an hour.
func (c calmFigures) PerHour() float64 { return float64(c.Cuts) / c.Hours }

func iceCalmLive(f *partFigures, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	f.Calm = &calmFigures{}
	for _, records := range plays {
		if records[0] == nil {
			continue
		}
		cuts, seconds := records[0].Cuts()
		f.Calm.Hours += sc.Duration.Hours()
		f.Calm.Cuts, f.Calm.Seconds, f.Calm.Failed = f.Calm.Cuts+cuts, f.Calm.Seconds+seconds, f.Calm.Failed+records[0].Result.Errors
	}
	return nil
}

// iceTableRow is a run of Table I. Response times are medians in milliseconds, and of these the median over the seeds.
type iceTableRow struct {
	Title          string
	Scheduling     quell.Scheduling
	Seeds          int
	CalmMS         float64 // at the disturbed instance before the neighbour comes
	DisturbedMS    float64 // there while the neighbour is there
	Range          string  // DisturbedMS with the smallest and the largest of the seeds
	AllMS          float64 // of all requests meanwhile
	TailMS         float64 // 99th percentile of all requests meanwhile
	Versus         string  // DisturbedMS against that of static under the same scheduling
	ChangedS       float64 // for how many seconds of that parameters of its server were changed
	Orders, Failed int     // orders of parameters; failed requests
}

// iceTableLive compares the runs of Table I.
func iceTableLive(f *partFigures, plots string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	still := map[quell.Scheduling]float64{}
	for i, run := range sc.Runs {
		row := newIceTableRow(presences(sc)[0], recordsOf(plays, i))
		if row.Seeds == 0 {
			continue
		}
		row.Title, row.Scheduling = iceRunTitle(run), run.Scheduling
		if run.Policy.Fast.Name == "" {
			still[run.Scheduling] = row.DisturbedMS
		}
		row.Versus = against(row.DisturbedMS, still[run.Scheduling])
		f.Table = append(f.Table, row)
	}
	f.Plot = sc.Name + "-medians.png"
	if err := plotMedians(filepath.Join(plots, f.Plot), f.Table); err != nil {
		return err
	}
	overTime := sc.Name + "-time.png"
	drawn, err := plotDisturbed(filepath.Join(plots, overTime), sc, plays[0])
	if drawn {
		f.OverTime = overTime
	}
	return err
}

// recordsOf are the records of a run that were played, in the order of their seeds.
func recordsOf(plays [][]*experiment.Record, run int) (list []*experiment.Record) {
	for _, records := range plays {
		if r := records[run]; r != nil {
			list = append(list, r)
		}
	}
	return list
}

func newIceTableRow(n presence, records []*experiment.Record) iceTableRow {
	row := iceTableRow{Seeds: len(records)}
	var calm, disturbed, all, tail, changed []float64
	for _, r := range records {
		before, during := r.Phase(0, n.from), r.Phase(n.from, n.to)
		calm = append(calm, p50Of(before.Instances[n.instance].LatencyMS))
		disturbed, all = append(disturbed, p50Of(during.Instances[n.instance].LatencyMS)), append(all, p50Of(during.LatencyMS))
		slow, _ := during.LatencyMS.Of(quell.P99)
		tail, changed = append(tail, slow), append(changed, changedIn(n, r))
		row.Orders, row.Failed = row.Orders+len(r.Settings), row.Failed+int(r.Result.Errors)
	}
	row.CalmMS, row.DisturbedMS, row.AllMS = middle(calm), middle(disturbed), middle(all)
	row.TailMS, row.ChangedS, row.Range = middle(tail), middle(changed), spreadOf(disturbed, "%.1f")
	return row
}

// changedIn returns for how many seconds of a presence some parameter of the instance's server was changed. ICE orders a changed value and
// the value of before in turn.
func changedIn(n presence, r *experiment.Record) (seconds float64) {
	changed, since := map[string]bool{}, n.to
	for _, s := range r.Settings {
		if s.Instance != n.instance || s.AtS > n.to {
			continue
		}
		before := len(changed)
		if changed[s.Key()] {
			delete(changed, s.Key())
		} else {
			changed[s.Key()] = true
		}
		switch {
		case before == 0:
			since = max(s.AtS, n.from)
		case len(changed) == 0:
			seconds, since = seconds+max(0, s.AtS-since), n.to
		}
	}
	return seconds + n.to - since
}

func p50Of(l quell.Latency) float64 {
	ms, _ := l.Of(quell.P50)
	return ms
}

// iceRunTitle names a run of Table I.
func iceRunTitle(run scenario.Run) string {
	settings, tunes := run.Policy.Fast.Settings.(ice.Settings)
	switch {
	case tunes && settings.Floor == 1:
		return "server parameters alone (IC²)"
	case tunes && settings.Floor < iceFloor():
		return fmt.Sprintf("ICE, floor %.0f%%", 100*settings.Floor)
	case tunes && settings.Parameters != (ice.Parameters{}):
		return "ICE and server parameters"
	case tunes:
		return "ICE"
	}
	return "static"
}

// against says by which part a differs from b.
func against(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%+.0f%%", 100*(a/b-1))
}
