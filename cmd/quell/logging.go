package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/daemon"
)

// logOptions are the flags of every long-running process.
type logOptions struct {
	format  choice
	level   choice
	verbose bool
}

func (o *logOptions) add(cmd *cobra.Command) {
	o.format = choice{"text", []string{"text", "json"}}
	o.level = choice{"info", []string{"debug", "info", "warn", "error"}}
	cmd.Flags().Var(&o.format, "log-format", "format of the messages on standard error, one line each: text or json")
	cmd.Flags().Var(&o.level, "log-level", "lowest level that is logged: debug, info, warn or error")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "the same as --log-level debug")
}

func (o *logOptions) logger(w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	_ = level.UnmarshalText([]byte(o.level.is)) // the flag accepts only known levels
	if o.verbose {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	if o.format.is == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// run runs a process, and logs its start and why it ended. It does not log mistakes of the user; these are printed.
func (o *logOptions) run(cmd *cobra.Command, config string, process func(context.Context, *slog.Logger) error) error {
	outliveLog()
	log := o.logger(cmd.ErrOrStderr())
	log.Info(cmd.Name()+" starts", "version", buildVersion(), "config", config)
	err := process(cmd.Context(), log)
	var user *quell.UserError
	switch cause := context.Cause(cmd.Context()); {
	case errors.Is(err, daemon.ErrHandedOver):
		log.Info(cmd.Name()+" ended", "reason", err.Error())
		return nil
	case errors.As(err, &user):
	case err != nil:
		log.Error(cmd.Name()+" ended", "reason", err.Error())
	case cause != nil:
		log.Info(cmd.Name()+" ended", "reason", cause.Error())
	default:
		log.Info(cmd.Name()+" ended", "reason", "the process that it belongs to has ended")
	}
	return err
}

// outliveLog lets the process go on when whoever reads its log has ended, as when journald is restarted. The signal is caught and not
// ignored, because programs that this process starts would ignore it, too.
func outliveLog() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// choice is a flag whose value is one of a few words.
type choice struct {
	is    string
	known []string
}

func (c *choice) Set(s string) error {
	if !slices.Contains(c.known, s) {
		return errors.New("must be one of " + strings.Join(c.known, ", "))
	}
	c.is = s
	return nil
}

func (c *choice) String() string { return c.is }
func (c *choice) Type() string   { return "word" }
