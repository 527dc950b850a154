package main

import (
	"fmt"
	"slices"
	"strings"
)

// frontsFigures are what the page's template reads.
type frontsFigures struct {
	Measured  string
	Settings  strangerSettings
	Each      string
	Fleets    []frontsTitled
	Rows      []frontsTitled
	Missing   []string
	Press     strangerSettings
	PressRate float64 // requests per second
	Pressed   []frontsPressedTitled
	Unejected bool   // a way with Envoy's outlier detection is missing
	Better    string // the ways that had a shorter tail than the first one of their balancer
}

type frontsTitled struct {
	Title string
	frontsRow
}

// frontsPressedTitled is a way to share requests on the page.
type frontsPressedTitled struct {
	Title string
	Quell bool
	Ratio float64 // of the 95th percentile to that with Quell behind the same balancer; 0: there is none
	frontsPressedRow
}

func newFrontsFigures(d frontsData) frontsFigures {
	press := frontsPressed()
	f := frontsFigures{Measured: d.Measured, Settings: frontsSettings(), Each: frontsEach.String(), Press: press,
		PressRate: press.rate(strangerMachines, 0)}
	for _, with := range fronts {
		row, known := d.Rows[with.name]
		if !known || row.Fleet == nil {
			f.Missing = append(f.Missing, with.name)
		}
		if !known {
			continue
		}
		titled := frontsTitled{with.title, row}
		f.Rows = append(f.Rows, titled)
		if row.Fleet != nil {
			f.Fleets = append(f.Fleets, titled)
		}
	}
	f.Pressed = pressedFigures(d)
	for _, way := range []string{"envoy-wrr-outlier", "envoy-least-outlier"} {
		if _, known := d.Pressed[way]; !known {
			f.Unejected = true
		}
	}
	var better []string
	for _, p := range f.Pressed {
		if p.Ratio > 0 && p.Ratio < 1 {
			better = append(better, p.Title)
		}
	}
	f.Better = strings.Join(better, "; ")
	return f
}

// pressedFigures are the ways that were played. Their ratios are to the first one of the same balancer, which is with Quell.
func pressedFigures(d frontsData) (list []frontsPressedTitled) {
	var of front
	var first float64
	for _, way := range frontsWays() {
		row, known := d.Pressed[way.name]
		if way.quell && way.front.name != of.name && way.name != "reports" {
			of, first = way.front, row.P95MS
		}
		if !known {
			continue
		}
		titled := frontsPressedTitled{Title: way.title, Quell: way.quell, frontsPressedRow: row}
		if first > 0 {
			titled.Ratio = row.P95MS / first
		}
		list = append(list, titled)
	}
	return list
}

// Moved says after how many seconds shares fell.
func (r frontsPressedTitled) Moved() string {
	if !r.Quell {
		return "-"
	}
	return onsets(r.Onsets, func(o frontsOnset) float64 { return o.MovedS })
}

// Held says after how many seconds the objective was held.
func (r frontsPressedTitled) Held() string {
	return onsets(r.Onsets, func(o frontsOnset) float64 { return o.HeldS })
}

// onsets are the median and the range of a time over those arrivals for which it is known.
func onsets(all []frontsOnset, of func(frontsOnset) float64) string {
	var known []float64
	for _, o := range all {
		if v := of(o); v >= 0 {
			known = append(known, v)
		}
	}
	if len(known) == 0 {
		return fmt.Sprintf("never, of %d", len(all))
	}
	text := fmt.Sprintf("%.1f s (%.1f to %.1f)", middle(known), slices.Min(known), slices.Max(known))
	if len(known) < len(all) {
		text += fmt.Sprintf(", %d of %d", len(known), len(all))
	}
	return text
}
