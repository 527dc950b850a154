package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/terminal"
	"github.com/quellhq/quell/setting"
)

// ask sends one command to the controller of the only service, or of the one that --service names.
func ask(cmd *cobra.Command, path string, c bus.Command) (json.RawMessage, error) {
	file, err := contact(cmd, path)
	if err != nil {
		return nil, err
	}
	return askOne(cmd, file, c)
}

// askOne sends one command to the controller of a service.
func askOne(cmd *cobra.Command, file *config.File, c bus.Command) (json.RawMessage, error) {
	return askAt(cmd.Context(), file, c)
}

func askAt(ctx context.Context, file *config.File, c bus.Command) (json.RawMessage, error) {
	conn, err := daemon.Connect(file)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	reply, err := conn.Ask(ctx, file.Service.Name, c)
	if err != nil {
		return nil, err
	}
	if reply.Error != "" {
		return nil, refusal(terminal.Printable(reply.Error, longestText))
	}
	return reply.Body, nil
}

// refusal is why a controller did not carry out a command.
type refusal string

func (r refusal) Error() string { return string(r) }

// warnOf reports mistakes in the parts of a configuration that a command does not need.
func warnOf(cmd *cobra.Command, path string, mistakes int) {
	if mistakes > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"quell: warning: %d mistake(s) in %s. This command does not need those parts; quell config check %s lists them\n",
			mistakes, path, path)
	}
}

// cell is the table cell of a reading, a dash if there is none.
func cell(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

// simpleCommand makes a command that asks the controller to change something, and prints what it did, followed by more.
func simpleCommand(use, short string, args cobra.PositionalArgs, build func([]string) (bus.Command, error), more ...string) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := build(args)
			if err != nil {
				return err
			}
			if c.Name == bus.Override || c.Name == bus.Clear || c.Name == bus.Replace { // what one service's share is says nothing of others
				if _, err := contact(cmd, path); err != nil {
					return err
				}
			}
			done, err := order(cmd, path, c)
			if len(done) > 0 && len(more) > 0 {
				fmt.Fprintln(cmd.OutOrStdout(), strings.Join(more, "\n"))
			}
			return err
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	return cmd
}

func pauseCommand() *cobra.Command {
	return simpleCommand("pause [--config FILE]", "Stop acting on decisions; the controller goes on making and recording them", cobra.NoArgs,
		func([]string) (bus.Command, error) { return bus.Command{Name: bus.Pause}, nil },
		"what is in force stays;\nquell resume ends the pause, quell release puts the balancer back as it was before Quell")
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
	var lasts time.Duration
	cmd := simpleCommand("override INSTANCE WEIGHT|clear [--for TIME] [--config FILE]",
		"Set an instance's share of the traffic yourself, or let the policy set it again", named("INSTANCE", "WEIGHT"),
		func(args []string) (bus.Command, error) {
			if args[1] == "clear" && lasts > 0 {
				return bus.Command{}, userErrorf("clear and --for exclude each other: an override is cleared at once")
			}
			if args[1] == "clear" {
				return bus.Command{Name: bus.Clear, Instance: args[0]}, nil
			}
			w, err := setting.ParseShare(args[1])
			if err != nil || !(w >= 0 && w <= 1) {
				return bus.Command{}, userErrorf("%q is no share of the traffic: write 0 to 1, 0%% to 100%%, or clear to end an override", args[1])
			}
			return bus.Command{Name: bus.Override, Instance: args[0], Weight: &w, ForS: lasts.Seconds()}, nil
		})
	forFlag(cmd, &lasts, "set it for this long, then put back the shares of before; 0s: until it is cleared")
	return cmd
}

// forFlag adds the time after which what a command changes ends by itself.
func forFlag(cmd *cobra.Command, lasts *time.Duration, usage string) {
	durationFlag(cmd.Flags(), lasts, "for", 0, usage)
}

func authorityCommand() *cobra.Command {
	var lasts time.Duration
	cmd := simpleCommand("authority advise|step|full|auto [--for TIME] [--config FILE]",
		"Set how far the policy may go: only advise, make small steps, everything that the guard allows, or as far as its predictions hold",
		named("advise, step, full or auto"),
		func(args []string) (bus.Command, error) {
			var level quell.Authority
			if args[0] == "auto" && lasts > 0 {
				return bus.Command{}, userErrorf("auto and --for exclude each other: only advise, step and full may have an end")
			}
			if args[0] == "auto" {
				return bus.Command{Name: bus.Authority}, nil
			}
			if err := level.UnmarshalText([]byte(args[0])); err != nil || level == "" {
				return bus.Command{}, userErrorf("%q is no authority: write advise, step, full or auto", args[0])
			}
			return bus.Command{Name: bus.Authority, Level: level, ForS: lasts.Seconds()}, nil
		})
	forFlag(cmd, &lasts, "set it for this long; 0s: until it is set again")
	return cmd
}
