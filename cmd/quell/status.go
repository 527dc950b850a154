package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/tell"
)

const (
	// statusWidth and statusRows limit what is shown unless --all is given: columns of a line, and instances in the table.
	statusWidth, statusRows = 100, 10
	// watchEvery is how often --watch shows the status again.
	watchEvery = 2 * time.Second
	// absurd is a multiple of the objective. A prediction above it only says that the load is too much.
	absurd = 10
	// recent is how long a change that was taken back is shown.
	recent = 30 * time.Minute
)

func statusCommand() *cobra.Command {
	var path string
	var asJSON, local, watch, all bool
	cmd := &cobra.Command{
		Use: "status [--config FILE] [--watch] [--all] [--local]",
		Short: "Say whether the objective is met, what each instance can still take, what will be changed, and what is wrong; --local: what " +
			"this machine's agent decides by itself",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if local {
				return localStatus(cmd, path, asJSON)
			}
			show := func() error { return showStatus(cmd, path, asJSON, all) }
			if watch {
				return watchStatus(cmd, show)
			}
			return show()
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every two seconds, until Ctrl-C")
	cmd.Flags().BoolVar(&all, "all", false, "show every instance, and every text in full")
	cmd.Flags().BoolVar(&local, "local", false, "ask this machine's agent for its own policy (agent.policy), without controller and bus")
	return cmd
}

func showStatus(cmd *cobra.Command, path string, asJSON, all bool) error {
	r, err := services(cmd, path)
	if err != nil {
		return err
	}
	if r.several {
		return writeStatuses(cmd, r, asJSON, all)
	}
	reply, err := askOne(cmd, r.list[0], bus.Command{Name: bus.Status})
	if err != nil {
		return err
	}
	return showReply(cmd.OutOrStdout(), reply, asJSON, func(w io.Writer, s controller.Status) error { return writeStatus(w, s, all) })
}

// showReply writes a status as JSON, or as text with a function.
func showReply[S any](w io.Writer, reply []byte, asJSON bool, write func(io.Writer, S) error) error {
	if asJSON {
		_, err := fmt.Fprintf(w, "%s\n", printableJSON(reply))
		return err
	}
	s, err := readStatus[S](reply)
	if err != nil {
		return err
	}
	return write(w, s)
}

// readStatus reads the status of a controller or an agent, and makes its texts printable.
func readStatus[S any](reply []byte) (s S, err error) {
	if err := json.Unmarshal(reply, &s); err != nil {
		return s, fmt.Errorf("reading the status: %w", err)
	}
	printable(&s)
	return s, nil
}

// watchStatus shows the status again and again, until the command is interrupted. An error is shown in place of the status.
func watchStatus(cmd *cobra.Command, show func() error) error {
	clear := "\n"
	if isTerminal(cmd.OutOrStdout()) {
		clear = "\x1b[H\x1b[2J"
	}
	ctx, tick := cmd.Context(), time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		fmt.Fprint(cmd.OutOrStdout(), clear)
		if err := show(); err != nil && ctx.Err() == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "quell: %v\n", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// statusView writes a status for an operator.
type statusView struct {
	tell.Words
	w    io.Writer
	all  bool
	less bool // a text was cut
	fail error
}

// writeStatus writes a status: first whether the objective is met, then who acts, the load, the instances, and what is wrong.
func writeStatus(w io.Writer, s controller.Status, all bool) error {
	v := &statusView{Words: tell.Of(&s, clock), w: w, all: all}
	objective, _ := v.Objective()
	v.line("%s", objective)
	v.line("%s", v.Acting())
	v.budget()
	if night := v.Night(); night != "" {
		v.line("red line: %s", night)
	}
	if !s.At.IsZero() {
		v.line("%s", v.Load())
		v.table()
		v.reasons()
		v.course()
	}
	v.learning()
	for _, text := range v.Problems() {
		v.problem(text)
	}
	if v.less {
		v.line("quell status --all shows in full what ends in ...")
	}
	return v.fail
}

// problemLines is how many lines a problem may take unless everything is shown: what is missing, and what to do, often stands at its end.
const problemLines = 4

// problem writes a problem, over several lines if it is long.
func (v *statusView) problem(text string) {
	const head = "PROBLEM: "
	if v.all {
		v.line("%s%s", head, text)
		return
	}
	rest := head + text
	for range problemLines - 1 {
		first, more := wrapText(rest, statusWidth)
		v.line("%s", first)
		if more == "" {
			return
		}
		rest = strings.Repeat(" ", len(head)) + more
	}
	v.line("%s", rest)
}

// wrapText returns the words of a text that fit into a width, and what is left.
func wrapText(text string, width int) (first, rest string) {
	runes := []rune(text)
	if len(runes) <= width {
		return text, ""
	}
	line := string(runes[:width+1])
	if i := strings.LastIndexByte(line, ' '); i > width/2 {
		return line[:i], text[i+1:]
	}
	return string(runes[:width]), string(runes[width:])
}

// line writes a line. Unless everything is shown, it is cut at the width of the status.
func (v *statusView) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !v.all {
		whole := text
		text = cutText(whole, statusWidth)
		v.less = v.less || text != whole
	}
	if _, err := fmt.Fprintln(v.w, text); err != nil && v.fail == nil {
		v.fail = err
	}
}

// cutText cuts a text that is wider than a width at the last space before it.
func cutText(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	cut := string([]rune(text)[:width-3])
	if i := strings.LastIndexByte(cut, ' '); i > width/2 {
		cut = cut[:i]
	}
	return strings.TrimRight(cut, " ,;:") + "..."
}

// budget says how much of the error budget is spent, if there is one.
func (v *statusView) budget() {
	if v.Budget == nil {
		return
	}
	v.line("budget: %s", budgetLine(v.Budget))
	if v.Budget.Blind >= 3 {
		v.line("%s", blindLine(v.Status))
	}
	if v.Reserve != nil && v.Reserve.OutOfReach != "" {
		v.line("out of reach: %s", v.Reserve.OutOfReach)
	}
}

// table writes a row for each instance, those that need attention first if not all are shown.
func (v *statusView) table() {
	rows := slices.Clone(v.Instances)
	hidden := 0
	if !v.all && len(rows) > statusRows {
		slices.SortStableFunc(rows, func(a, b controller.InstanceStatus) int { return v.Concern(&b) - v.Concern(&a) })
		hidden, rows = len(rows)-statusRows, rows[:statusRows]
	}
	var t strings.Builder
	lines := tabwriter.NewWriter(&t, 0, 0, 2, ' ', 0)
	fmt.Fprintln(lines, "INSTANCE\tRATE\tCAN TAKE\tSHARE\tNOW\tWOULD BE\tLATENCY\tPREDICTED\tSTATE: REASON")
	for i := range rows {
		row := &rows[i]
		fmt.Fprintf(lines, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.ID, rateCell(row.RequestRate), rateCell(row.CanTakeRate),
			cell(row.Share, "%.3f"), cell(row.Now, "%.3f"), cell(row.Would, "%.3f"), cell(row.LatencyMS, "%.1f ms"), v.predicted(row), v.State(row))
	}
	_ = lines.Flush() // to memory
	v.line("")
	for text := range strings.SplitSeq(strings.TrimSuffix(t.String(), "\n"), "\n") {
		v.line("%s", text)
	}
	if hidden > 0 {
		v.line("and %d more, which need less attention: quell status --all", hidden)
	}
}

// predicted is the cell with the predicted response time. Far above the objective, a figure would say nothing.
func (v *statusView) predicted(row *controller.InstanceStatus) string {
	if most := absurd * v.ThresholdMS; row.PredictedMS != nil && most > 0 && *row.PredictedMS > most {
		return "> " + tell.MS(most)
	}
	return cell(row.PredictedMS, "%.1f ms")
}

// reasons writes why the group is as it is.
func (v *statusView) reasons() {
	for _, r := range v.Reasons("") {
		v.line("%s: %s", r.Title(), r.Text)
	}
}

// course writes what was done last, what comes next, and what is in force inside the machines.
func (v *statusView) course() {
	if len(v.Changes) > 0 {
		v.line("last change %s: %s", clock(v.ChangedAt), strings.Join(v.Changes, "; "))
	}
	if v.TakenBack != "" && v.At.Sub(v.TakenBackAt) < recent {
		v.line("taken back %s: %s", clock(v.TakenBackAt), v.TakenBack)
	}
	if v.Doubtful != "" {
		v.line("doubtful: %s", v.Doubtful)
	}
	if len(v.Pending) > 0 {
		v.line("not in force yet: %s", strings.Join(v.Pending, "; "))
	}
	for _, row := range v.Instances {
		if text := inside(&row); text != "" {
			v.line("in force at %s: %s", row.ID, text)
		}
		for _, resource := range slices.Sorted(maps.Keys(row.Credits)) {
			v.line("%s credits of %s: %s", resource, row.ID, creditsText(row.Credits[resource]))
		}
	}
}

// inside lists the settings that an instance's agent reports.
func inside(row *controller.InstanceStatus) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(row.Settings)) {
		parts = append(parts, fmt.Sprintf("%s is %g", name, row.Settings[name]))
	}
	return strings.Join(parts, ", ")
}

// learning writes what is known of each resource, if models are learned in place.
func (v *statusView) learning() {
	for _, text := range v.Learned {
		v.line("learning: %s", text)
	}
}

// clock shows a time of day, with the date if it was longer than half a day ago.
func clock(at time.Time) string {
	if time.Since(at) > 12*time.Hour {
		return at.Local().Format(time.DateTime)
	}
	return at.Local().Format(time.TimeOnly)
}

func rateCell(v *float64) string {
	if v == nil {
		return "-"
	}
	return tell.Rate(*v)
}
