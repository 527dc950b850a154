package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/terminal"
	"github.com/quellhq/quell/redline"
	"github.com/quellhq/quell/setting"
)

func redlineCommand() *cobra.Command {
	var path, out, risk string
	var asJSON bool
	var most time.Duration
	cmd := &cobra.Command{
		Use:   "redline INSTANCE [--out ROWS.jsonl] [--config FILE]",
		Short: "Find how much load one instance carries within the objective, by raising its share step by step",
		Long: "Find how much load one instance carries within the objective. The command raises its share of the traffic step by step,\n" +
			"and stops before the objective breaks, when a neighbour arrives, when another instance fails, or when an operator changes anything.\n" +
			"Then the shares of before are put back. Each share has an end, so that happens also if the command or the controller is killed.",
		Args: named("INSTANCE"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			may, err := setting.ParseShare(risk)
			if err != nil || !(may > 0 && may <= 0.5) {
				return userErrorf("--risk %s: write a share above 0%% and up to 50%%", risk)
			}
			if most <= 0 {
				return userErrorf("--limit %v: must be above 0; write how long the test may take, as in 30m", most)
			}
			file, err := contact(cmd, path)
			if err != nil {
				return err
			}
			conn, err := daemon.Connect(file)
			if err != nil {
				return err
			}
			defer conn.Close()
			t := &redlineTest{conn: conn, file: file, id: args[0], risk: may, cmd: cmd, quiet: asJSON}
			if out != "" {
				if t.rows, err = os.OpenFile(out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
					return userErrorf("%w", err)
				}
				defer func() { err = errors.Join(err, t.rows.Close()) }()
			}
			result, err := t.run(cmd.Context(), most)
			if result == nil {
				return err
			}
			if asJSON {
				err = errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(result))
			} else {
				fmt.Fprintln(cmd.OutOrStdout(), terminal.Printable(result.Text(t.slo), longestText))
			}
			if err == nil && result.Interrupted {
				err = fmt.Errorf("the test was interrupted: %s", terminal.Printable(result.Why, longestText))
			}
			return err
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	cmd.Flags().StringVar(&out, "out", "", "append a training row for each period to this file, for quell fit")
	cmd.Flags().StringVar(&risk, "risk", "1%", "the share of the service's requests that may miss the objective because of the test")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	durationFlag(cmd.Flags(), &most, "limit", time.Hour, "the longest time that the test may take")
	return cmd
}

// redlineTest is a test of an instance of a running service. The shares that it sets end by themselves if it does not renew them.
type redlineTest struct {
	conn  *bus.Conn
	file  *config.File
	id    string
	risk  float64
	cmd   *cobra.Command
	quiet bool
	rows  *os.File

	slo     quell.SLO
	lasts   time.Duration // of each share
	orders  int           // operators' orders that the controller must have had: more are somebody else's
	at      time.Time     // of the newest period that was looked at
	began   bool          // one was
	share   float64       // that was set last
	renewed time.Time     // when that was
	noisy   bool          // neighbours were there from the beginning on: training rows would be wrong
}

// run makes the test. The result is nil if it did not begin.
func (t *redlineTest) run(ctx context.Context, most time.Duration) (*redline.Result, error) {
	s, err := controller.Ask(ctx, t.conn, t.file.Service.Name)
	if err != nil {
		return nil, err
	}
	if err := t.begin(&s); err != nil {
		return nil, err
	}
	period, err := t.first(ctx, &s)
	if err != nil {
		return nil, err
	}
	if period == nil {
		return nil, fmt.Errorf("the controller has not recorded a period yet: try again in %v", t.lasts)
	}
	if t.noisy = period.Severity != nil && *period.Severity > redline.Quiet; t.noisy && t.rows != nil {
		fmt.Fprintf(t.cmd.ErrOrStderr(), "quell: warning: %s has neighbours now (severity %.2f): no training rows are written\n", t.id,
			*period.Severity)
	}
	test, err := redline.New(redline.Options{Instance: t.id, SLO: t.slo, Risk: t.risk}, *period)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err = t.climb(limited, test)
	err = errors.Join(err, t.goBack(ctx))
	return new(test.Result()), err
}

// begin refuses a service in which a share would not be in force, or somebody else's would be.
func (t *redlineTest) begin(s *controller.Status) error {
	objective, _, _ := strings.Cut(s.SLO, " ")
	t.slo = quell.SLO{Threshold: time.Duration(s.ThresholdMS * float64(time.Millisecond))}
	t.slo.SetObjective(objective)
	t.lasts = redline.Lasts(time.Duration(s.SamplingS * float64(time.Second)))
	t.orders, t.at = s.Orders, s.At
	var known []string
	for i := range s.Instances {
		known = append(known, s.Instances[i].ID)
	}
	switch {
	case !slices.Contains(known, t.id):
		return userErrorf("service %s has no instance %q%s", s.Service, t.id, suggest(t.id, known))
	case s.Lost != "":
		return errors.New("nothing is changed until quell resume: the controller's memory was lost")
	case s.Refused != "":
		return errors.New("the balancer obeys another controller: " + s.Refused)
	case s.Released != nil:
		return fmt.Errorf("the service was released by %s: quell resume ends that", s.Released.By)
	case s.Paused:
		return fmt.Errorf("the service was paused by %s: quell resume ends that", s.PausedBy)
	case s.Mode != quell.Act:
		return fmt.Errorf("mode is %s: a red-line test needs mode act, because it changes shares", s.Mode)
	case !s.Leading:
		return errors.New("the controller that answers does not lead")
	case s.SamplingS <= 0:
		return errors.New("the controller is of a version that does not know red-line tests")
	}
	if s.Comparison != nil {
		return fmt.Errorf("a comparison is in progress until %s UTC: quell compare stop ends it", s.Comparison.Until.UTC().Format(time.DateTime))
	}
	for _, id := range slices.Sorted(maps.Keys(s.Temporary)) {
		return fmt.Errorf("the share of %s is set by %s until %s UTC: another red-line test runs, or an override with an end is in force", id,
			s.Temporary[id].By, s.Temporary[id].Until.UTC().Format(time.TimeOnly))
	}
	return nil
}

// suggest names the nearest known instance, or the command that lists all.
func suggest(id string, known []string) string {
	if near, ok := setting.Nearest(id, known); ok {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return "; quell status --all lists them"
}

// climb follows the test until it is over.
func (t *redlineTest) climb(ctx context.Context, test *redline.Test) error {
	poll := time.NewTicker(min(t.lasts/20, time.Second))
	defer poll.Stop()
	heard := time.Now()
	for {
		select {
		case <-ctx.Done():
			why := "its time is over"
			if errors.Is(ctx.Err(), context.Canceled) {
				why = "it was told to stop"
			}
			test.Stop(why)
			return nil
		case <-poll.C:
		}
		s, err := controller.Ask(ctx, t.conn, t.file.Service.Name)
		if err != nil {
			if time.Since(heard) > t.lasts {
				test.Stop("the controller does not answer")
				return err
			}
			continue
		}
		heard = time.Now()
		if why := t.changed(&s); why != "" {
			test.Stop(why)
			return nil
		}
		period, err := t.period(ctx, &s)
		if err != nil || period == nil {
			continue // the next period shows more, and the share ends by itself
		}
		move := test.Next(*period)
		t.tell(move.Level)
		if move.Done {
			return nil
		}
		if err := t.set(ctx, move.Share); err != nil {
			test.Stop(err.Error())
			return nil
		}
	}
}

// changed returns what an operator or another controller did, "" if nothing.
func (t *redlineTest) changed(s *controller.Status) string {
	switch {
	case !s.Leading:
		return "the controller no longer leads"
	case s.Orders != t.orders:
		return "an operator gave an order"
	case s.Mode != quell.Act:
		return "the mode is now " + string(s.Mode)
	}
	return ""
}

// first waits for a recorded period. One that was recorded before the last override was cleared does not count.
func (t *redlineTest) first(ctx context.Context, s *controller.Status) (*redline.Period, error) {
	for range 20 {
		period, err := t.period(ctx, s)
		if err != nil || period != nil && !slices.ContainsFunc(period.Snapshot.Instances, func(i quell.Instance) bool {
			_, still := s.Overrides[i.ID]
			return i.Override != nil && !still
		}) {
			return period, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(t.lasts / 20):
		}
	}
	return nil, nil
}

// period returns the newest recorded period, nil if it was looked at already.
func (t *redlineTest) period(ctx context.Context, s *controller.Status) (*redline.Period, error) {
	var newest *quell.Snapshot
	err := t.conn.History(t.file.Service.Name).ReadSnapshots(ctx, t.at, func(s quell.Snapshot) error { newest = &s; return nil })
	if newest == nil || t.began && !newest.At.After(t.at) {
		return nil, err
	}
	t.at, t.began = newest.At, true
	p := &redline.Period{Snapshot: newest}
	for i := range s.Instances {
		if s.Instances[i].ID == t.id {
			p.Severity = s.Instances[i].Severity
		}
	}
	return p, nil
}

// set sets the share, or renews it if it would end soon.
func (t *redlineTest) set(ctx context.Context, share float64) error {
	if share == t.share && time.Since(t.renewed) < t.lasts/3 {
		return nil
	}
	t.share, t.renewed = share, time.Now()
	order := bus.Command{Name: bus.Override, Instance: t.id, Weight: &share, ForS: t.lasts.Seconds()}
	reply, err := t.conn.Ask(ctx, t.file.Service.Name, order)
	if err == nil && reply.Error != "" {
		err = refusal(reply.Error)
	}
	if err == nil {
		t.orders++
	}
	return err
}

// goBack ends the share, also when the command was told to stop. If the controller cannot be asked, it ends by itself.
func (t *redlineTest) goBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if t.renewed.IsZero() {
		return nil
	}
	// A refusal says that it is not set any more, or that somebody has set another one.
	_, err := t.conn.Ask(ctx, t.file.Service.Name, bus.Command{Name: bus.Clear, Instance: t.id, Weight: &t.share})
	if err != nil {
		return fmt.Errorf("the share of %s could not be put back at once; a controller that runs ends it within %v: %w", t.id, t.lasts, err)
	}
	return nil
}

// tell says what was measured, and writes the training rows of a level.
func (t *redlineTest) tell(level *redline.Level) {
	if level == nil {
		return
	}
	if !t.quiet {
		fmt.Fprintf(t.cmd.ErrOrStderr(), "%s: share %.3f, %.3g requests/s, %.3g ms\n", t.id, level.Share, level.Rate, level.MS)
	}
	if t.rows == nil || t.noisy {
		return
	}
	for _, row := range level.Rows() {
		if err := json.NewEncoder(t.rows).Encode(row); err != nil {
			fmt.Fprintf(t.cmd.ErrOrStderr(), "quell: warning: writing training rows: %v\n", err)
			t.rows = nil
			return
		}
	}
}
