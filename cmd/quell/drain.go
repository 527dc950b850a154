package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/setting"
	"github.com/quellhq/quell/tell"
)

// drainPoll is how often a waiting drain checks the status.
const drainPoll = 200 * time.Millisecond

func drainCommand() *cobra.Command {
	var path string
	var force, noWait, check bool
	var timeout, lasts time.Duration
	cmd := &cobra.Command{
		Use:   "drain INSTANCE [--check] [--for TIME] [--config FILE]",
		Short: "Take an instance out of rotation until undrain, and wait until it is empty",
		Long: "Take an instance out of rotation: it gets no new requests and counts as no capacity. It is neither stopped nor replaced.\n" +
			"The command waits until its open requests have ended. It stays out, also when this command ends early, until quell undrain.",
		Args: named("INSTANCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return userErrorf("--timeout %s: must not be negative; 0s waits as long as it takes", setting.FormatDuration(timeout))
			}
			if check {
				return checkDrains(cmd, path, args[0])
			}
			done, err := order(cmd, path, bus.Command{Name: bus.Drain, Instance: args[0], Force: force, ForS: lasts.Seconds()})
			for _, file := range done {
				if !noWait {
					err = errors.Join(err, awaitEmpty(cmd, file, args[0], timeout))
				}
			}
			return err
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "do it even if no other instance is left in rotation")
	cmd.Flags().BoolVar(&check, "check", false, "change nothing: only say whether the other instances can take the load")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return at once; quell status says when the instance is empty")
	forFlag(cmd, &lasts, "take it out for this long; 0s: until quell undrain")
	durationFlag(cmd.Flags(), &timeout, "timeout", 5*time.Minute, "how long to wait for open requests; 0s waits as long as it takes")
	return cmd
}

// checkDrain says whether the others can take an instance's load. It is an error if they cannot, or if that is not known.
func checkDrain(cmd *cobra.Command, file *config.File, instance string) (string, error) {
	reply, err := askOne(cmd, file, bus.Command{Name: bus.Status})
	if err != nil {
		return "", err
	}
	s, err := readStatus[controller.Status](reply)
	if err != nil {
		return "", err
	}
	return withoutInstance(&s, instance)
}

// checkDrains is checkDrain for every service.
func checkDrains(cmd *cobra.Command, path, instance string) error {
	r, err := services(cmd, path)
	if err != nil {
		return err
	}
	answers := r.askEach(func(file *config.File) ([]byte, error) {
		text, err := checkDrain(cmd, file, instance)
		return []byte(text), err
	})
	for _, a := range answers {
		text := string(a.text)
		if r.several {
			text = a.service + ": " + text
		}
		if a.err == nil {
			fmt.Fprintln(cmd.OutOrStdout(), text)
		}
	}
	return r.failures(answers)
}

// withoutInstance compares the load with what the other instances in rotation can take.
func withoutInstance(s *controller.Status, instance string) (string, error) {
	o := controller.Without(s.Instances, instance)
	can := fmt.Sprintf("the other %d can take %s within the objective, and there are %s", o.Left, tell.Rate(o.Can), tell.Rate(o.Load))
	switch {
	case !o.Known:
		return "", userErrorf("service %s has no instance %q; quell status --all lists them", s.Service, instance)
	case o.Left == 0:
		return "", fmt.Errorf("no: without %s no instance is in rotation", instance)
	case len(o.Unknown) > 0:
		return "", fmt.Errorf("not known: what %s can take within the objective is not known yet", strings.Join(o.Unknown, ", "))
	case o.Load > o.Can:
		return "", errors.New("no: " + can)
	}
	return "yes: " + can, nil
}

func undrainCommand() *cobra.Command {
	return simpleCommand("undrain INSTANCE [--config FILE]", "Put an instance back in rotation, whoever took it out", named("INSTANCE"),
		func(args []string) (bus.Command, error) {
			return bus.Command{Name: bus.Undrain, Instance: args[0]}, nil
		})
}

func replaceCommand() *cobra.Command {
	var keep bool
	cmd := simpleCommand("replace INSTANCE [--keep] [--config FILE]", "Start a fresh instance, let it take this one's place, and end this one",
		named("INSTANCE"),
		func(args []string) (bus.Command, error) {
			return bus.Command{Name: bus.Replace, Instance: args[0], Keep: keep}, nil
		})
	cmd.Flags().BoolVar(&keep, "keep", false, "do not end it: it goes on running out of rotation, for a look, until quell undrain")
	return cmd
}

// askDone sends a command that changes something and returns the controller's text about it.
func askDone(cmd *cobra.Command, file *config.File, c bus.Command) (string, error) {
	return doneAt(cmd.Context(), file, c)
}

func doneAt(ctx context.Context, file *config.File, c bus.Command) (string, error) {
	body, err := askAt(ctx, file, c)
	if err != nil {
		return "", err
	}
	var reply struct{ Done string }
	if err := json.Unmarshal(body, &reply); err != nil {
		return "", fmt.Errorf("reading the reply: %w", err)
	}
	return reply.Done, nil
}

// awaitEmpty waits until no request is open at a drained instance. It goes on waiting if the controller restarts meanwhile.
func awaitEmpty(cmd *cobra.Command, file *config.File, instance string, timeout time.Duration) error {
	conn, err := daemon.Connect(file)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, began := cmd.Context(), time.Now()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	e, said := emptying{instance: instance}, int64(-1)
	for {
		status, err := controller.Ask(ctx, conn, file.Service.Name)
		if err == nil {
			open, known, err := e.openAt(&status)
			switch {
			case err != nil:
				return err
			case known && open == 0:
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is empty: no request is open there\n", instance)
				return err
			case known && open != said:
				said = open
				fmt.Fprintf(cmd.ErrOrStderr(), "waiting for %d open request(s) of %s\n", open, instance)
			}
		}
		select {
		case <-ctx.Done():
			return notEmpty(instance, said, time.Since(began), err)
		case <-time.After(drainPoll):
		}
	}
}

func notEmpty(instance string, open int64, after time.Duration, last error) error {
	text := fmt.Sprintf("%s stays out of rotation, but was not empty after %v", instance, after.Round(time.Second))
	if open > 0 {
		text += fmt.Sprintf(": %d request(s) are open", open)
	}
	if last != nil {
		return fmt.Errorf("%s: %w", text, last)
	}
	return errors.New(text + "; quell status shows them")
}

// emptying is the wait for the last requests of a drained instance.
type emptying struct {
	instance string
	decided  *time.Time // when the last decision was made, by the first answer of a leader; nil: none has answered
}

// openAt returns how many requests are open at the instance; at least 1 while the balancer may still send it new ones. known is false if a
// status does not tell. A controller that stands by knows of no drain, and one that has not decided yet has no rows. A row may also be
// missing because the instance is newer than the last decision: it has ended only if a decision after the order does not have it either.
func (e *emptying) openAt(s *controller.Status) (open int64, known bool, err error) {
	if !s.Leading {
		return 0, false, nil
	}
	if e.decided == nil {
		e.decided = new(s.At)
	}
	for i := range s.Instances {
		switch row := &s.Instances[i]; {
		case row.ID != e.instance:
		case row.Held == nil:
			return 0, true, fmt.Errorf("%s was put back in rotation meanwhile", e.instance)
		case row.Empty:
			return 0, true, nil
		default:
			return max(1, *cmp.Or(row.Open, new(int64))), true, nil
		}
	}
	return 0, !s.At.IsZero() && !s.At.Equal(*e.decided), nil
}
