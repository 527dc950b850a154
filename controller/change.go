package controller

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/setting"
)

// orders are what people change.
type orders struct{ *endings }

func replyWith(v any) bus.Reply {
	body, err := json.Marshal(v)
	if err != nil {
		return bus.Reply{Error: err.Error()}
	}
	return bus.Reply{Body: body}
}

// change changes the memory, stores it and records an event. If the memory cannot be stored, the change is undone.
func (c *orders) change(ctx context.Context, text string, alter func(ctx context.Context) error) bus.Reply {
	c.work.Lock()
	defer c.release()
	return c.changeNow(ctx, text, alter)
}

// changeNow is change for a caller that holds c.work.
func (c *orders) changeNow(ctx context.Context, text string, alter func(ctx context.Context) error) bus.Reply {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	if !c.leads(ctx) {
		return c.notLeading()
	}
	before := c.mem
	if err := alter(ctx); err != nil {
		return bus.Reply{Error: err.Error()}
	}
	c.mem.Orders++
	err := c.save(ctx)
	late, noMark := errors.Is(err, bus.ErrLater), errors.As(err, new(*markError))
	if err != nil && !late && !noMark && !errors.Is(err, bus.ErrStoreClosed) {
		c.mem = before
		return bus.Reply{Error: err.Error()}
	}
	c.event(ctx, text)
	c.fleet.Stuck.Urge()
	if err != nil { // a full disk must not prevent a pause, so the memory is stored later
		c.unsaved = err
		c.failed("memory", err)
		until, then := "there is disk space", "a restart would forget it"
		switch {
		case late:
			until = "the bus stores it"
		case noMark:
			then = "a loss of the memory would not be noticed"
		}
		text += "; it is in force, but until " + until + " " + then
	}
	return replyWith(map[string]string{"done": text})
}

// leads returns whether this controller leads now. It asks for the lease before a command is carried out: a process that was frozen for
// longer than its lease still remembers that it leads, and what it remembers is old. One that stands by takes no lease for a command.
func (c *orders) leads(ctx context.Context) bool {
	if c.leading {
		c.askLease(ctx)
	}
	return c.leading
}

// forText says for how long a command changes something, "" if that has no end.
func forText(cmd bus.Command) string {
	if cmd.ForS == 0 {
		return ""
	}
	return " for " + setting.FormatDuration(cmd.For())
}
