package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/probe/local"
	"github.com/quellhq/quell/setting"
)

func creditsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "credits",
		Short: "Measure the credits of a burstable instance, and what limits do to a service on it",
		Args:  cobra.NoArgs,
		RunE:  showHelp,
	}
	cmd.AddCommand(creditsMeasureCommand(), creditsProfileCommand())
	return cmd
}

// measurement is a run of quell credits measure.
type measurement struct {
	spend           float64 // credits
	longest, window time.Duration
	processors      int
	asJSON          bool
}

func creditsMeasureCommand() *cobra.Command {
	var o measurement
	cmd := &cobra.Command{
		Use:   "measure --spend CREDITS [--longest 1h] [--json]",
		Short: "Find baseline, burst and balance of this machine's processor credits by spending some of them",
		Long: "Keep all processors of this machine busy until it slows down, and compute from that how many processors it has with and\n" +
			"without credits, and how many credits it had. One credit is one processor for one minute. Never more than --spend credits are\n" +
			"used; those that the machine earns meanwhile count too. It ends as soon as nothing more can be learned.\n\n" +
			"Run it on a machine that does nothing else. A machine without credits is slow until it has earned new ones. In unlimited mode\n" +
			"a machine never slows down, and what is used beyond its credits is billed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.Float64Var(&o.spend, "spend", 0, "largest number of credits to use")
	f.IntVar(&o.processors, "processors", runtime.NumCPU(), "number of processors to keep busy")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	durationFlag(f, &o.longest, "longest", time.Hour, "largest length of the measurement")
	durationFlag(f, &o.window, "window", time.Second, "how often the speed is determined")
	if err := cmd.MarkFlagRequired("spend"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// check refuses flags that make no sense.
func (o *measurement) check() error {
	const least, most, mostProcessors = 0.001, 1e6, 10_000
	switch {
	case o.processors < 1 || o.processors > mostProcessors:
		return userErrorf("--processors %d: must be between 1 and %d", o.processors, mostProcessors)
	case !(o.spend >= least*float64(o.processors)) || o.spend > most:
		return userErrorf("--spend %g: must be between %g (%g for each processor) and %g credits", o.spend, least*float64(o.processors),
			least, most)
	case o.window < 10*time.Millisecond || o.window > 10*time.Minute:
		return userErrorf("--window %s: must be between 10ms and 10m", setting.FormatDuration(o.window))
	case o.longest < o.window:
		return userErrorf("--longest %s: must be at least one window (%s)", setting.FormatDuration(o.longest), setting.FormatDuration(o.window))
	}
	return nil
}

func (o *measurement) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	measured, err := o.measure(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if o.asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(measured)
	}
	return writeMeasured(cmd.OutOrStdout(), measured, o.spend)
}

// measure keeps the processors busy. If a signal ends it, what is known by then is the result.
func (o *measurement) measure(ctx context.Context, errs io.Writer) (credit.Measured, error) {
	const shown = 30 * time.Second
	ctx, stop := context.WithTimeout(ctx, o.longest)
	defer stop()
	var windows []credit.Busy
	told := 0.0
	err := local.KeepBusy(ctx, local.BusyOptions{
		Processors: o.processors, Window: o.window, Budget: time.Duration(o.spend * float64(time.Minute)),
	}, func(w local.Work) bool {
		windows = append(windows, credit.Busy{Seconds: w.Elapsed.Seconds(), RunS: w.Used.Seconds(), Rounds: w.Rounds})
		if n := len(windows); n%(1+n/100) != 0 { // the more windows, the longer a judgement takes and the less one more window changes
			return true
		}
		m := credit.Measure(float64(o.processors), windows)
		if m.Seconds-told >= shown.Seconds() {
			told = m.Seconds
			fmt.Fprintf(errs, "%s: %.3g of %.4g credits are spent; %.2f processors at present\n",
				time.Duration(m.Seconds*float64(time.Second)).Round(time.Second), m.Spent, o.spend, w.Used.Seconds()/w.Elapsed.Seconds())
		}
		return !m.Settled
	})
	return credit.Measure(float64(o.processors), windows), err
}

// writeMeasured prints a measurement and, if a baseline was found, the entry for a table of types.
func writeMeasured(w io.Writer, m credit.Measured, spend float64) error {
	p := &printer{w: w}
	p.line("spent     %.3g of at most %.4g credits, in %s with %g processors", m.Spent, spend,
		time.Duration(m.Seconds*float64(time.Second)).Round(100*time.Millisecond), m.Processors)
	if m.Burst != nil {
		p.line("burst     %s processors", rangeText(*m.Burst))
	}
	if m.Baseline == nil {
		p.line("baseline  not known: the machine did not slow down")
		p.line("\nEither it has more credits than were spent (give a larger --spend), or it is in unlimited mode (what is used beyond the " +
			"credits is billed), or it is not burstable.")
		return p.err
	}
	p.line("baseline  %s processors", rangeText(*m.Baseline))
	if m.Burst == nil {
		p.line("balance   0: the machine was slow from the beginning. If another program was running, stop it and measure again.")
	} else {
		p.line("balance   %s credits at the beginning, none now", rangeText(*m.Balance))
	}
	if !m.Settled {
		p.line("\nThe measurement ended too early for precise figures: give a larger --spend or --longest.")
	}
	percent := min(max(0.1, math.Round(1000*m.Baseline.Middle()/m.Processors)/10), 100)
	p.line("\nFor a file of your own (policy.credits.types):\n\ntypes:")
	p.line("  - {type: measured, vcpus: %g, cpu: {baseline: %g%%, earned: %.4g}}", m.Processors, percent, percent/100*m.Processors*60)
	return p.err
}

// rangeText prints a range with its middle.
func rangeText(e credit.Estimate) string {
	return fmt.Sprintf("%.3g (%.3g to %.3g)", e.Middle(), e.Low, e.High)
}

// printer prints lines until the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}
