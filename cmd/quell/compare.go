package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/switchback"
)

// compareFlags are the flags of `quell compare`.
type compareFlags struct {
	reportFlags
	lasts, turn time.Duration
	seed        uint64
}

func compareCommand() *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare [stop | --for TIME [--turn TIME] [--seed N]] [--config FILE]",
		Short: "Learn what acting saves, by handing control back in short random turns",
		Long: "Learn what acting saves. With --for the controller hands control back in half of the turns, in random order: there the\n" +
			"shares are those of before Quell. It goes on without this command, and ends by itself, at compare stop, and at a pause.\n" +
			"Without --for the command says what the last comparison has found so far.",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"stop"},
		RunE: func(cmd *cobra.Command, args []string) error {
			begins := cmd.Flags().Changed("for")
			switch {
			case len(args) == 1 && (begins || cmd.Flags().Changed("turn") || cmd.Flags().Changed("seed")):
				return userErrorf("stop ends a comparison: it takes none of --for, --turn and --seed")
			case begins && f.lasts <= 0:
				return userErrorf("--for %v: write how long the comparison is to take, as in 2h; quell compare stop ends one", f.lasts)
			case !begins && (cmd.Flags().Changed("turn") || cmd.Flags().Changed("seed")):
				return userErrorf("--turn and --seed are of a comparison that begins: add --for, as in --for 2h")
			case len(args) == 1:
				_, err := order(cmd, f.path, bus.Command{Name: bus.Compare})
				return err
			case begins:
				return f.begin(cmd)
			}
			return f.show(cmd)
		},
	}
	configFlag(cmd, &f.path)
	serviceFlag(cmd)
	forFlag(cmd, &f.lasts, "begin a comparison that takes this long")
	durationFlag(cmd.Flags(), &f.turn, "turn", 5*time.Minute, "length of a turn; the first three periods of each are not used")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "decides the order of the turns")
	durationFlag(cmd.Flags(), &f.since, "since", 7*24*time.Hour, "how far to look back for a comparison")
	cmd.Flags().StringVar(&f.dir, "dir", "", "data folder of a controller that does not run; the configuration says the objective")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func (f *compareFlags) begin(cmd *cobra.Command) error {
	if _, err := contact(cmd, f.path); err != nil { // what acting saves is asked of one service
		return err
	}
	_, err := order(cmd, f.path, bus.Command{Name: bus.Compare, ForS: f.lasts.Seconds(), TurnS: f.turn.Seconds(), Seed: f.seed})
	return err
}

// show prints what the last comparison has found so far.
func (f *compareFlags) show(cmd *cobra.Command) error {
	return f.read(cmd, func(file *config.File, j journal) error {
		r, err := compared(cmd.Context(), file.Service, j, time.Now().Add(-f.since))
		if err != nil {
			return err
		}
		return f.print(cmd.OutOrStdout(), r)
	})
}

// compared estimates from the snapshots of a journal; nil if there was no comparison.
func compared(ctx context.Context, service quell.Service, j journal, since time.Time) (*switchback.Result, error) {
	c := switchback.Collect(switchback.For(service))
	err := j.ReadSnapshots(ctx, since, func(s quell.Snapshot) error { c.Add(&s); return nil })
	if errors.Is(err, quell.ErrNoData) {
		err = nil
	}
	return c.Result(), err
}

func (f *compareFlags) print(w io.Writer, r *switchback.Result) error {
	switch {
	case r == nil:
		return fmt.Errorf("no comparison in the last %v: quell compare --for 2h begins one", f.since)
	case f.json:
		return json.NewEncoder(w).Encode(r)
	}
	_, err := fmt.Fprintln(w, r.Text())
	return err
}
