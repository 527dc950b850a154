package main

import (
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/tenants"
	"github.com/quellhq/quell/policy"
)

// plotCaps draws what two tenants with one task each get of a processor over time. The kernel would give the first one ten times as much.
// At the top is acs by caps, below is the literal rule.
func plotCaps(dir string) error {
	damped, err := capsOver("acs by caps",
		acsWith(func(s *policy.ACSSettings) { s.By = policy.ACSCaps }))
	if err != nil {
		return err
	}
	literal, err := capsOver("literal rule", acsWith(func(s *policy.ACSSettings) { s.Rule = policy.ACSLiteral }))
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
