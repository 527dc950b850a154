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

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
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
	if asJSON {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", printableJSON(reply))
		return err
	}
	s, err := readStatus[controller.Status](reply)
	if err != nil {
		return err
	}
	return writeStatus(cmd.OutOrStdout(), s, all)
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
	*controller.Status
	w    io.Writer
	all  bool
	code map[string]string // by instance: the code of the last reason about it
	fail error
}

// writeStatus writes a status: first whether the objective is met, then who acts, the load, the instances, and what is wrong.
func writeStatus(w io.Writer, s controller.Status, all bool) error {
	v := &statusView{Status: &s, w: w, all: all, code: map[string]string{}}
	for _, r := range slices.Concat(s.Reasons, s.FastReasons) {
		v.code[r.Instance] = r.Code
	}
	v.line("%s", v.objective())
	v.line("%s", v.acting())
	v.budget()
	if !s.At.IsZero() {
		v.line("%s", v.load())
		v.table()
		v.reasons()
		v.course()
	}
	v.learning()
	v.problems()
	return v.fail
}

// line writes a line. Unless everything is shown, it is cut at the width of the status.
func (v *statusView) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !v.all {
		text = cutText(text, statusWidth)
	}
	if _, err := fmt.Fprintln(v.w, text); err != nil && v.fail == nil {
		v.fail = err
	}
}

// cutText cuts a text at the last space before a width.
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

// objective says whether the service is well.
func (v *statusView) objective() string {
	metric, _, _ := strings.Cut(v.SLO, " ")
	what := "; objective " + v.SLO
	if v.At.IsZero() {
		return v.Service + ": no decision yet" + what
	}
	var worst *controller.InstanceStatus
	ready, missed := 0, 0
	for i := range v.Instances {
		row := &v.Instances[i]
		if row.State == quell.Ready && row.Held == nil {
			ready++
		}
		if row.LatencyMS == nil {
			continue
		}
		if *row.LatencyMS > v.ThresholdMS {
			missed++
		}
		if worst == nil || *row.LatencyMS > *worst.LatencyMS {
			worst = row
		}
	}
	switch {
	case ready == 0:
		return v.Service + " is DOWN: no instance is ready" + what
	case worst == nil:
		return v.Service + ": not known if it is well, no response time in the last period" + what
	case missed == 0:
		return fmt.Sprintf("%s is well: %s is %s at most (%s)%s", v.Service, metric, ms(*worst.LatencyMS), worst.ID, what)
	}
	since, more := "", ""
	if !v.MissedSince.IsZero() {
		since = " since " + clock(v.MissedSince)
	}
	if missed > 1 {
		more = fmt.Sprintf(" and %d more", missed-1)
	}
	return fmt.Sprintf("%s MISSES its objective%s: %s is %s (%s%s)%s", v.Service, since, metric, ms(*worst.LatencyMS), worst.ID, more, what)
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

// acting says which policy runs, and whether it changes anything.
func (v *statusView) acting() string {
	name := "policy " + v.Policy
	if v.Fast != "" {
		name += " with " + v.Fast
	}
	switch {
	case v.Lost != "":
		return name + ": changes nothing until quell resume, because the controller's memory was lost"
	case v.Refused != "":
		return name + ": changes nothing, because the balancer obeys another controller"
	case v.Released != nil:
		return name + ": " + v.Released.Text()
	case v.Paused:
		return name + ": changes nothing until quell resume, paused by " + v.PausedBy
	case !v.Leading && (v.Standby || v.NotLeading == ""):
		return name + ": changes nothing, another controller leads (standby)"
	case !v.Leading:
		return name + ": changes nothing, does not lead, and knows of none that does"
	case v.Mode == quell.Advise:
		return name + ": changes nothing (mode: advise), WOULD BE is what it would set"
	case !v.HasModels():
		return name + ": waits for models, shares are equal"
	case v.Authority == quell.AuthorityAdvise:
		return name + ": changes nothing yet, because its predictions are not proven; WOULD BE is what it would set"
	case v.Authority == quell.AuthorityStep:
		return name + ": changes shares in small steps, until its predictions are proven"
	}
	return name + ": acts"
}

// load says how much load there is, how much the instances can take, and what they cost.
func (v *statusView) load() string {
	var can float64
	known := 0
	for _, row := range v.Instances {
		if row.CanTakeRate != nil && row.State == quell.Ready && row.Held == nil {
			can += *row.CanTakeRate
			known++
		}
	}
	load, most := "load unknown", "unknown what the instances can take"
	if v.ArrivalRate != nil {
		load = "load " + rate(*v.ArrivalRate)
	}
	if known > 0 {
		most = fmt.Sprintf("%d of %d instances can take %s", known, len(v.Instances), rate(can))
	}
	parts := []string{load, most}
	if v.Coming > 0 {
		parts = append(parts, fmt.Sprintf("%d coming", v.Coming))
	}
	return strings.Join(append(parts, "cost "+age(v.InstanceSeconds)+" of instances", "decided "+clock(v.At)), "; ")
}

// table writes a row for each instance, those that need attention first if not all are shown.
func (v *statusView) table() {
	rows := slices.Clone(v.Instances)
	hidden := 0
	if !v.all && len(rows) > statusRows {
		slices.SortStableFunc(rows, func(a, b controller.InstanceStatus) int { return v.concern(&b) - v.concern(&a) })
		hidden, rows = len(rows)-statusRows, rows[:statusRows]
	}
	var t strings.Builder
	lines := tabwriter.NewWriter(&t, 0, 0, 2, ' ', 0)
	fmt.Fprintln(lines, "INSTANCE\tRATE\tCAN TAKE\tSHARE\tNOW\tWOULD BE\tLATENCY\tPREDICTED\tSTATE: REASON")
	for i := range rows {
		row := &rows[i]
		fmt.Fprintf(lines, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.ID, rateCell(row.RequestRate), rateCell(row.CanTakeRate),
			cell(row.Share, "%.3f"), cell(row.Now, "%.3f"), cell(row.Would, "%.3f"), cell(row.LatencyMS, "%.1f ms"), v.predicted(row), v.state(row))
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

// concern says how much an instance needs attention.
func (v *statusView) concern(row *controller.InstanceStatus) int {
	switch {
	case row.LatencyMS != nil && *row.LatencyMS > v.ThresholdMS:
		return 3
	case row.State != quell.Ready || row.Stale || row.Unprobed || row.Held != nil:
		return 2
	case v.clause(row) != "":
		return 1
	}
	return 0
}

// predicted is the cell with the predicted response time. Far above the objective, a figure would say nothing.
func (v *statusView) predicted(row *controller.InstanceStatus) string {
	if most := absurd * v.ThresholdMS; row.PredictedMS != nil && most > 0 && *row.PredictedMS > most {
		return "> " + ms(most)
	}
	return cell(row.PredictedMS, "%.1f ms")
}

// state is the cell with an instance's state, and one clause about why it is as it is.
func (v *statusView) state(row *controller.InstanceStatus) string {
	parts := []string{string(row.State)}
	if row.Replaces != "" {
		parts = append(parts, "to replace "+row.Replaces)
	}
	if row.Missing != nil {
		parts = append(parts, "missing from the scaler's list")
	}
	if row.Held != nil {
		parts = []string{strings.TrimPrefix(heldText(*row), ", ")}
	}
	if row.Cut != nil {
		parts = append(parts, fmt.Sprintf("cut to %.0f%%", 100**row.Cut))
	}
	if w, ok := v.Overrides[row.ID]; ok {
		parts = append(parts, fmt.Sprintf("set to %.3f", w))
	}
	text, clause := strings.Join(parts, ", "), v.clause(row)
	switch {
	case clause == "":
		return text
	case text == string(quell.Ready):
		return clause
	}
	return text + ": " + clause
}

// clause says in a few words why an instance is slow, or has the share that it has. quell explain has the rest.
func (v *statusView) clause(row *controller.InstanceStatus) string {
	switch {
	case row.Health != "":
		return "health check: " + row.Health
	case row.Unprobed:
		return "unprobed"
	case row.Stale:
		return "stale: no readings"
	case len(row.ProbeFailed) > 0:
		return strings.Join(resourceNames(row.ProbeFailed), ", ") + " not probed"
	case v.code[row.ID] == "other_services":
		return "other services"
	case v.code[row.ID] == "own_work":
		return "own work"
	case v.code[row.ID] == "interference":
		return "neighbours" + neighbours(row)
	case v.code[row.ID] == "suspected":
		return "perhaps neighbours"
	case row.Limiter == "errors":
		return "answers with errors"
	case row.Limiter == "credits":
		return "few credits"
	case row.CanTakeRate != nil && row.RequestRate != nil && *row.RequestRate > *row.CanTakeRate:
		return "too much load"
	}
	return ""
}

// neighbours says on which resource neighbours are felt most, and how much of it they use.
func neighbours(row *controller.InstanceStatus) string {
	most, text := 0.0, ""
	for _, r := range slices.Sorted(maps.Keys(row.Interference)) {
		if x := row.Interference[r]; x.Hidden != nil && *x.Hidden > most {
			most, text = *x.Hidden, fmt.Sprintf(" on %.0f%% of %s", 100**x.Hidden, r)
		}
	}
	return text
}

func resourceNames[V any](of map[quell.Resource]V) (names []string) {
	for _, r := range slices.Sorted(maps.Keys(of)) {
		names = append(names, string(r))
	}
	return names
}

// reasons writes why the group is as it is.
func (v *statusView) reasons() {
	for _, r := range slices.Concat(v.FastReasons, v.Reasons) {
		if r.Instance == "" {
			v.line("%s: %s", reasonWords(r.Code), r.Text)
		}
	}
}

// reasonWords are an operator's words for the code of a reason.
func reasonWords(code string) string {
	words := map[string]string{
		"overload": "more load than fits", "capacity_short": "more instances needed", "confirming": "waiting", "calm": "shares come back",
		"scale_in": "fewer instances needed", "join": "new instance", "no_models": "no models", "taken_back": "taken back",
		"learning": "learning", "unreachable": "objective out of reach", "override": "set by hand", "step": "in steps",
	}
	if text, ok := words[code]; ok {
		return text
	}
	return strings.ReplaceAll(code, "_", " ")
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

// inside lists the limits and settings that an instance's agent reports.
func inside(row *controller.InstanceStatus) string {
	var parts []string
	for _, resource := range slices.Sorted(maps.Keys(row.Limits)) {
		parts = append(parts, fmt.Sprintf("%s limited to %g", resource, row.Limits[resource]))
	}
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

// problems writes what is wrong at present.
func (v *statusView) problems() {
	for _, p := range []struct{ what, why string }{{"memory lost", v.Lost}, {"balancer", v.Refused},
		{"not kept over a restart", v.Store}, {"bus", v.Bus}} {
		if p.why != "" {
			v.line("PROBLEM, %s: %s", p.what, p.why)
		}
	}
	for _, part := range slices.Sorted(maps.Keys(v.LastFailure)) {
		what := part
		if part == "look" {
			what = "asking scaler and balancer"
		}
		v.line("PROBLEM in %s, last %s (%d so far): %s", what, clock(v.LastFailureAt[part]), v.Failures[part], v.LastFailure[part])
	}
	for _, u := range v.UnknownSenders {
		v.line("PROBLEM: readings come for %q, which is no instance of this service (%s %q, since %s): correct the name there, or add it",
			u.Instance, u.Source, u.Sender, clock(u.Since))
	}
}

// clock shows a time of day, with the date if it was longer than half a day ago.
func clock(at time.Time) string {
	if time.Since(at) > 12*time.Hour {
		return at.Local().Format(time.DateTime)
	}
	return at.Local().Format(time.TimeOnly)
}

func ms(v float64) string { return fmt.Sprintf("%.3g ms", v) }

func rate(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f/s", v)
	}
	return fmt.Sprintf("%.3g/s", v)
}

func rateCell(v *float64) string {
	if v == nil {
		return "-"
	}
	return rate(*v)
}
