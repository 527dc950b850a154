package record

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
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

// A release puts back the weight of before, takes away what Quell wrote, and leaves what a person wrote.
func TestRestore(t *testing.T) {
	const other = "server b:1;\n"
	for _, c := range []struct {
		why        string
		e          Entry
		line, want string
	}{
		{"Quell's weight", Entry{Base: 30, Weight: 4}, "server a:1 weight=4;\n", "server a:1 weight=30;\n"},
		{"Quell's down", Entry{Base: 30, Weight: 30, Down: true}, "server a:1 weight=30 down;\n", "server a:1 weight=30;\n"},
		{"Quell's line", Entry{Added: true, Weight: 4}, "server a:1 weight=4;\n", ""},
		{"a person's down", Entry{Base: 30, Weight: 4, ByHand: true}, "server a:1 weight=4 down;\n", "server a:1 weight=30 down;\n"},
		{"a person's down and weight", Entry{Base: 30, Weight: 4, ByHand: true}, "server a:1 weight=7 down;\n", "server a:1 weight=7 down;\n"},
		{"a person's down in Quell's line", Entry{Added: true, Weight: 4, ByHand: true}, "server a:1 weight=4 down;\n", ""},
		{"a line that is gone", Entry{Base: 30, Weight: 4, ByHand: true}, "", ""},
	} {
		path := filepath.Join(t.TempDir(), "web.conf")
		if err := os.WriteFile(path, []byte(c.line+other), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := include.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		edit := f.Edit()
		c.e.Restore(f.Find("a:1", func(string, string) bool { return false }), edit)
		if text, _ := edit.Text(); text != c.want+other {
			t.Errorf("%s: %q became %q", c.why, c.line+other, text)
		}
	}
}
