package main

import (
	"fmt"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/tenants"
	"github.com/quellhq/quell/policy/acs"
)

// plotCaps draws what two tenants with one task each get of a processor over time. The kernel would give the first one ten times as much.
// At the top is acs by caps, below is the literal rule.
func plotCaps(dir string) error {
	damped, err := capsOver("acs by caps",
		acsWith(func(s *acs.Settings) { s.By = acs.Caps }))
	if err != nil {
		return err
	}
	literal, err := capsOver("literal rule", acsWith(func(s *acs.Settings) { s.Rule = acs.Literal }))
	if err != nil {
		return err
	}
	literal.X.Label.Text = "seconds"
	return saveAbove(filepath.Join(dir, "acs-caps.png"), damped, literal)
}

// capsOver draws one run.
func capsOver(title string, p quell.Policy) (*plot.Plot, error) {
	list := []string{"first", "second"}
	out, err := tenants.Play(tenants.Options{Cores: 1, Duration: time.Minute, Policy: p, Tenants: []tenants.Tenant{
		{Name: list[0], Tasks: 1, Weight: 10}, {Name: list[1], Tasks: 1}}})
	if err != nil {
		return nil, err
	}
	var lines []any
	for tenant, name := range list {
		var line plotter.XYs
		for i, period := range out.Periods {
			line = append(line, plotter.XY{X: float64(i + 1), Y: period.Run[tenant]})
		}
		lines = append(lines, name, line)
	}
	drawn := plot.New()
	drawn.Title.Text, drawn.Y.Label.Text = title, "processors"
	drawn.Y.Min, drawn.Y.Max, drawn.X.Max = 0, 1.05, 72 // room for the legend
	drawn.Legend.Top = true
	return drawn, plotutil.AddLines(drawn, lines...)
}

// plotLive draws the weights and caps of real programs over time, with one drawing for each mode that has them.
func plotLive(dir string, l *acsLiveData) error {
	if l == nil {
		return nil
	}
	var drawings []*plot.Plot
	for _, run := range l.drawn() {
		drawn := plot.New()
		drawn.Title.Text, drawn.Y.Label.Text = run.Title, "weight, or cap in processors"
		drawn.Legend.Top, drawn.Y.Min, drawn.X.Max = true, 0, 1.3*(run.SettleS+run.MeasuredS) // room for the legend
		var lines []any
		for i, w := range run.Tenants {
			var line plotter.XYs
			for _, m := range run.Moments {
				if limit, ok := m.Limits[fmt.Sprintf("%s%02d", acsGroup, i)]; ok {
					line = append(line, plotter.XY{X: m.AtS, Y: limit})
				}
			}
			if len(line) > 0 {
				lines = append(lines, w.String(), line)
			}
		}
		if err := plotutil.AddLines(drawn, lines...); err != nil {
			return err
		}
		drawings = append(drawings, drawn)
	}
	if len(drawings) == 0 {
		return nil
	}
	drawings[len(drawings)-1].X.Label.Text = "seconds"
	return saveAbove(filepath.Join(dir, "acs-live.png"), drawings...)
}
