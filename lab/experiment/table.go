package experiment

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy/table"
)

// WriteTable prints one line for each result. Violation time and cost are in neighbouring columns, because a run can buy less of one with
// more of the other.
func WriteTable(w io.Writer, sc *scenario.Scenario, results []scenario.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "RUN\tVIOLATION\tINSTANCE-SECONDS\tMEAN SIZE\tMEAN\tP95\tP99\tREQUESTS\tFAILED\tDECISIONS\n")
	for i, r := range results {
		fmt.Fprintf(t, "%s\t%.0f s (%.0f%%)\t%.0f\t%.1f\t%s\t%s\t%s\t%d\t%d\t%d\n", Title(sc, sc.Runs[i]), r.SLO.ViolationS,
			r.SLO.ViolationShare*100,
			r.InstanceSeconds, r.MeanInstances, ms(r.LatencyMS.Mean), ms(r.LatencyMS.P95), ms(r.LatencyMS.P99), r.Requests, r.Errors, r.Decisions)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, r := range results {
		for _, warning := range r.Warnings {
			if _, err := fmt.Fprintf(w, "Doubtful, %s: %s\n", Title(sc, sc.Runs[i]), warning); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteServices prints, for each run of a scenario of many services, the results of all services together. The results are ordered by
// run, then by service.
func WriteServices(w io.Writer, sc *scenario.Scenario, results []scenario.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "RUN\tSERVICES\tVIOLATION\tWORST\tINSTANCE-SECONDS\tINSTANCES\tMEAN\tREQUESTS\tFAILED\tDECISIONS\n")
	for i, run := range sc.Runs {
		all := results[i*sc.Services : (i+1)*sc.Services]
		var sum scenario.Result
		var latency float64
		worst := all[0]
		for _, r := range all {
			sum.SLO.ViolationShare += r.SLO.ViolationShare / float64(len(all))
			sum.InstanceSeconds += r.InstanceSeconds
			sum.MeanInstances += r.MeanInstances
			sum.Requests += r.Requests
			sum.Errors += r.Errors
			sum.Decisions += r.Decisions
			if r.LatencyMS.Mean != nil {
				latency += *r.LatencyMS.Mean * float64(r.LatencyMS.N)
				sum.LatencyMS.N += r.LatencyMS.N
			}
			if r.SLO.ViolationS > worst.SLO.ViolationS {
				worst = r
			}
		}
		if sum.LatencyMS.N > 0 {
			latency /= float64(sum.LatencyMS.N)
			sum.LatencyMS.Mean = &latency
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f%%\t%.0f%% (seed %d)\t%.0f\t%.0f\t%s\t%d\t%d\t%d\n", Title(sc, run), len(all), sum.SLO.ViolationShare*100,
			worst.SLO.ViolationShare*100, worst.Seed, sum.InstanceSeconds, sum.MeanInstances, ms(sum.LatencyMS.Mean),
			sum.Requests, sum.Errors, sum.Decisions)
	}
	return t.Flush()
}

func ms(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f ms", *v)
}

// WriteNeeded prints how many machines PRIMA needed, and whether each other run held the objective as well as PRIMA did with its number of
// machines: it missed the objective for no more than one judge window longer. Without PRIMA it prints nothing.
func WriteNeeded(w io.Writer, sc *scenario.Scenario, results []scenario.Result) error {
	prima := ofPRIMA(results)
	if prima == nil {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nPRIMA missed the objective for %.0f s, with %.1f machines on average. To miss it as little:\n", prima.SLO.ViolationS,
		prima.MeanInstances)
	for i, r := range results {
		if r.Policy == prima.Policy {
			continue
		}
		fmt.Fprintf(t, "  %s\t", Title(sc, sc.Runs[i]))
		if r.SLO.ViolationS > prima.SLO.ViolationS+sc.Judge.Window.Seconds() {
			fmt.Fprintf(t, "%.1f machines were not enough: missed for %.0f s\n", r.MeanInstances, r.SLO.ViolationS)
		} else {
			fmt.Fprintf(t, "%.1f machines were enough, %s than PRIMA's: missed for %.0f s\n", r.MeanInstances,
				moreOrLess(r.MeanInstances/prima.MeanInstances-1), r.SLO.ViolationS)
		}
	}
	return t.Flush()
}

func moreOrLess(change float64) string {
	if change < 0 {
		return fmt.Sprintf("%.0f%% less", -change*100)
	}
	return fmt.Sprintf("%.0f%% more", change*100)
}

// ofPRIMA returns the last result of PRIMA; nil if there is none.
func ofPRIMA(results []scenario.Result) *scenario.Result {
	for i := range slices.Backward(results) {
		if results[i].Policy == table.All.Default() {
			return &results[i]
		}
	}
	return nil
}

// Verdicts returns sentences that compare PRIMA with each run of fixed size. A sentence says so if its comparison is unfair: PRIMA violates
// the objective for less time, but also costs more, so the difference proves nothing.
func Verdicts(sc *scenario.Scenario, results []scenario.Result) []string {
	prima := ofPRIMA(results)
	if prima == nil {
		return nil
	}
	var lines []string
	largest := 0
	for i, r := range results {
		if r.Policy != table.All.Plain() {
			continue
		}
		lines = append(lines, verdict(Title(sc, sc.Runs[i]), r, prima))
		if sc.Size(sc.Runs[i]) > sc.Size(sc.Runs[largest]) {
			largest = i
		}
	}
	if r := results[largest]; r.Policy == table.All.Plain() && r.SLO.ViolationS > 0 {
		lines = append(lines, fmt.Sprintf("%s did not keep the threshold (%.0f s): the fixed size that does costs more still.",
			Title(sc, sc.Runs[largest]), r.SLO.ViolationS))
	}
	return lines
}

func verdict(title string, r scenario.Result, prima *scenario.Result) string {
	cost := prima.InstanceSeconds/r.InstanceSeconds - 1
	line := fmt.Sprintf("Against %s, PRIMA violates for %.0f s instead of %.0f s at %+.0f%% of the cost.", title, prima.SLO.ViolationS,
		r.SLO.ViolationS, cost*100)
	if cost > unfair && prima.SLO.ViolationS < r.SLO.ViolationS {
		line += fmt.Sprintf(" Unfair: PRIMA used more, %.0f instance-seconds; compare with a larger fixed size.", prima.InstanceSeconds)
	}
	return line
}

// unfair is the relative difference by which PRIMA may cost more than a rival before their comparison counts as unfair.
const unfair = 0.02
