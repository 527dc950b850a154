package controller

import (
	"strings"

	"github.com/quellhq/quell"
)

// outcome is what became of a plan.
type outcome struct {
	changes []string // descriptions of what was changed
	applied bool     // the plan is in force now
	why     string   // why it was not applied; "failed: " and the error if it was tried
	would   []string // what would have been changed, if it was not tried
}

// idle returns why plans are not carried out at present, "" if they are.
func (c *core) idle() string {
	_, text := c.idleness()
	return text
}

// idleReasons are the codes of why plans are not carried out, as metrics show them.
var idleReasons = []string{"standing_by", "refused", "first_start", "memory_lost", "released", "paused", "advise"}

// idleness returns one of idleReasons, and the same in words.
func (c *core) idleness() (code, text string) {
	switch {
	case !c.leading:
		return "standing_by", "standing by"
	case c.refused != nil:
		return "refused", "refused by the balancer"
	case c.first:
		return "first_start", "not yet known whether this is a first start"
	case c.mem.Lost != "":
		return "memory_lost", "its memory is lost"
	case c.mem.Released != nil:
		return "released", "released by " + c.mem.Released.By
	case c.mem.Paused:
		return "paused", "paused by " + c.mem.PausedBy
	case c.opts.Service.Mode == quell.Advise:
		return "advise", "advise mode"
	}
	return "", ""
}

// tell logs a decision and its reasons if it changed something, or would have. A decision that equals the previous one is not logged again.
func (c *board) tell(plan *quell.Plan, o outcome) {
	text := strings.Join(o.changes, "; ")
	if len(o.would) > 0 {
		text = o.why + ": would " + strings.Join(o.would, "; ")
	}
	if text == "" || text == c.told || !c.leading {
		return
	}
	c.told = text
	c.log.Info("decision", "policy", plan.Policy, "what", text, "why", reasonsText(quell.ShownReasons(plan.Reasons, plan.At)))
}

func reasonsText(reasons []quell.Reason) string {
	parts := make([]string, len(reasons))
	for i, r := range reasons {
		parts[i] = r.Code + ": " + r.Text
		if r.Instance != "" {
			parts[i] = r.Code + " " + r.Instance + ": " + r.Text
		}
	}
	return strings.Join(parts, "; ")
}

// acting returns whether plans are carried out at present.
func (c *core) acting() bool { return c.idle() == "" }
