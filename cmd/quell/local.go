package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/daemon"
)

// localStatus shows the status of this machine's agent and its own policy.
func localStatus(cmd *cobra.Command, path string, asJSON bool) error {
	file, mistakes, err := daemon.Drivers().LoadLocal(path)
	if err != nil {
		return err
	}
	warnOf(cmd, path, len(mistakes))
	reply, err := daemon.AskAgent(cmd.Context(), file)
	if err != nil {
		return err
	}
	return showReply(cmd.OutOrStdout(), reply, asJSON, writeLocalStatus)
}

// localJournal calls fn with each entry, from the time since on, of the journal of this machine's agent.
func localJournal(cmd *cobra.Command, path string, since time.Time, fn func(bus.Entry) error) error {
	if err := findConfig(cmd, &path); err != nil {
		return err
	}
	file, mistakes, err := daemon.Drivers().LoadLocal(path)
	if err != nil {
		return err
	}
	warnOf(cmd, path, len(mistakes))
	return host.ReadJournal(file.AgentDir(), since, fn)
}

func writeLocalStatus(w io.Writer, s host.Status) error {
	if s.Policy == "" {
		_, err := fmt.Fprintln(w, "the agent runs, and has no policy of its own (agent.policy)")
		return err
	}
	fmt.Fprintf(w, "host %s  policy %s  every %v", s.Host, s.Policy, time.Duration(s.SamplingS*float64(time.Second)))
	if s.Plan == nil {
		fmt.Fprint(w, "\nno decision yet")
		return writeUnread(w, s)
	}
	fmt.Fprintf(w, "\nat %s  %d decisions", s.At.Local().Format(time.TimeOnly), s.Decisions)
	if m := s.Machine; m != nil && m.Sched != nil && m.CPU != nil {
		fmt.Fprintf(w, "  %.2f of %.0f processors used  %.1f%% stolen", m.Sched.RunS/m.WindowS, m.Sched.Cores, 100*m.CPU.Steal)
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Plan.Tenants) > 0 {
		writeTenants(t, s)
	} else {
		writeWaits(t, s)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(s.Groups) == 0 {
		fmt.Fprint(w, "none of the groups is there yet: start them, or name others in agent.policy.groups")
	}
	for _, r := range s.Plan.Reasons {
		if r.Instance == "" {
			fmt.Fprintf(w, "\n%s: %s", r.Code, r.Text)
		}
	}
	for _, l := range s.Plan.Limits {
		if strings.HasPrefix(l.Instance, "/") {
			fmt.Fprintf(w, "\n%s, in which groups lie, has %s %.2f", l.Instance, l.Unit, l.Value)
		}
	}
	return writeUnread(w, s)
}

// writeTenants prints how much longer groups take for their work than alone, and their caps.
func writeTenants(t io.Writer, s host.Status) {
	fmt.Fprintln(t, "GROUP\tPROCESSORS\tWANTS\tSLOWDOWN\tBY\tRELATED\tCAP\tIN FORCE\tPREDICTED\tREASON")
	for _, in := range s.Groups {
		tenant := s.Plan.Tenants[in.ID]
		by := cmp.Or(string(tenant.From), "-")
		if tenant.Idle {
			by = "idle"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", in.ID, used(in.Observation), cell(tenant.Wanted, "%.2f"),
			cell(tenant.Slowdown, "%.2f"), by, cell(tenant.Correlation, "%.2f"), capOf(s.Plan, in.ID), quota(in.Limits),
			cell(tenant.Predicted, "%.2f"), s.ReasonOf(in.ID))
	}
}

// capOf is the limit of processors, or the weight, that a plan sets for a group.
func capOf(p *quell.Plan, group string) string {
	for _, l := range p.Limits {
		if l.Instance != group || l.Resource != quell.CPU {
			continue
		}
		if l.Unit == quell.WeightUnit {
			return fmt.Sprintf("weight %.2f", l.Value)
		}
		return fmt.Sprintf("%.2f", l.Value)
	}
	return "-"
}

// writeWaits prints how long groups wait for processors.
func writeWaits(t io.Writer, s host.Status) {
	fmt.Fprintln(t, "GROUP\tPROCESSORS\tQUOTA\tWAITS\tOWN LOAD\tOWN QUOTA\tNEIGHBOURS\tHYPERVISOR\tREASON")
	for _, in := range s.Groups {
		waits := s.Plan.Waits[in.ID]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", in.ID, used(in.Observation), quota(in.Limits),
			percent(waits.Share), percent(waits.Own), percent(waits.Quota), percent(waits.Neighbours), percent(waits.Hypervisor), s.ReasonOf(in.ID))
	}
}

// writeUnread writes the last part of a status: what the agent cannot read at present.
func writeUnread(w io.Writer, s host.Status) error {
	for _, part := range s.Refused {
		fmt.Fprintf(w, "\nthe plan asks for %s, which nothing in the agent carries out", part)
	}
	for _, group := range slices.Sorted(maps.Keys(s.NotLimited)) {
		fmt.Fprintf(w, "\nthe limit of %s is not in force: %s", group, s.NotLimited[group])
	}
	for _, list := range []map[string]string{s.Unread, s.Problems} {
		for _, what := range slices.Sorted(maps.Keys(list)) {
			fmt.Fprintf(w, "\nproblem with %s: %s", what, list[what])
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// used is how many processors a group used.
func used(obs *quell.Observation) string {
	if obs == nil || obs.Sched == nil || obs.WindowS <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", obs.Sched.RunS/obs.WindowS)
}

func quota(limits map[quell.Resource]float64) string {
	cores, ok := limits[quell.CPU]
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f", cores)
}

func percent(share *float64) string {
	if share == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100**share)
}
