package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/tell"
)

// order is what the table is sorted by.
type order int

const (
	byConcern order = iota
	byName
	byLoad
	byCapacity
	bySeverity
	byShare
	byLatency
	orders // their number
)

func (o order) String() string {
	return []string{"attention", "name", "load", "capacity", "severity", "share", "latency"}[o]
}

// sorted returns the rows of a status in an order: names upwards, numbers downwards, and rows without the number last.
func sorted(w *tell.Words, by order) []*controller.InstanceStatus {
	rows := make([]*controller.InstanceStatus, len(w.Instances))
	concern := map[*controller.InstanceStatus]int{}
	for i := range w.Instances {
		rows[i] = &w.Instances[i]
		if by == byConcern {
			concern[rows[i]] = w.Concern(rows[i])
		}
	}
	slices.SortStableFunc(rows, func(a, b *controller.InstanceStatus) int {
		switch x, y := by.value(a), by.value(b); {
		case by == byConcern:
			return cmp.Or(concern[b]-concern[a], strings.Compare(a.ID, b.ID))
		case x != nil && y != nil:
			return cmp.Or(cmp.Compare(*y, *x), strings.Compare(a.ID, b.ID))
		case x != nil:
			return -1
		case y != nil:
			return 1
		}
		return strings.Compare(a.ID, b.ID)
	})
	return rows
}

// value is the number by which an order sorts; nil if it does not sort by a number, or there is none.
func (o order) value(row *controller.InstanceStatus) *float64 {
	switch o {
	case byLoad:
		return row.Utilization
	case byCapacity:
		return row.Capacity
	case bySeverity:
		return row.Severity
	case byShare:
		return row.Now
	case byLatency:
		return row.LatencyMS
	}
	return nil
}

// column is a column of numbers.
type column struct {
	title string
	width int
	text  func(*controller.InstanceStatus) string
}

// wideFrom is the width from which the table has a column for response times.
const wideFrom = 100

func columns(width int) []column {
	all := []column{
		{"LOAD", 4, func(r *controller.InstanceStatus) string { return number(r.Utilization, "%.2f") }},
		{"CAPACITY", 8, func(r *controller.InstanceStatus) string { return number(r.Capacity, "%.2f") }},
		{"SEVERITY", 8, func(r *controller.InstanceStatus) string { return number(r.Severity, "%.2f") }},
		{"NOW", 5, func(r *controller.InstanceStatus) string { return percent(r.Now) }},
		{"WOULD BE", 8, func(r *controller.InstanceStatus) string { return percent(r.Would) }},
	}
	if width >= wideFrom {
		all = append(all, column{"LATENCY", 9, func(r *controller.InstanceStatus) string {
			if r.LatencyMS == nil {
				return "-"
			}
			return tell.MS(*r.LatencyMS)
		}})
	}
	return all
}

func number(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

func percent(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g%%", 100**v)
}

// shortestName and longestName limit the width of the first column; longestName is a part of the screen's width.
const (
	shortestName = 8
	longestName  = 0.2
)

// nameWidth is the width of the column of names.
func nameWidth(rows []*controller.InstanceStatus, width int) int {
	longest := shortestName
	for _, row := range rows {
		longest = max(longest, ansi.StringWidth(row.ID))
	}
	return min(longest, max(shortestName, int(longestName*float64(width))))
}

// heading is the table's first line.
func heading(name int, cols []column) string {
	text := " " + padded("INSTANCE", name)
	for _, c := range cols {
		text += " " + aligned(c.title, c.width)
	}
	return text + "  STATE: CAUSE"
}

// line is an instance's row.
func line(w *tell.Words, row *controller.InstanceStatus, name int, cols []column) string {
	text := padded(row.ID, name)
	for _, c := range cols {
		text += " " + aligned(c.text(row), c.width)
	}
	return text + "  " + w.State(row)
}

// padded fits a text into a column, to the left.
func padded(text string, width int) string {
	text = ansi.Truncate(text, width, "…")
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

// aligned fits a number into a column, to the right.
func aligned(text string, width int) string {
	text = ansi.Truncate(text, width, "…")
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(text))) + text
}
