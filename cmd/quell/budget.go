package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/budget"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/setting"
)

func budgetCommand() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "budget [--config FILE] [--json]",
		Short: "Show how much of the error budget was spent, because of what, and what is left",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reply, err := ask(cmd, path, bus.Command{Name: bus.Status})
			if err != nil {
				return err
			}
			s, err := readStatus[controller.Status](reply)
			if err != nil {
				return err
			}
			if s.Budget == nil && s.At.IsZero() {
				return userErrorf("%s has made no decision yet, so no period was judged: ask again, or see quell status", s.Service)
			}
			if s.Budget == nil {
				return userErrorf("%s keeps no error budget: set slo.target, for example to 99%% (docs/budget.md)", s.Service)
			}
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(budgetShown{s.Budget, s.Reserve})
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), budgetText(&s))
			return err
		},
	}
	configFlag(cmd, &path)
	oneServiceFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// budgetShown is what quell budget --json prints.
type budgetShown struct {
	*budget.Report
	Reserve *quell.Reserve `json:"reserve,omitempty"`
}

// budgetWidth is how many characters the bar of a budget has.
const budgetWidth = 60

// causeShown is how a cause is shown: a letter in the bar, and words.
type causeShown struct{ letter, words string }

var causesShown = map[budget.Cause]causeShown{
	budget.Neighbours: {"N", "neighbours"}, budget.OwnLoad: {"L", "own load"}, budget.OwnWork: {"W", "own work"},
	budget.Failures: {"F", "failures"}, budget.Releases: {"R", "releases"}, budget.Unknown: {"?", "unknown"},
}

// byAmount lists the causes with an amount, the largest first.
func byAmount(by map[budget.Cause]float64) []budget.Cause {
	return slices.SortedFunc(maps.Keys(by), func(a, b budget.Cause) int { return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b)) })
}

// budgetText shows a budget: one line, the window as a bar, its parts, and the reserve.
func budgetText(s *controller.Status) string {
	var out strings.Builder
	b := s.Budget
	fmt.Fprintf(&out, "%s: %s; objective %s\n", s.Service, budgetLine(b), s.SLO)
	fmt.Fprintf(&out, "[%s]\n", bar(b.By, b.Allowed))
	var parts []string
	for _, c := range byAmount(b.By) {
		parts = append(parts, fmt.Sprintf("%s %s %s", causesShown[c].letter, causesShown[c].words, amount(b, b.By[c])))
	}
	if len(parts) > 0 {
		fmt.Fprintln(&out, strings.Join(parts, ", "))
	}
	days(&out, b)
	if len(b.Burn) > 0 {
		fmt.Fprintln(&out, burnLine(b))
	}
	if b.Blind >= 3 {
		fmt.Fprintln(&out, blindLine(s))
	}
	if r := s.Reserve; r != nil {
		fmt.Fprintln(&out, reserveLine(r))
	}
	return out.String()
}

// budgetLine says in one line how much was spent.
func budgetLine(b *budget.Report) string {
	over := setting.FormatDuration(time.Duration(b.OverS) * time.Second)
	if days := b.OverS / (24 * 3600); days > 1 && days == math.Trunc(days) {
		over = fmt.Sprintf("%.0fd", days)
	}
	what := "of the time"
	if b.Of == quell.OfRequests {
		what = "of the requests"
	}
	if b.Allowed <= 0 {
		return fmt.Sprintf("%s %s within %s: nothing was judged yet", setting.FormatShare(b.Target), what, over)
	}
	left := fmt.Sprintf("%.0f%% left", 100*b.Left)
	if b.Left < 0 {
		left = fmt.Sprintf("SPENT %.1f times", 1-b.Left)
	}
	rate := ""
	if b.Of == quell.OfRequests {
		rate = " at this rate"
	}
	return fmt.Sprintf("%s %s within %s: %s; %s missed of %s judged, the window allows %s%s", setting.FormatShare(b.Target), what, over,
		left, amount(b, b.Missed), amount(b, b.Judged), amount(b, b.Allowed), rate)
}

// amount shows seconds or requests.
func amount(b *budget.Report, v float64) string {
	if b.Of == quell.OfRequests {
		return fmt.Sprintf("%.0f requests", v)
	}
	return time.Duration(v * float64(time.Second)).Round(time.Second).String()
}

// bar shows an allowed amount as characters: a letter for each part that was missed by a cause, and dots for what is left. If more was
// missed than is allowed, it is full and ends with an exclamation mark.
func bar(by map[budget.Cause]float64, allowed float64) string {
	var letters strings.Builder
	var sum float64
	for _, c := range byAmount(by) {
		sum += by[c]
		until := budgetWidth
		if allowed > 0 {
			until = min(budgetWidth, int(sum/allowed*budgetWidth+0.5))
		}
		if n := until - letters.Len(); n > 0 {
			letters.WriteString(strings.Repeat(causesShown[c].letter, n))
		}
	}
	if sum > allowed && letters.Len() == budgetWidth {
		return letters.String()[:budgetWidth-1] + "!"
	}
	return letters.String() + strings.Repeat(".", budgetWidth-letters.Len())
}

// days writes a row for each part of the window.
func days(out *strings.Builder, b *budget.Report) {
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(lines, "FROM\tJUDGED\tMISSED\tOF WHAT IT MAY\tBECAUSE OF")
	for _, d := range b.Days {
		var missed float64
		var causes []string
		for _, c := range byAmount(d.Missed) {
			missed += d.Missed[c]
			causes = append(causes, fmt.Sprintf("%s %s", causesShown[c].words, amount(b, d.Missed[c])))
		}
		part := "-"
		if may := d.Judged * (1 - b.Target); may > 0 {
			part = fmt.Sprintf("%.0f%%", 100*missed/may)
		}
		from := d.At
		if from.Before(b.Since) { // a part begins at a round time
			from = b.Since
		}
		fmt.Fprintf(lines, "%s\t%s\t%s\t%s\t%s\n", from.Local().Format("Mon 2 Jan 15:04"), amount(b, d.Judged), amount(b, missed), part,
			strings.Join(causes, ", "))
	}
	_ = lines.Flush() // to memory
}

// burnLine lists the burn rates, the shortest time first.
func burnLine(b *budget.Report) string {
	var parts []string
	for _, name := range []string{"5m", "30m", "1h", "6h", "3d"} {
		if rate, ok := b.Burn[name]; ok {
			parts = append(parts, fmt.Sprintf("%.1f in %s", rate, name))
		}
	}
	return "burn rate (1 uses it up exactly): " + strings.Join(parts, ", ")
}

// blindLine says that nothing measures the objective.
func blindLine(s *controller.Status) string {
	metric, _, _ := strings.Cut(s.SLO, " ")
	return fmt.Sprintf("NOT COUNTED: there are requests, and no reading has their %s; this balancer may not measure it", metric)
}

// reserveLine says what is left free for the budget.
func reserveLine(r *quell.Reserve) string {
	text := fmt.Sprintf("reserve: %.0f%% of the capacity is left free", 100*r.Share)
	if r.Why != "" {
		text += ": " + r.Why
	}
	if r.OutOfReach != "" {
		text += "\nOUT OF REACH: " + r.OutOfReach
	}
	return text
}
