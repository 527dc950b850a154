package controller

import (
	"errors"
	"fmt"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/setting"
	"github.com/quellhq/quell/switchback"
)

// Comparison hands control back in random turns, to learn what acting saves. It ends by itself.
type Comparison struct {
	Term
	switchback.Schedule
	By    string    `json:"by"`
	Began time.Time `json:"began"`
}

// compare begins a comparison, or ends the present one if the command has no time.
func (c *orders) compare(cmd bus.Command) error {
	t := &c.mem.Temporary
	if cmd.ForS == 0 {
		if t.Comparison == nil {
			return errors.New("no comparison is in progress")
		}
		t.Comparison = nil
		return nil
	}
	turn := time.Duration(cmd.TurnS * float64(time.Second))
	schedule, least := switchback.New(cmd.Seed, max(turn, 1), cmd.For()), 2*switchback.CarryOver(c.samplingNow())
	switch why := c.idle(); {
	case why != "":
		return fmt.Errorf("acting can be compared only while Quell acts, and nothing is changed now: %s", why)
	case t.Comparison != nil:
		return fmt.Errorf("a comparison is in progress, begun by %s, until %s UTC: quell compare stop ends it", t.Comparison.By,
			t.Comparison.Until.UTC().Format(time.DateTime))
	case len(t.Overrides) > 0:
		return errors.New("a share is set for a time: wait until that ends")
	case turn < least:
		return fmt.Errorf("turns of %s are too short: at least %s are needed, twice what is not used of each", setting.FormatDuration(turn),
			setting.FormatDuration(least))
	case schedule.Turns < switchback.Least:
		return fmt.Errorf("%s have only %d turns of %s: at least %d are needed", setting.FormatDuration(cmd.For()), schedule.Turns,
			setting.FormatDuration(turn), switchback.Least)
	}
	t.Comparison = &Comparison{newTerm(c.now(), schedule.Length()), schedule, cmd.By, c.now()}
	return nil
}

func compareText(cmd bus.Command) string {
	if cmd.ForS == 0 {
		return "comparison ended by " + cmd.By
	}
	turn := time.Duration(cmd.TurnS * float64(time.Second))
	return fmt.Sprintf("comparison begun by %s for %s, in turns of %s, seed %d: in half of the turns, in random order, the shares are "+
		"those of before Quell", cmd.By, setting.FormatDuration(cmd.For()), setting.FormatDuration(turn), cmd.Seed)
}

// comparedTurn returns the turn of the comparison in progress, nil if there is none.
func (c *core) comparedTurn() *quell.Turn {
	x := c.mem.Temporary.Comparison
	if x == nil || !c.acting() {
		return nil
	}
	turn, _ := x.At(x.Began, x.Length()-x.left(c.now()))
	return turn
}

// handedBack returns whether the shares of before Quell are in force, for a turn.
func (c *core) handedBack() bool {
	turn := c.comparedTurn()
	return turn != nil && turn.Back
}
