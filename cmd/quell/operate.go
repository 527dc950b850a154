package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/config/keys"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
)

func statusCommand() *cobra.Command {
	var path string
	var asJSON, local bool
	cmd := &cobra.Command{
		Use: "status [--config FILE] [--local]",
		Short: "Show the group: instances, load, severity, capacity, weight, state and the last reason; --local: what this machine's agent " +
			"decides by itself",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if local {
				return localStatus(cmd, path, asJSON)
			}
			reply, err := ask(cmd, path, bus.Command{Name: bus.Status})
			if err != nil {
				return err
			}
			if asJSON {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", printableJSON(reply))
				return err
			}
			var s controller.Status
			if err := json.Unmarshal(reply, &s); err != nil {
				return fmt.Errorf("reading the status: %w", err)
			}
			printable(&s)
			return writeStatus(cmd.OutOrStdout(), s)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&local, "local", false, "ask this machine's agent for its own policy (agent.policy), without controller and bus")
	return cmd
}

// ask sends one command to the service's controller.
func ask(cmd *cobra.Command, path string, c bus.Command) (json.RawMessage, error) {
	file, err := contact(cmd, path)
	if err != nil {
		return nil, err
	}
	conn, err := daemon.Connect(file)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	reply, err := conn.Ask(cmd.Context(), file.Service.Name, c)
	if err != nil {
		return nil, err
	}
	if reply.Error != "" {
		return nil, errors.New(quell.Printable(reply.Error, longestText))
	}
	return reply.Body, nil
}

// contact reads how to reach the service's controller. Mistakes in other parts of the file are only reported.
func contact(cmd *cobra.Command, path string) (*config.File, error) {
	file, mistakes, err := daemon.Drivers().LoadContact(path)
	warnOf(cmd, path, len(mistakes))
	return file, err
}

// warnOf reports mistakes in the parts of a configuration that a command does not need.
func warnOf(cmd *cobra.Command, path string, mistakes int) {
	if mistakes > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"quell: warning: %d mistake(s) in %s. This command does not need those parts; quell config check %s lists them\n",
			mistakes, path, path)
	}
}

func writeStatus(w io.Writer, s controller.Status) error {
	state := string(s.Mode)
	switch {
	case s.Lost != "":
		state = "changes nothing until quell resume, because the controller's memory was lost"
	case s.Refused != "":
		state = "changes nothing"
	case s.Paused:
		state = "paused by " + s.PausedBy
	case !s.Leading && (s.Standby || s.NotLeading == ""):
		state = "standby: another controller leads"
	case !s.Leading:
		state = "does not lead, and knows of none that does"
	}
	models := s.Models
	if !s.HasModels() {
		models = "missing" // the status lists below why, and what to do
	}
	name := s.Policy
	if s.Fast != "" {
		name += " with " + s.Fast
	}
	fmt.Fprintf(w, "service %s  policy %s  %s  objective %s  models %s\n", s.Service, name, state, s.SLO, models)
	if s.Refused != "" {
		fmt.Fprintln(w, s.Refused)
	}
	for _, text := range s.Learned {
		fmt.Fprintln(w, text)
	}
	if s.Authority != "" && s.Authority != quell.Full {
		fmt.Fprintf(w, "authority: %s\n", s.Authority)
	}
	if s.TakenBack != "" {
		fmt.Fprintln(w, s.TakenBack)
	}
	if s.At.IsZero() {
		fmt.Fprint(w, "no decision yet")
		return writeProblems(w, s)
	}
	fmt.Fprintf(w, "at %s  load %.3f", s.At.Local().Format(time.TimeOnly), s.Load)
	if s.Capacity != nil {
		fmt.Fprintf(w, " of capacity %.3f", *s.Capacity)
	}
	if s.ArrivalRate != nil {
		fmt.Fprintf(w, "  %.1f requests/s", *s.ArrivalRate)
	}
	fmt.Fprintf(w, "  %d decisions  %.0f instance-seconds", s.Decisions, s.InstanceSeconds)
	if s.Coming > 0 {
		fmt.Fprintf(w, "  %d coming", s.Coming)
	}
	if s.MayCome > 0 {
		fmt.Fprintf(w, "  %d that may still come", s.MayCome)
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "INSTANCE\tSTATE\tAGE\tRATE\tLOAD\tSEVERITY\tCAPACITY\tNOW\tWOULD BE\tLATENCY\tPREDICTED\tREASON")
	for _, i := range s.Instances {
		label := string(i.State)
		if i.Unprobed {
			label += ", unprobed"
		} else if i.Stale {
			label += ", stale"
		}
		for _, r := range slices.Sorted(maps.Keys(i.ProbeFailed)) {
			label += fmt.Sprintf(", %s not probed", r)
		}
		if i.Replaces != "" {
			label += ", to replace " + i.Replaces
		}
		if i.Missing != nil {
			label += ", missing from the scaler's list"
		}
		if i.Held != nil {
			label += heldText(i)
		}
		if i.Cut != nil {
			label += fmt.Sprintf(", cut to %.0f%%", 100**i.Cut)
		}
		if w, ok := s.Overrides[i.ID]; ok {
			label += fmt.Sprintf(", set to %.3f", w)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i.ID, label, age(i.AgeS),
			cell(i.RequestRate, "%.1f/s"), cell(i.Utilization, "%.3f"), cell(i.Severity, "%.2f"), capacity(i), cell(i.Now, "%.3f"),
			cell(i.Would, "%.3f"),
			cell(i.LatencyMS, "%.1f ms"), cell(i.PredictedMS, "%.1f ms"), i.Reason)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range slices.Concat(s.FastReasons, s.Reasons) {
		if r.Instance == "" {
			fmt.Fprintf(w, "\n%s: %s", r.Code, r.Text)
		}
	}
	if len(s.Changes) > 0 {
		fmt.Fprintf(w, "\nlast change at %s: %s", s.ChangedAt.Local().Format(time.TimeOnly), strings.Join(s.Changes, "; "))
	}
	writeInside(w, s.Instances)
	for _, i := range s.Instances {
		for _, resource := range slices.Sorted(maps.Keys(i.Credits)) {
			fmt.Fprintf(w, "\n%s credits of %s: %s", resource, i.ID, creditsText(i.Credits[resource]))
		}
	}
	if len(s.Pending) > 0 {
		fmt.Fprintf(w, "\nnot in force yet: %s", strings.Join(s.Pending, "; "))
	}
	return writeProblems(w, s)
}

// writeInside prints the limits and settings, inside their machines, that agents report.
func writeInside(w io.Writer, instances []controller.InstanceStatus) {
	for _, i := range instances {
		var parts []string
		for _, resource := range slices.Sorted(maps.Keys(i.Limits)) {
			parts = append(parts, fmt.Sprintf("%s limited to %g", resource, i.Limits[resource]))
		}
		for _, name := range slices.Sorted(maps.Keys(i.Settings)) {
			parts = append(parts, fmt.Sprintf("%s is %g", quell.Printable(name, longestText), i.Settings[name]))
		}
		if len(parts) > 0 {
			fmt.Fprintf(w, "\nin force at %s: %s", i.ID, strings.Join(parts, ", "))
		}
	}
}

// capacity is the table cell with an instance's capacity and, if known, what limits it.
func capacity(i controller.InstanceStatus) string {
	text := cell(i.Capacity, "%.3f")
	if i.Limiter != "" {
		text += " (" + i.Limiter + ")"
	}
	return text
}

// writeProblems writes the last part of a status: the present failures.
func writeProblems(w io.Writer, s controller.Status) error {
	for _, p := range []struct{ what, why string }{{"memory lost", s.Lost}, {"not kept over a restart", s.Store}} {
		if p.why != "" {
			fmt.Fprintf(w, "\n%s: %s", p.what, p.why)
		}
	}
	for _, part := range slices.Sorted(maps.Keys(s.LastFailure)) {
		what := part
		if part == "look" {
			what = "asking scaler and balancer"
		}
		fmt.Fprintf(w, "\nproblem in %s, last at %s (%d so far): %s", what, s.LastFailureAt[part].Local().Format(time.TimeOnly), s.Failures[part],
			s.LastFailure[part])
	}
	for _, u := range s.UnknownSenders {
		fmt.Fprintf(w,
			"\nreadings come for %q, which is no instance of this service (%s %q, since %s): correct the name there, or add the instance",
			u.Instance, u.Source, u.Sender, u.Since.Local().Format(time.TimeOnly))
	}
	_, err := fmt.Fprintln(w)
	return err
}

// age shows the age of an instance, or a dash if it is unknown.
func age(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// cell is the table cell of a reading, a dash if there is none.
func cell(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

// simpleCommand makes a command that asks the controller to change something, and prints what it did.
func simpleCommand(use, short string, args cobra.PositionalArgs, build func([]string) (bus.Command, error)) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := build(args)
			if err != nil {
				return err
			}
			done, err := askDone(cmd, path, c)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), quell.Printable(done, longestText))
			return err
		},
	}
	configFlag(cmd, &path)
	return cmd
}

func pauseCommand() *cobra.Command {
	return simpleCommand("pause [--config FILE]", "Stop acting on decisions; the controller goes on making and recording them", cobra.NoArgs,
		func([]string) (bus.Command, error) { return bus.Command{Name: bus.Pause}, nil })
}

func resumeCommand() *cobra.Command {
	return simpleCommand("resume [--config FILE]", "Act on decisions again after a pause", cobra.NoArgs,
		func([]string) (bus.Command, error) { return bus.Command{Name: bus.Resume}, nil })
}

func forgetCommand() *cobra.Command {
	return simpleCommand("forget [--config FILE]", "Drop what was learned about the service in place; learning begins again", cobra.NoArgs,
		func([]string) (bus.Command, error) { return bus.Command{Name: bus.Forget}, nil })
}

func overrideCommand() *cobra.Command {
	return simpleCommand("override INSTANCE WEIGHT|clear [--config FILE]",
		"Set an instance's share of the traffic yourself, or let the policy set it again", named("INSTANCE", "WEIGHT"),
		func(args []string) (bus.Command, error) {
			if args[1] == "clear" {
				return bus.Command{Name: bus.Clear, Instance: args[0]}, nil
			}
			w, err := keys.ParseShare(args[1])
			if err != nil || !(w >= 0 && w <= 1) {
				return bus.Command{}, userErrorf("%q is no share of the traffic: write 0 to 1, 0%% to 100%%, or clear to end an override", args[1])
			}
			return bus.Command{Name: bus.Override, Instance: args[0], Weight: &w}, nil
		})
}

func authorityCommand() *cobra.Command {
	return simpleCommand("authority advise|step|full|auto [--config FILE]",
		"Set how far the policy may go: only advise, make small steps, everything that the guard allows, or as far as its predictions hold",
		named("advise, step, full or auto"),
		func(args []string) (bus.Command, error) {
			var level quell.Authority
			if args[0] == "auto" {
				return bus.Command{Name: bus.Authority}, nil
			}
			if err := level.UnmarshalText([]byte(args[0])); err != nil || level == "" {
				return bus.Command{}, userErrorf("%q is no authority: write advise, step, full or auto", args[0])
			}
			return bus.Command{Name: bus.Authority, Level: level}, nil
		})
}
