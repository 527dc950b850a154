package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/plot/plotter"

	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/internal/figure"
	"github.com/quellhq/quell/setting"
)

// burstLiveData has the measured figures of the live part.
type burstLiveData struct {
	Settings burstSettings `json:"settings"`
	Runs     []burstRun    `json:"runs"`
	Off      []burstOff    `json:"off,omitempty"` // of the profile's predictions, of each seed with enough windows
}

// burstOff is how wrong predicted response times are, as fractions of the measured ones.
type burstOff struct {
	Seed int     `json:"seed"`
	N    int     `json:"n"`    // windows
	Mean float64 `json:"mean"` // of the errors' magnitudes
	Bias float64 `json:"bias"` // of the errors
}

// run returns the run of a piece with a seed.
func (l *burstLiveData) run(name string, seed int) (burstRun, bool) {
	i := slices.IndexFunc(l.Runs, func(r burstRun) bool { return r.Piece == name && r.Seed == seed })
	if i < 0 {
		return burstRun{}, false
	}
	return l.Runs[i], true
}

// runs are the runs of a piece, in order of the seeds.
func (l *burstLiveData) runs(name string) (list []burstRun) {
	for _, r := range l.Runs {
		if r.Piece == name {
			list = append(list, r)
		}
	}
	return list
}

// machines says where the seeds were measured.
func (l *burstLiveData) machines() string {
	var list []string
	seeds := map[string][]int{}
	for _, r := range l.Runs {
		if !slices.Contains(list, r.Machine) {
			list = append(list, r.Machine)
		}
		if !slices.Contains(seeds[r.Machine], r.Seed) {
			seeds[r.Machine] = append(seeds[r.Machine], r.Seed)
		}
	}
	if len(list) == 1 {
		return list[0]
	}
	for i, machine := range list {
		word := "seed"
		if len(seeds[machine]) > 1 {
			word = "seeds"
		}
		list[i] = fmt.Sprintf("%s (%s %s)", machine, word, listed(seeds[machine]))
	}
	return strings.Join(list, ", and ")
}

// lasted is for how long a run had credits, in seconds: at least, if they were never spent.
func (r burstRun) lasted() float64 {
	if r.DepletedS != nil {
		return *r.DepletedS
	}
	return r.LastedS
}

// before returns the windows that ended before the instance was slowed down.
func (r burstRun) before(window time.Duration) []burstWindow {
	if r.DepletedS == nil {
		return r.Windows
	}
	return slices.DeleteFunc(slices.Clone(r.Windows), func(w burstWindow) bool { return w.AtS+window.Seconds() > *r.DepletedS })
}

// off compares the profile's predictions with a seed's windows before depletion, in which there was one limit, and as many users as
// before.
func (l *burstLiveData) off(p *credit.Profile, seed int) *burstOff {
	var errs, magnitudes []float64
	for _, r := range l.Runs {
		if r.Seed != seed {
			continue
		}
		windows := r.before(l.Settings.Window)
		fixed := l.Settings.fixed(r.Piece)
		for i, w := range windows {
			if i == 0 || w.P95MS == nil || windows[i-1].Users != w.Users || len(w.Limited) > 1 {
				continue
			}
			now := fixed
			if len(w.Limited) == 1 {
				now = w.Limited[0]
			}
			if x, ok := p.Predict(now.Resource, now.Value, float64(w.Users)); ok {
				e := x.LatencyMS / *w.P95MS - 1
				errs, magnitudes = append(errs, e), append(magnitudes, math.Abs(e))
			}
		}
	}
	if len(errs) < 5 {
		return nil
	}
	return &burstOff{Seed: seed, N: len(errs), Mean: stat.Mean(magnitudes, nil), Bias: stat.Mean(errs, nil)}
}

// pooledOff is how far off the predictions are in the windows of all seeds.
func (l *burstLiveData) pooledOff() *burstOff {
	if len(l.Off) == 0 {
		return nil
	}
	var all burstOff
	for _, o := range l.Off {
		n := float64(o.N)
		all.N, all.Mean, all.Bias = all.N+o.N, all.Mean+n*o.Mean, all.Bias+n*o.Bias
	}
	all.Mean, all.Bias = all.Mean/float64(all.N), all.Bias/float64(all.N)
	return &all
}

// burstRow is what all seeds of a piece have shown, on the page.
type burstRow struct {
	Title, Depleted, Times, Kept, Replaced string
	Seeds, Windows, Failed                 int
}

func (l *burstLiveData) row(p burstPiece, runs []burstRun) burstRow {
	row := burstRow{Title: p.Title(), Seeds: len(runs), Kept: "-", Times: "-"}
	var judged []burstWindow
	var depleted, times, replaced []string
	for _, r := range runs {
		windows := r.Windows
		if !p.replaces {
			windows = r.before(l.Settings.Window)
		}
		judged = append(judged, windows...)
		for _, w := range r.Windows {
			row.Failed += w.Failed
		}
		text, more := fmt.Sprintf("%.0f s", r.lasted()), ""
		if r.DepletedS == nil {
			text, more = "not in "+text, "more than "
		}
		depleted, replaced = append(depleted, text), append(replaced, fmt.Sprint(len(r.Replaced)))
		if standard, ok := l.run("default", r.Seed); ok && standard.DepletedS != nil {
			times = append(times, fmt.Sprintf("%s%.2f", more, r.lasted() / *standard.DepletedS))
		}
	}
	row.Windows, row.Depleted, row.Replaced = len(judged), strings.Join(depleted, ", "), strings.Join(replaced, ", ")
	if len(judged) > 0 {
		row.Kept = percent(l.kept(judged))
	}
	if len(times) > 0 {
		row.Times = strings.Join(times, ", ")
	}
	return row
}

// kept is the share of windows that keep the objective.
func (l *burstLiveData) kept(windows []burstWindow) float64 {
	n := 0
	for _, w := range windows {
		if w.keeps(l.Settings.Objective) {
			n++
		}
	}
	return float64(n) / float64(len(windows))
}

// burstFigures are the live figures on the page.
type burstFigures struct {
	Machine, Service          string
	CPU, CPUCredits           float64 // always there; above that, in processor seconds
	FileKiB                   int64
	LinkMbit, BaselineMbit    float64
	CreditSeconds, Operations float64
	UsersText                 string
	Each, Objective, Window   string
	Longest                   string
	Rows, Replacing           []burstRow
	Missing, Best, Profile    string
	Off                       *burstOff
	Constant                  int
	Forecasts                 []burstSaid
	Others                    float64
}

// burstSaid is a forecast, and what came true.
type burstSaid struct {
	Seed              int
	AtS, SaidS, TrueS float64
}

// Error is |estimated - real| / real, as in MRburst, Table 2.
func (s burstSaid) Error() float64 { return math.Abs(s.SaidS-s.TrueS) / s.TrueS }

// FarthestOff is the largest error of the forecasts.
func (f *burstFigures) FarthestOff() (most float64) {
	for _, s := range f.Forecasts {
		most = math.Max(most, s.Error())
	}
	return most
}

func newBurstFigures(part string, l *burstLiveData) *burstFigures {
	if l == nil {
		return nil
	}
	s := l.Settings
	f := &burstFigures{Machine: l.machines(), Service: string(s.Service), CPU: s.CPU, CPUCredits: 60 * s.CPUOf,
		FileKiB: s.File >> 10, LinkMbit: s.Link / 1e6, BaselineMbit: s.Baseline / 1e6,
		CreditSeconds: s.Credits * 1e6 / (s.Link - s.Baseline), UsersText: listed(s.Users), Each: setting.FormatDuration(s.Each),
		Objective: setting.FormatDuration(s.Objective), Window: setting.FormatDuration(s.Window),
		Longest: setting.FormatDuration(s.Longest), Off: l.pooledOff(),
		Best: l.best()}
	var missing []string
	for _, p := range l.Settings.pieces() {
		runs := l.runs(p.name)
		for _, r := range runs {
			f.Others = math.Max(f.Others, r.Others)
		}
		switch {
		case len(runs) == 0:
			missing = append(missing, "`mrburst:"+part+"-"+p.name+"`")
		case p.mode == burstProfile:
			f.Profile = "    " + strings.ReplaceAll(strings.TrimSpace(runs[len(runs)-1].Profile), "\n", "\n    ")
		case p.users > 0:
			f.Constant, f.Forecasts = p.users, said(runs)
		case p.replaces:
			f.Replacing = append(f.Replacing, l.row(p, runs))
		default:
			f.Rows = append(f.Rows, l.row(p, runs))
		}
		if p.name == "default" && len(runs) > 0 {
			f.Operations = runs[0].Operations
		}
	}
	f.Missing = strings.Join(missing, ", ")
	return f
}

func listed(numbers []int) string {
	var texts []string
	for _, n := range numbers {
		texts = append(texts, fmt.Sprint(n))
	}
	if len(texts) == 1 {
		return texts[0]
	}
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " and " + texts[last]
}

// said are forecasts of each run, one about every 20 s. The first 10 s are left out, in which the use is not known yet.
func said(runs []burstRun) (list []burstSaid) {
	const every, first = 20.0, 10.0
	for _, r := range runs {
		next := first
		for _, f := range r.Forecasts {
			if r.DepletedS != nil && f.AtS >= next && f.AtS < *r.DepletedS {
				list = append(list, burstSaid{r.Seed, f.AtS, f.SaidS, *r.DepletedS})
				next = f.AtS + every
			}
		}
	}
	return list
}

// best compares mrburst with the best limit of the search: the one whose credits last longest among those that keep the objective. A limit
// is compared over the seeds that both were played with.
func (l *burstLiveData) best() string {
	var title string
	var limit, longest, own float64
	var seeds int
	for _, p := range l.Settings.pieces() {
		if p.mode != burstFixed {
			continue
		}
		var windows []burstWindow
		var lasted, ours []float64
		for _, r := range l.runs(p.name) {
			if mrburst, ok := l.run("mrburst", r.Seed); ok {
				windows = append(windows, r.before(l.Settings.Window)...)
				lasted, ours = append(lasted, r.lasted()), append(ours, mrburst.lasted())
			}
		}
		if len(windows) > 0 && l.kept(windows) >= 0.99 && stat.Mean(lasted, nil) > longest {
			title, limit, longest, own, seeds = p.Title(), p.limit, stat.Mean(lasted, nil), stat.Mean(ours, nil), len(lasted)
		}
	}
	if title == "" {
		return ""
	}
	return fmt.Sprintf("Of the constant limits that keep the objective in 99%% of the windows, credits last longest with %s: %.0f s "+
		"(mean, seeds: %d). With mrburst they last %.2f times as long.", title, longest, seeds, own/longest) + l.untried(limit, own)
}

// untried says which limits between the best one and the next lower one that was played are still to be tried, and how long credits would
// last with them by the provider's rule. The factor is an upper bound as long as there are any.
func (l *burstLiveData) untried(best, own float64) string {
	lower := 0.0
	var open []float64
	for _, p := range l.Settings.pieces() {
		switch {
		case p.mode != burstFixed || p.limit >= best:
		case len(l.runs(p.name)) > 0:
			lower = max(lower, p.limit)
		default:
			open = append(open, p.limit)
		}
	}
	var names, lasts, factors []string
	for _, limit := range open {
		if limit > lower {
			seconds := l.Settings.Credits * 1e6 / (limit - l.Settings.Baseline)
			names, lasts = append(names, fmt.Sprintf("%.0f", limit/1e6)), append(lasts, fmt.Sprintf("%.0f", seconds))
			factors = append(factors, fmt.Sprintf("%.2f", own/seconds))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" This is an upper bound: %s Mbit/s were not tried yet. By the credits alone they would last for %s s, and the factor "+
		"would be %s if they keep the objective.", strings.Join(names, " and "), strings.Join(lasts, " and "), strings.Join(factors, " and "))
}

// plot draws response times relative to the objective over time, and the number of users.
func (l *burstLiveData) plot(path string) error {
	drawn := figure.New("", "", "95th percentile / objective")
	drawn.Y.Min, drawn.Y.Max = 0, 4
	var lines []figure.Series
	var found []string
	for _, name := range []string{"default", "cpu", "mrburst"} {
		r, ok := l.run(name, 1)
		var line plotter.XYs
		for _, w := range r.Windows {
			if w.P95MS != nil {
				line = append(line, plotter.XY{X: w.AtS + l.Settings.Window.Seconds()/2,
					Y: math.Min(drawn.Y.Max, *w.P95MS/1000/l.Settings.Objective.Seconds())})
			}
		}
		if ok && len(line) > 0 {
			end := line[len(line)-1].X + l.Settings.Window.Seconds()/2
			found = append(found, fmt.Sprintf("%s %.0f", name, end))
			lines = append(lines, figure.Series{Name: name, Points: line})
		}
	}
	for i, col := range figure.Runs("default", "cpu", "mrburst")[:len(lines)] {
		lines[i].Color = col
	}
	drawn.Title.Text = "Seconds until the objective was lost: " + strings.Join(found, ", ")
	lines = append(lines, figure.Series{Name: "objective", Color: figure.Threshold, Dashed: true,
		Points: plotter.XYs{{X: 0, Y: 1}, {X: l.Settings.Longest.Seconds(), Y: 1}}})
	users := figure.New("", "seconds", "users")
	users.Y.Min = 0
	var steps plotter.XYs
	for at := time.Duration(0); at < l.Settings.Longest; at += time.Second {
		steps = append(steps, plotter.XY{X: at.Seconds(), Y: float64(l.Settings.usersAt(at))})
	}
	err := figure.AddLines(drawn, lines...)
	if err = cmp.Or(err, figure.AddLines(users, figure.Series{Points: steps, Color: figure.Others})); err != nil {
		return err
	}
	drawn.X.Max, users.X.Max = l.Settings.Longest.Seconds(), l.Settings.Longest.Seconds()
	return figure.WriteAbove(path, drawn, users)
}
