package main

import (
	"fmt"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/figure"
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
	return figure.WriteAbove(filepath.Join(dir, "acs-caps.png"), damped, literal)
}

// capsOver draws one run.
func capsOver(title string, p quell.Policy) (*plot.Plot, error) {
	list := []string{"first", "second"}
	out, err := tenants.Play(tenants.Options{Cores: 1, Duration: time.Minute, Policy: p, Tenants: []tenants.Tenant{
		{Name: list[0], Tasks: 1, Weight: 10}, {Name: list[1], Tasks: 1}}})
	if err != nil {
		return nil, err
	}
	var lines []figure.Series
	for tenant, name := range list {
		line := figure.Series{Name: name, Color: figure.Nth(tenant)}
		for i, period := range out.Periods {
			line.Points = append(line.Points, plotter.XY{X: float64(i + 1), Y: period.Run[tenant]})
		}
		lines = append(lines, line)
	}
	low, high := 1.0, 0.0
	for _, period := range out.Periods[len(out.Periods)/2:] {
		low, high = min(low, period.Run[0]), max(high, period.Run[0])
	}
	found := fmt.Sprintf("%s: the first tenant ends with %.2f of the processor", title, high)
	if high-low > 0.05 {
		found = fmt.Sprintf("%s: the first tenant swings between %.2f and %.2f of the processor", title, low, high)
	}
	drawn := figure.New(found, "", "processors")
	drawn.X.Min, drawn.Y.Min, drawn.Y.Max = 0, 0, 1.05
	return drawn, figure.AddLines(drawn, lines...)
}

// plotLive draws the weights and caps of real programs over time, with one drawing for each mode that has them.
func plotLive(dir string, l *acsLiveData) error {
	if l == nil {
		return nil
	}
	var drawings []*plot.Plot
	for _, run := range l.drawn() {
		drawn := figure.New(run.Title, "", "weight, or cap in processors")
		drawn.X.Min, drawn.Y.Min = 0, 0
		var lines []figure.Series
		for i, w := range run.Tenants {
			line := figure.Series{Name: w.String(), Color: figure.Nth(i)}
			for _, m := range run.Moments {
				if limit, ok := m.Limits[fmt.Sprintf("%s%02d", acsGroup, i)]; ok {
					line.Points = append(line.Points, plotter.XY{X: m.AtS, Y: limit})
				}
			}
			lines = append(lines, line)
		}
		if err := figure.AddLines(drawn, lines...); err != nil {
			return err
		}
		drawings = append(drawings, drawn)
	}
	if len(drawings) == 0 {
		return nil
	}
	drawings[len(drawings)-1].X.Label.Text = "seconds"
	return figure.WriteAbove(filepath.Join(dir, "acs-live.png"), drawings...)
}
