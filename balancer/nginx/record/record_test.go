package record

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/nginx/include"
)

// A line that differs from what Quell wrote was changed by a person.
func TestNotice(t *testing.T) {
	line := func(weight int, down bool) *include.Server {
		return &include.Server{Address: "a:1", Weight: weight, Down: down}
	}
	b := quell.Backend{ID: "a", Address: "a:1", Weight: 1}
	for _, c := range []struct {
		why    string
		before *Entry
		change func(*Entry)
		now    *include.Server
		byHand bool
		base   int
		says   string
	}{
		{"as it was", Of(b, line(3, false), true), nil, line(3, false), false, 3, ""},
		{"another weight", Of(b, line(3, false), true), nil, line(5, false), false, 5, "from=3 to=5"},
		{"taken out", Of(b, line(3, false), true), nil, line(3, true), true, 3, "somebody took"},
		{"removed", Of(b, line(3, false), true), nil, nil, true, 3, "somebody took"},
		{"out before Quell", Of(b, line(3, true), true), nil, line(3, true), true, 3, ""},
		{"out before Quell, in a group that changes", Of(b, line(3, true), false), nil, line(3, true), false, 3, ""},
		{"back", Of(b, line(3, true), true), nil, line(3, false), false, 3, "is back"},
		{"Quell's own down", Of(b, line(3, false), true), func(e *Entry) { e.Down = true }, line(3, true), false, 3, ""},
		{"Quell's own line was removed", Of(b, nil, true), nil, nil, false, 0, ""},
		{"it leaves", Of(b, line(3, false), true), func(e *Entry) { e.Leaving = true }, nil, false, 3, ""},
		{"a change that may not be in force", Of(b, line(3, false), true), func(e *Entry) { e.Wrote(5, true) }, line(4, true), false, 3, ""},
		{"released", Of(b, line(3, true), true), (*Entry).Release, line(3, true), false, 3, ""},
	} {
		if c.change != nil {
			c.change(c.before)
		}
		var said bytes.Buffer
		c.before.Notice(c.now, slog.New(slog.NewTextHandler(&said, nil)))
		if e := c.before; e.ByHand != c.byHand || e.Base != c.base {
			t.Errorf("%s: %+v", c.why, e)
		}
		if !strings.Contains(said.String(), c.says) || c.says == "" && said.Len() > 0 {
			t.Errorf("%s: the log says %q", c.why, said.String())
		}
	}
}
