package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/internal/terminal"
	"github.com/quellhq/quell/limit"
)

func limitsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Show or remove the limits that agents set for this machine's control groups",
		Args:  cobra.NoArgs,
		RunE:  showHelp,
	}
	cmd.AddCommand(limitsShowCommand(), limitsClearCommand())
	return cmd
}

// recordsFlags adds the flags that say where the records of limits and the control groups are.
func recordsFlags(cmd *cobra.Command, o *limit.Options) {
	cmd.Flags().StringVar(&o.Records, "records", limit.DefaultRecords, "folder of agent.policy.records")
	cmd.Flags().StringVar(&o.Root, "root", "/", "folder of agent.root")
}

func limitsShowCommand() *cobra.Command {
	var o limit.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [--json]",
		Short: "Show each limit: what is in force, what was there before, and which process set it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := limit.Show(o)
			printable(&list)
			if asJSON {
				text, wrong := json.Marshal(append([]limit.Limit{}, list...))
				if wrong != nil {
					return wrong
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
				return err
			}
			if len(list) == 0 && err != nil {
				return err
			}
			if len(list) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "no limits are recorded in %s\n", terminal.Printable(o.Records, longestText))
				return nil
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "GROUP\tRESOURCE\tIN FORCE\tBEFORE\tPROCESS")
			for _, l := range list {
				process := fmt.Sprint(l.PID)
				if l.Left {
					process += ", ended"
				}
				l.Now = cmp.Or(l.Now, "the group is gone")
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", l.Group, l.What(), l.Now, l.Before, process)
			}
			if wrong := t.Flush(); wrong != nil {
				return wrong
			}
			return err
		},
	}
	recordsFlags(cmd, &o)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func limitsClearCommand() *cobra.Command {
	var o limit.Options
	var after int
	cmd := &cobra.Command{
		Use:   "clear",
		Short: "Put back what was in force before the limits of agents that have ended; running agents keep theirs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if after > 0 {
				return restoreAfter(cmd.InOrStdin(), after, o)
			}
			done, err := limit.Restore(o)
			for _, t := range done {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: put back what was there before\n", terminal.Printable(t.String(), longestText))
			}
			list, wrong := limit.Show(o)
			for _, l := range list {
				if !l.Left {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: stays, because process %d runs: stop that agent first\n",
						terminal.Printable(l.Target.String(), longestText), l.PID)
				}
			}
			if err == nil {
				err = wrong
			}
			if err == nil && len(done)+len(list) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "no limits are recorded in %s\n", terminal.Printable(o.Records, longestText))
			}
			return err
		},
	}
	recordsFlags(cmd, &o)
	const hidden = "after"
	cmd.Flags().IntVar(&after, hidden, 0, "wait for the end of standard input, and of this process")
	if err := cmd.Flags().MarkHidden(hidden); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// restoreWhenKilled starts a process that puts back what was there before this process's limits when this process ends in any way. release
// ends that process.
func restoreWhenKilled(o limit.Options) (release func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.Command(program, "limits", "clear", "--records", o.Records, "--root", o.Root, "--after", strconv.Itoa(os.Getpid()))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt at the terminal is not for it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting what lifts limits after a kill: %w", err)
	}
	return func() error {
		err := pipe.Close()
		if wrong := cmd.Wait(); wrong != nil {
			err = errors.Join(err, fmt.Errorf("what lifts limits after a kill: %w", wrong))
		}
		return err
	}, nil
}

// restoreAfter waits until in ends and the process that held its other end no longer holds limits, and puts back what was there before.
func restoreAfter(in io.Reader, pid int, o limit.Options) error {
	const most, often = 10 * time.Second, 50 * time.Millisecond
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	for deadline := time.Now().Add(most); ; time.Sleep(often) {
		_, err := limit.Restore(o)
		list, wrong := limit.Show(o)
		held := slices.ContainsFunc(list, func(l limit.Limit) bool { return l.PID == pid })
		if !held || time.Now().After(deadline) {
			return errors.Join(err, wrong)
		}
	}
}
