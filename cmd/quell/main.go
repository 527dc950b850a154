// Command quell holds a service's response-time target on rented machines whose neighbours it cannot see.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
)

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1 // the work failed
	exitUsage  = 2 // the command line, or a file that it names, is wrong
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run executes one command line and returns the exit status.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) (status int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(errs, "quell: internal error: %v\nPlease report this with the lines below.\n%s", r, debug.Stack())
			status = exitFailed
		}
	}()
	reached := false
	root := newRoot(&reached)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if said, ok := errors.AsType[statusError](err); ok {
		return int(said)
	}
	fmt.Fprintf(errs, "quell: %v\n", err)
	if with, ok := errors.AsType[*exitError](err); ok {
		return with.status
	}
	var user *quell.UserError
	if !reached || errors.As(err, &user) {
		return exitUsage
	}
	return exitFailed
}

// newRoot builds the command tree; it sets reached when a command line was parsed without a mistake.
func newRoot(reached *bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "quell",
		Short: "Hold a response-time target on machines whose neighbours you cannot see",
		Long: "Quell measures the interference on each instance of a service, computes how much load each can still carry within\n" +
			"the response-time target, and sets the load balancer's weights and the number of instances. Start with `quell demo`.",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmd.ValidateRequiredFlags(); err != nil { // cobra itself checks them only after this function
				return err
			}
			*reached = true
			return nil
		},
	}
	root.SetFlagErrorFunc(explainFlag)
	root.Version = buildVersion()
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		demoCommand(), simCommand(), arenaCommand(), controllerCommand(), agentCommand(), balancerCommand(), hostCommand(), lingerCommand(),
		interfereCommand(),
		statusCommand(), topCommand(), budgetCommand(), endsAtOnce(explainCommand()), pauseCommand(), resumeCommand(), authorityCommand(),
		forgetCommand(), overrideCommand(), releaseCommand(), drainCommand(), undrainCommand(), replaceCommand(), redlineCommand(),
		endsAtOnce(journalCommand()), endsAtOnce(reportCommand()), compareCommand(), limitsCommand(), runCommand(), creditsCommand(),
		credentialsCommand(), joinTokenCommand(), initCommand(), doctorCommand(), configCommand(), adviseCommand(), trainCommand(), fitCommand(),
		modelCommand(), endsAtOnce(planCommand()), labCommand(), versionCommand(), manualCommand(), pageCommand(),
	)
	arrange(root)
	completeInstances(root, "explain", "override", "drain", "undrain", "replace", "redline")
	return root
}

// endsAtOnce lets a signal end a command that only reads and prints, also while it waits for its input.
func endsAtOnce(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		return run(cmd, args)
	}
	return cmd
}

// userErrorf makes the error of a user's mistake, which gives exit status 2.
func userErrorf(format string, args ...any) error {
	return &quell.UserError{Err: fmt.Errorf(format, args...)}
}

// exitError is an error with an exit status of its own.
type exitError struct {
	error
	status int
}

func (e *exitError) Unwrap() error { return e.error }

// newLogger writes plain lines for people to standard error.
func newLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// someNamed requires at least one argument; name says, in the message, what it is.
func someNamed(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return named(name)(cmd, args)
		}
		return nil
	}
}

// named requires exactly as many arguments as there are names, which the message uses.
func named(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return fmt.Errorf("%s wants %s, got %d argument(s); see %s --help", cmd.CommandPath(), strings.Join(names, " and "), len(args),
			cmd.CommandPath())
	}
}
