package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy/table"
)

// Records of the lab stay on the machine that measured. Plots whose figures are in the tables that live.json keeps can be drawn again
// without them, for example after a change of the palette.

// keptPlot matches the name of such a plot in the text of a part.
var keptPlot = regexp.MustCompile(`\]\(((?:haproxy|resources|ice)/(tradeoff-[a-z0-9-]+|[a-z-]+-medians|streaming)\.png)\)`)

// drawKept draws again all plots whose figures live.json has. It returns their paths below dir.
func drawKept(dir string) (drawn []string, err error) {
	pages := livePages{}
	if _, err := readJSON(livePath(dir), &pages); err != nil {
		return nil, err
	}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		for _, part := range slices.Sorted(maps.Keys(pages[page])) {
			text := pages[page][part].Text
			for _, found := range keptPlot.FindAllStringSubmatch(text, -1) {
				if err := drawKeptPlot(filepath.Join(dir, found[1]), found[2], tablesIn(text)); err != nil {
					return drawn, fmt.Errorf("%s of page %s, part %s: %w", found[1], page, part, err)
				}
				drawn = append(drawn, found[1])
			}
		}
	}
	return drawn, nil
}

func drawKeptPlot(path, name string, tables []keptTable) error {
	if len(tables) == 0 {
		return fmt.Errorf("no table: %w", quell.ErrNoData)
	}
	switch {
	case name == "streaming":
		s, err := keptStreams(tables)
		if err != nil {
			return err
		}
		return plotStreams(path, s)
	case strings.HasPrefix(name, "tradeoff-"):
		points, err := keptTradeoff(tables[0])
		if err != nil {
			return err
		}
		return plotTradeoff(path, points)
	}
	rows, err := keptMedians(tables[0])
	if err != nil {
		return err
	}
	return plotMedians(path, rows)
}

// keptTable is a table of a text in Markdown.
type keptTable struct {
	head []string
	rows [][]string
}

// tablesIn returns the tables of a text.
func tablesIn(text string) (tables []keptTable) {
	var now *keptTable
	for line := range strings.SplitSeq(text, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			now = nil
		case now == nil:
			tables = append(tables, keptTable{head: trimmed(cells)})
			now = &tables[len(tables)-1]
		case strings.HasPrefix(line, "|-"):
		case len(cells) == len(now.head):
			now.rows = append(now.rows, trimmed(cells))
		}
	}
	return tables
}

func trimmed(cells []string) []string {
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// amountAtFront is the number with which a cell begins.
var amountAtFront = regexp.MustCompile(`^[0-9.]+`)

// numbers returns the numbers with which the cells of some columns begin, by row. A cell with "-" is an error, as is a missing column.
func (t keptTable) numbers(columns ...string) (rows [][]float64, err error) {
	for _, cells := range t.rows {
		var row []float64
		for _, column := range columns {
			i := slices.Index(t.head, column)
			if i < 0 {
				return nil, fmt.Errorf("no column %q among %q", column, t.head)
			}
			v, err := strconv.ParseFloat(amountAtFront.FindString(cells[i]), 64)
			if err != nil {
				return nil, fmt.Errorf("column %q has %q, which begins with no number", column, cells[i])
			}
			row = append(row, v)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// keptTradeoff reads the points of plotTradeoff.
func keptTradeoff(t keptTable) (points []tradeoffPoint, err error) {
	rows, err := t.numbers("violation", "requests over the threshold", "instance-seconds")
	for i, row := range rows {
		title := t.rows[i][0]
		points = append(points, tradeoffPoint{Title: title, Rule: ruleOf(title), Violation: row[0], Over: row[1] / 100, Cost: row[2]})
	}
	return points, err
}

// ruleOf is how the run of a title, such as static/leastconn x3, distributes requests.
func ruleOf(title string) string {
	title, _, _ = strings.Cut(title, " x")
	name, scheduling, _ := strings.Cut(title, "/")
	name, _, _ = strings.Cut(name, " (")
	if name == table.All.Plain() {
		return "haproxy " + scheduling
	}
	return name + " " + scheduling
}

// keptMedians reads the rows of plotMedians.
func keptMedians(t keptTable) (rows []iceTableRow, err error) {
	medians, err := t.numbers("while the neighbour is there, ms")
	for i, median := range medians {
		rows = append(rows, iceTableRow{Scheduling: quell.Scheduling(t.rows[i][0]), Title: t.rows[i][1], DisturbedMS: median[0]})
	}
	return rows, err
}

// keptStreams reads the figures of plotStreams.
func keptStreams(tables []keptTable) (*streamFigures, error) {
	if len(tables) < 2 {
		return nil, fmt.Errorf("%d tables, want two", len(tables))
	}
	s := &streamFigures{}
	for _, head := range tables[1].head[1:] {
		n, err := strconv.Atoi(strings.TrimSuffix(head, " workers"))
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", head, err)
		}
		s.Counts = append(s.Counts, n)
	}
	for i, into := range []*[]streamRow{&s.Workers, &s.Weights} {
		rows, err := tables[i].numbers(tables[i].head...)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			one := streamRow{At: int(row[0])}
			for _, ms := range row[1:] {
				one.Cells = append(one.Cells, streamCell{MS: []float64{ms}})
			}
			*into = append(*into, one)
		}
	}
	return s, nil
}
