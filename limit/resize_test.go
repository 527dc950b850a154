package limit

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

// cluster plays the API server for one container.
type cluster struct {
	millis int64
	pod    uint64 // 0: gone
	ours   bool
	writes int
	fails  error // of writes
	lost   bool  // answers of writes get lost
}

func (c *cluster) Limit(string) (int64, uint64, error) {
	if c.pod == 0 {
		return 0, 0, fmt.Errorf("the pod is gone: %w", fs.ErrNotExist)
	}
	return c.millis, c.pod, nil
}

func (c *cluster) SetLimit(_ string, from, to int64) error {
	if c.fails != nil || from != c.millis {
		return errors.Join(c.fails, fmt.Errorf("from %d, but it is %d", from, c.millis))
	}
	c.millis, c.ours, c.writes = to, true, c.writes+1
	if c.lost {
		return errors.New("no answer")
	}
	return nil
}

func (c *cluster) Ours(string) bool { return c.ours }

// edit is a change by somebody else.
func (c *cluster) edit(millis int64) { c.millis, c.ours = millis, false }

func resized(processors float64) map[Target]float64 {
	return map[Target]float64{{Group: "shop/web-1/web", Resource: quell.CPU, Form: Resize}: processors}
}

// abandon lets go of all records as a killed process does.
func (l *Limits) abandon() {
	for _, h := range l.held {
		_ = h.file.Close()
	}
}

func TestResize(t *testing.T) {
	c := &cluster{millis: 2000, pod: 1}
	o := Options{Records: t.TempDir(), Containers: c}
	check := func(what string, want int64, errs map[Target]error, parts ...string) {
		t.Helper()
		for _, part := range parts {
			wantOne(t, errs, part)
		}
		if len(parts) == 0 && len(errs) > 0 || c.millis != want {
			t.Errorf("%s: %v, limit %dm, want %dm", what, errs, c.millis, want)
		}
	}
	l := New(o)
	check("a limit", 500, l.Apply(resized(0.5)))
	check("the same", 500, l.Apply(resized(0.5)))
	if c.writes != 1 {
		t.Errorf("%d writes", c.writes)
	}
	check("more than was there", 2000, l.Apply(resized(3)))
	check("next to nothing", LeastMillis, l.Apply(resized(1e-6)))
	check("none", 2000, l.Apply(nil))

	check("before a kill", 700, l.Apply(resized(0.7)))
	l.abandon()
	if _, err := Show(Options{Records: o.Records}); err == nil || !strings.Contains(err.Error(), "quell agent --node") {
		t.Errorf("shown elsewhere: %v", err)
	}
	if done, err := Restore(o); len(done) != 1 || err != nil || c.millis != 2000 {
		t.Errorf("restored %v, %v: %dm", done, err, c.millis)
	}

	l = New(o)
	check("before an edit", 700, l.Apply(resized(0.7)))
	c.edit(900)
	errs := l.Apply(resized(0.7))
	check("an edit", 900, errs, "somebody else changed it")
	for _, err := range errs {
		if !errors.Is(err, ErrChanged) {
			t.Errorf("no ErrChanged: %v", err)
		}
	}
	check("after an edit", 600, l.Apply(resized(0.6)))
	l.abandon()
	c.edit(800) // while no agent runs
	if done, err := Restore(o); len(done) != 0 || err != nil || c.millis != 800 {
		t.Errorf("an edit was replaced: %v, %v: %dm", done, err, c.millis)
	}

	l = New(o)
	c.fails = errors.New("no right")
	check("a write that fails", 800, l.Apply(resized(0.5)), "no right")
	c.fails, c.lost = nil, true
	check("an answer that gets lost", 500, l.Apply(resized(0.5)), "no answer")
	c.lost = false
	check("afterwards", 400, l.Apply(resized(0.4)))
	if before, ok := l.Before(Target{Group: "shop/web-1/web", Resource: quell.CPU, Form: Resize}); !ok || before != 0.8 {
		t.Errorf("before: %v, %v", before, ok)
	}
	c.pod = 2 // it was made again
	c.edit(2000)
	check("another pod", 500, l.Apply(resized(0.5)))
	c.pod = 0
	check("no pod", 500, l.Apply(nil))
	check("no name", 500, l.Apply(map[Target]float64{{Group: "/web", Resource: quell.CPU, Form: Resize}: 1}), "NAMESPACE/POD/CONTAINER")
}
