package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/terminal"
	"github.com/quellhq/quell/top"
)

// topWidth is the width of `quell top --once` where the output is no terminal.
const topWidth = 100

func topCommand() *cobra.Command {
	var path string
	var once bool
	cmd := &cobra.Command{
		Use:   "top [--once] [--config FILE]",
		Short: "Watch a service live",
		Long: "Watch services live on a terminal: every instance's load, capacity, severity, share and cause, response time against the\n" +
			"objective, and keys to pause, drain and override. Without a terminal, the table is printed once.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := services(cmd, path)
			if err != nil {
				return err
			}
			opts := top.Options{Every: watchEvery, Clock: clock, Now: time.Now}
			for _, file := range r.list {
				opts.Services = append(opts.Services, top.Service{Name: terminal.Printable(file.Service.Name, longestText),
					Controller: remote{file}, Past: remote{file}.past})
			}
			if !once && len(r.list) > 0 && live(cmd.InOrStdin(), cmd.OutOrStdout()) {
				for _, bad := range r.bad {
					opts.Notice = terminal.Printable(badText(bad), longestText)
				}
				return top.Run(cmd.Context(), opts, cmd.InOrStdin(), cmd.OutOrStdout())
			}
			err = top.Print(cmd.Context(), opts, cmd.OutOrStdout(), widthOf(cmd.OutOrStdout()))
			for _, bad := range r.bad {
				err = errors.Join(err, errors.New(badText(bad)))
			}
			return err
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	cmd.Flags().BoolVar(&once, "once", false, "print every instance once, without colours, and end")
	return cmd
}

// live returns whether a terminal is there that can be drawn on.
func live(in io.Reader, out io.Writer) bool {
	file, ok := in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && isTerminal(out) && os.Getenv("TERM") != "dumb"
}

func widthOf(w io.Writer) int {
	if file, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return topWidth
}

// remote is the running controller of a service.
type remote struct{ file *config.File }

func (r remote) Status(ctx context.Context) (controller.Status, error) {
	reply, err := askAt(ctx, r.file, bus.Command{Name: bus.Status})
	if err != nil {
		return controller.Status{}, printableError(err)
	}
	return readStatus[controller.Status](reply)
}

func (r remote) Command(ctx context.Context, cmd bus.Command) (string, error) {
	text, err := doneAt(ctx, r.file, cmd)
	if err != nil {
		return "", printableError(err)
	}
	return terminal.Printable(text, longestText), nil
}

// printableError makes the text of an error one line that is safe to print on a terminal.
func printableError(err error) error {
	return errors.New(terminal.Printable(strings.ReplaceAll(err.Error(), "\n", "; "), longestText))
}

const (
	recalledPeriods = 120    // periods before the view begins whose response times are drawn
	recalledRows    = 20_000 // rows of instances that are read for them, at most
)

// past reads the response times of the last periods from the journal. Without them, the view begins now.
func (r remote) past(ctx context.Context, now *controller.Status) (samples []top.Sample) {
	conn, err := daemon.Connect(r.file)
	if err != nil {
		return nil
	}
	defer conn.Close()
	periods := min(recalledPeriods, recalledRows/max(1, len(now.Instances)))
	since := now.At.Add(-time.Duration(float64(periods) * now.SamplingS * float64(time.Second)))
	_ = conn.History(r.file.Service.Name).ReadSnapshots(ctx, since, func(s quell.Snapshot) error { // a picture, not a record
		samples = append(samples, top.SampleOf(&s, now.SLO))
		return nil
	})
	return samples
}
