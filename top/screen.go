// Package top shows services live on a terminal, and turns keys into commands. Everything is pure but for Run and Live, which connect it to
// a terminal and to controllers.
package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/tell"
)

// service is what is known of one service.
type service struct {
	name     string
	status   *controller.Status // nil: it has not answered yet
	answered time.Time
	failure  string // why the last question was not answered
	samples  []Sample
	rows     []*controller.InstanceStatus // of the status, sorted
	cursor   int                          // the selected row
	first    int                          // the first row on the screen
}

// screen draws services. All texts in it must be printable.
type screen struct {
	services []service
	chosen   int
	by       order
	prompt   *prompt
	message  string
	help     bool
	live     bool // with a cursor and keys
	styled   bool
	width    int
	height   int // 0: as many lines as are needed
	now      time.Time
	clock    func(time.Time) string
}

// Styles of text. Without colours, bold and reversed text still tell parts apart.
const (
	bold     = "\x1b[1m"
	faint    = "\x1b[2m"
	reversed = "\x1b[7m"
	red      = "\x1b[31m"
	green    = "\x1b[32m"
	yellow   = "\x1b[33m"
)

func (s *screen) paint(style, text string) string {
	if !s.styled || style == "" || text == "" {
		return text
	}
	return style + text + "\x1b[0m"
}

// draw returns the lines of the screen. None is wider than the screen.
func (s *screen) draw() []string {
	sv := &s.services[s.chosen]
	top, bottom := s.head(sv), s.foot(sv)
	var middle []string
	switch {
	case s.help:
		middle = helpLines
	case sv.status != nil && !sv.status.At.IsZero():
		middle = s.table(sv, s.height-len(top)-len(bottom))
	}
	if s.height > 0 {
		for len(top)+len(middle)+len(bottom) < s.height {
			middle = append(middle, "")
		}
	}
	lines := append(append(top, middle...), bottom...)
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], s.width, "…")
	}
	if s.height > 0 {
		lines = lines[:min(len(lines), s.height)]
	}
	return lines
}

// head says how well the service is, who acts, and how the group is.
func (s *screen) head(sv *service) (lines []string) {
	if len(s.services) > 1 && s.live {
		lines = append(lines, s.tabs())
	}
	if sv.failure != "" {
		text := sv.name + " does not answer: " + sv.failure
		if !sv.answered.IsZero() {
			text = fmt.Sprintf("%s does not answer for %s: %s", sv.name, s.now.Sub(sv.answered).Round(time.Second), sv.failure)
		}
		lines = append(lines, s.paint(bold+red, text))
	}
	if sv.status == nil {
		if sv.failure == "" {
			lines = append(lines, "asking "+sv.name+" ...")
		}
		return lines
	}
	w := tell.Of(sv.status, s.clock)
	headline, level := w.Objective()
	lines = append(lines, s.paint(bold+levelStyle(level), headline), w.Acting())
	if sv.status.At.IsZero() {
		return lines
	}
	return append(lines, s.group(sv), "")
}

func levelStyle(l tell.Level) string {
	switch l {
	case tell.Down, tell.Missed:
		return red
	case tell.Unknown:
		return yellow
	}
	return green
}

// tabs names all services, the chosen one in brackets, with a mark at those that need attention.
func (s *screen) tabs() string {
	var parts []string
	for i := range s.services {
		sv, mark := &s.services[i], ""
		if sv.failure != "" {
			mark = "?"
		} else if sv.status != nil {
			if _, level := tell.Of(sv.status, s.clock).Objective(); level == tell.Down || level == tell.Missed {
				mark = "!"
			}
		}
		text := " " + sv.name + mark + " "
		if i == s.chosen {
			text = s.paint(reversed, "["+sv.name+mark+"]")
		}
		parts = append(parts, text)
	}
	// The chosen one must be on the screen.
	for len(parts) > 1 && s.chosen > 0 && ansi.StringWidth(strings.Join(parts[:min(len(parts), s.chosen+1)], "")) > s.width {
		return ansi.TruncateLeft(strings.Join(parts[:s.chosen+1], ""),
			ansi.StringWidth(strings.Join(parts[:s.chosen+1], ""))-s.width+1, "…")
	}
	return strings.Join(parts, "")
}

// group is the line about the group: response times against the objective, load against capacity, and machines.
func (s *screen) group(sv *service) string {
	status := sv.status
	machines := 0
	for i := range status.Instances {
		if status.Instances[i].State != quell.Failed {
			machines++
		}
	}
	text := fmt.Sprintf("; load %.2f of %s; %d machines", status.Load, number(status.Capacity, "%.2f"), machines)
	if status.Coming > 0 {
		text += fmt.Sprintf(", %d coming", status.Coming)
	}
	if status.Wanted != nil && *status.Wanted != machines+status.Coming {
		text += fmt.Sprintf(", %d wanted", *status.Wanted)
	}
	metric, _, _ := strings.Cut(status.SLO, " ")
	slowest := "-"
	if now := sampleOf(status); now.MS != nil {
		slowest = fmt.Sprintf("%.3g", *now.MS)
	}
	start, end := metric+" ", fmt.Sprintf(" %s of %s", slowest, tell.MS(status.ThresholdMS))
	room := s.width - ansi.StringWidth(start+end+text)
	line, above := sparkline(sv.samples, status.ThresholdMS, max(0, min(room, mostSamples)))
	return start + s.spark(line, above) + end + text
}

// spark paints what is above the objective.
func (s *screen) spark(line []rune, above []bool) string {
	var b strings.Builder
	for i := 0; i < len(line); {
		j := i
		for j < len(line) && above[j] == above[i] {
			j++
		}
		style := green
		if above[i] {
			style = red
		}
		b.WriteString(s.paint(style, string(line[i:j])))
		i = j
	}
	return b.String()
}

// table draws the instances that fit into a number of lines. The selected one is among them.
func (s *screen) table(sv *service, height int) []string {
	w := tell.Of(sv.status, s.clock)
	cols, name := columns(s.width), nameWidth(sv.rows, s.width)
	lines := []string{s.paint(bold, heading(name, cols))}
	rows := sv.rows
	if s.height > 0 {
		shown := max(1, height-1)
		sv.first = max(0, min(sv.first, sv.cursor, len(rows)-shown))
		sv.first = max(sv.first, sv.cursor-shown+1)
		rows = rows[sv.first:min(len(rows), sv.first+shown)]
	}
	for i, row := range rows {
		text, style := line(&w, row, name, cols), concernStyle(w.Concern(row))
		mark := " "
		if s.live && sv.first+i == sv.cursor {
			mark, style = ">", style+reversed
		}
		if sv.failure != "" {
			style += faint
		}
		lines = append(lines, s.paint(style, ansi.Truncate(mark+text, s.width, "…")))
	}
	return lines
}

func concernStyle(concern int) string {
	switch concern {
	case 3:
		return red
	case 2, 1:
		return yellow
	}
	return ""
}

// mostProblems limits the problems that are shown at once.
const mostProblems = 3

// foot has problems, the selected instance, and what a person is asked or told.
func (s *screen) foot(sv *service) (lines []string) {
	if sv.status != nil {
		problems := tell.Of(sv.status, s.clock).Problems()
		for i, text := range problems {
			if i == mostProblems && s.live {
				lines = append(lines, fmt.Sprintf("and %d problems more: quell status", len(problems)-i))
				break
			}
			lines = append(lines, s.paint(red, "PROBLEM: "+text))
		}
	}
	if !s.live {
		return lines
	}
	lines = append(lines, s.paint(faint, s.position(sv)))
	switch {
	case s.prompt != nil:
		lines = append(lines, s.paint(bold, s.prompt.line()))
	default:
		lines = append(lines, s.message)
	}
	return append(lines, s.paint(faint, s.keys()))
}

// position is the selected instance in full, and its place among all.
func (s *screen) position(sv *service) string {
	row := sv.selected()
	if row == nil {
		return ""
	}
	w := tell.Of(sv.status, s.clock)
	text := fmt.Sprintf("%d of %d: %s %s", sv.cursor+1, len(sv.rows), row.ID, w.State(row))
	if row.Limiter != "" {
		text += "; limited by " + row.Limiter
	}
	if row.LatencyMS != nil {
		text += "; " + tell.MS(*row.LatencyMS)
	}
	return text
}

func (s *screen) keys() string {
	text := "? help  q quit  p pause  r resume  o share  d drain  u undrain  "
	if len(s.services) > 1 {
		text += "tab next  "
	}
	return text + "s by " + s.by.String()
}

// selected is the instance that keys are for; nil if there is none.
func (sv *service) selected() *controller.InstanceStatus {
	if sv.cursor < 0 || sv.cursor >= len(sv.rows) {
		return nil
	}
	return sv.rows[sv.cursor]
}

var helpLines = []string{
	"LOAD, CAPACITY   own use of the resource, and how much is within the objective",
	"SEVERITY         how much longer a probe takes with neighbours: 1 is twice",
	"NOW, WOULD BE    share of the traffic in force, and as the policy wants it",
	"bars             response time of the slowest instance, one bar a period;",
	"                 above the fourth of eight steps the objective is missed",
	"",
	"up down k j      select an instance         pgup pgdn home end   scroll",
	"s S              sort by another column     tab  shift+tab       another service",
	"p r              pause, resume the service",
	"o                set the share of the selected instance, or clear it",
	"d u              drain, undrain the selected instance",
	"q ctrl+c         quit                       ctrl+z               suspend",
	"Every command is asked for once more before it is sent.",
}
