package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"

	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/setting"
)

// burstLiveData has the measured figures of the live part.
type burstLiveData struct {
	Machine  string        `json:"machine"`
	Settings burstSettings `json:"settings"`
	Runs     []burstRun    `json:"runs"`
	Off      *burstOff     `json:"off,omitempty"` // of the profile's predictions; absent: too few windows
}

// burstOff is how wrong predicted response times are, as fractions of the measured ones.
type burstOff struct {
	N    int     `json:"n"`    // windows
	Mean float64 `json:"mean"` // of the errors' magnitudes
	Bias float64 `json:"bias"` // of the errors
}

// run returns the run of a piece.
func (l *burstLiveData) run(name string) (burstRun, bool) {
	i := slices.IndexFunc(l.Runs, func(r burstRun) bool { return r.Piece == name })
	if i < 0 {
		return burstRun{}, false
	}
	return l.Runs[i], true
}

// before returns the windows that ended before the instance was slowed down.
func (r burstRun) before(window time.Duration) []burstWindow {
	if r.DepletedS == nil {
		return r.Windows
	}
	return slices.DeleteFunc(slices.Clone(r.Windows), func(w burstWindow) bool { return w.AtS+window.Seconds() > *r.DepletedS })
}

// off compares the profile's predictions with windows before depletion, in which there was one limit, and as many users as before.
func (l *burstLiveData) off(p *credit.Profile) *burstOff {
	var errs, magnitudes []float64
	for _, r := range l.Runs {
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
	return &burstOff{N: len(errs), Mean: stat.Mean(magnitudes, nil), Bias: stat.Mean(errs, nil)}
}

// burstRow is a run on the page.
type burstRow struct {
	Title, Depleted, Times, Kept string
	Windows, Failed, Replaced    int
}

func (l *burstLiveData) row(p burstPiece, r burstRun) burstRow {
	windows := r.Windows
	if !p.replaces {
		windows = r.before(l.Settings.Window)
	}
	row := burstRow{Title: p.Title(), Windows: len(windows), Replaced: len(r.Replaced), Depleted: fmt.Sprintf("not in %.0f s", r.LastedS),
		Kept: "-", Times: "-"}
	for _, w := range r.Windows {
		row.Failed += w.Failed
	}
	if len(windows) > 0 {
		row.Kept = percent(l.kept(windows))
	}
	lasted := r.LastedS
	if r.DepletedS != nil {
		lasted = *r.DepletedS
		row.Depleted = fmt.Sprintf("%.0f s", lasted)
	}
	if standard, ok := l.run("default"); ok && standard.DepletedS != nil {
		row.Times = fmt.Sprintf("%.2f", lasted / *standard.DepletedS)
		if r.DepletedS == nil {
			row.Times = "more than " + row.Times
		}
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
type burstSaid struct{ AtS, SaidS, TrueS float64 }

// Error is |estimated - real| / real, as in MRburst, Table 2.
func (s burstSaid) Error() float64 { return math.Abs(s.SaidS-s.TrueS) / s.TrueS }

func newBurstFigures(part string, l *burstLiveData) *burstFigures {
	if l == nil {
		return nil
	}
	s := l.Settings
	f := &burstFigures{Machine: l.Machine, Service: string(s.Service), CPU: s.CPU, CPUCredits: 60 * s.CPUOf,
		FileKiB: s.File >> 10, LinkMbit: s.Link / 1e6, BaselineMbit: s.Baseline / 1e6,
		CreditSeconds: s.Credits * 1e6 / (s.Link - s.Baseline), UsersText: listed(s.Users), Each: setting.FormatDuration(s.Each),
		Objective: setting.FormatDuration(s.Objective), Window: setting.FormatDuration(s.Window),
		Longest: setting.FormatDuration(s.Longest), Off: l.Off,
		Best: l.best()}
	var missing []string
	for _, p := range l.Settings.pieces() {
		r, ok := l.run(p.name)
		f.Others = math.Max(f.Others, r.Others)
		switch {
		case !ok:
			missing = append(missing, "`mrburst:"+part+"-"+p.name+"`")
		case p.mode == burstProfile:
			f.Profile = "    " + strings.ReplaceAll(strings.TrimSpace(r.Profile), "\n", "\n    ")
		case p.users > 0:
			f.Constant, f.Forecasts = p.users, r.said()
		case p.replaces:
			f.Replacing = append(f.Replacing, l.row(p, r))
		default:
			f.Rows = append(f.Rows, l.row(p, r))
		}
		if p.name == "default" {
			f.Operations = r.Operations
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
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " and " + texts[last]
}

// said are forecasts, one about every 20 s. The first 10 s are left out, in which the use is not known yet.
func (r burstRun) said() (list []burstSaid) {
	if r.DepletedS == nil {
		return nil
	}
	const every, first = 20.0, 10.0
	next := first
	for _, f := range r.Forecasts {
		if f.AtS >= next && f.AtS < *r.DepletedS {
			list = append(list, burstSaid{f.AtS, f.SaidS, *r.DepletedS})
			next = f.AtS + every
		}
	}
	return list
}

// best compares mrburst with the best limit of the search: the one whose credits last longest among those that keep the objective.
func (l *burstLiveData) best() string {
	own, ok := l.run("mrburst")
	var found *burstRow
	longest := 0.0
	for _, p := range l.Settings.pieces() {
		r, played := l.run(p.name)
		if p.mode != burstFixed || !played {
			continue
		}
		lasted := r.LastedS
		if r.DepletedS != nil {
			lasted = *r.DepletedS
		}
		if windows := r.before(l.Settings.Window); len(windows) > 0 && l.kept(windows) >= 0.99 && lasted > longest {
			row := l.row(p, r)
			found, longest = &row, lasted
		}
	}
	if !ok || found == nil {
		return ""
	}
	lasted := own.LastedS
	if own.DepletedS != nil {
		lasted = *own.DepletedS
	}
	return fmt.Sprintf("Of the constant limits that keep the objective in 99%% of the windows, credits last longest with %s: %.0f s. With "+
		"mrburst they last %.2f times as long.", found.Title, longest, lasted/longest)
}

// plot draws response times relative to the objective over time, and the number of users.
func (l *burstLiveData) plot(path string) error {
	drawn := plot.New()
	drawn.Y.Label.Text, drawn.X.Label.Text = "95th percentile / objective", "seconds"
	drawn.Legend.Top, drawn.Y.Min, drawn.Y.Max = true, 0, 4
	var lines []any
	for _, name := range []string{"default", "cpu", "mrburst"} {
		r, ok := l.run(name)
		var line plotter.XYs
		for _, w := range r.Windows {
			if w.P95MS != nil {
				line = append(line, plotter.XY{X: w.AtS + l.Settings.Window.Seconds()/2,
					Y: math.Min(drawn.Y.Max, *w.P95MS/1000/l.Settings.Objective.Seconds())})
			}
		}
		if ok && len(line) > 0 {
			lines = append(lines, name, line)
		}
	}
	users := plot.New()
	users.Y.Label.Text, users.Y.Min = "users", 0
	var steps plotter.XYs
	for at := time.Duration(0); at < l.Settings.Longest; at += time.Second {
		steps = append(steps, plotter.XY{X: at.Seconds(), Y: float64(l.Settings.usersAt(at))})
	}
	err := plotutil.AddLines(drawn, lines...)
	if err = cmp.Or(err, plotutil.AddLines(users, steps)); err != nil {
		return err
	}
	drawn.X.Max, users.X.Max = l.Settings.Longest.Seconds(), l.Settings.Longest.Seconds()
	return saveAbove(path, drawn, users)
}
