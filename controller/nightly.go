package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/redline"
)

// nights makes red-line tests by night.
type nights struct {
	*endings
	night       *nightTest // a test in progress in this process
	nightWaits  string     // why there is none, in its window
	stepped     time.Time  // when the last step began
	clockWasSet bool       // during the present window of such tests
}

// byNight is who sets the shares of a test that the configuration asks for.
const byNight = "the nightly red-line test"

const (
	// rest is how long an instance's test counts as that of the night. It is longer than any window, and is measured by the monotonic clock,
	// so that a clock that is set back does not repeat a night.
	rest = 18 * time.Hour
	// leastPeriods is how many sampling periods a test should have until the window ends.
	leastPeriods = 30
	// felt is the severity at which another instance's neighbours are in the way of a test. Single readings are often a little above 0.
	felt = 0.3
	// clockSet is the least change of the wall clock after which the rest of a window is not used: it may be day.
	clockSet = time.Minute
)

// Tested is a test of an instance that the configuration asked for.
type Tested struct {
	Instance string    `json:"instance"`
	At       time.Time `json:"at"`             // when it began
	Rest     Term      `json:"rest"`           // for how long it counts as that of the night
	Text     string    `json:"text,omitempty"` // what was found; empty: it is in progress, or was lost with its controller
}

// NightlyStatus is what the status says of red-line tests by night.
type NightlyStatus struct {
	Window   string    `json:"window"`
	Next     time.Time `json:"next"`               // when the window begins next
	Instance string    `json:"instance,omitempty"` // that is tested now
	Waits    string    `json:"waits,omitempty"`    // in the window: what is in the way
	Tested   []Tested  `json:"tested,omitempty"`   // the last test of each instance, the oldest first
}

// nightTest is a test in progress.
type nightTest struct {
	test   *redline.Test
	id     string
	orders int // operators' orders when it began
}

// testByNight begins, continues or ends the test of an instance that the configuration asks for.
func (c *nights) testByNight(r *round) {
	if c.nightWaits = ""; !c.leading {
		c.night = nil // the leader ends the share
		return
	}
	s := *r.view.snapshot
	s.Instances = slices.Clone(s.Instances)
	s.Set(c.mem.overrides())
	c.mem.forgetTested(c.now(), &s)
	if c.night == nil {
		if c.endShareByNight(r.limited) {
			c.mem.foundByNight("interrupted: its controller ended")
		}
		c.beginByNight(r.limited, &s)
		return
	}
	t := c.night
	if why := c.hinders(&s, t.id); why != "" {
		t.test.Stop(why)
		c.endByNight(r.limited)
		return
	}
	move := t.test.Next(redline.Period{Snapshot: &s, Severity: c.severityOf(t.id)})
	c.keepRows(move.Level)
	if move.Done {
		c.endByNight(r.limited)
		return
	}
	c.shareByNight(move.Share)
}

// hinders returns what is in the way of a test, "" if nothing is. tested is the instance whose test is in progress, "" if there is none.
func (c *nights) hinders(s *quell.Snapshot, tested string) string {
	cfg := c.opts.Service.Redline
	_, inside := cfg.Nightly.Left(c.now())
	switch t := &c.mem.Temporary; {
	case !inside:
		return "the window is over"
	case c.clockWasSet:
		return "the clock was set during this window, so it may be day"
	case c.idle() != "":
		return "nothing is changed now: " + c.idle()
	case c.night != nil && c.night.orders != c.mem.Orders:
		return "an operator gave an order"
	case t.Comparison != nil:
		return "a comparison is in progress"
	case len(c.mem.Replacing) > 0:
		return fmt.Sprintf("%s is being replaced", c.mem.Replacing[0].Old)
	case s.Coming > 0:
		return fmt.Sprintf("%d instance(s) are coming", s.Coming)
	}
	for _, id := range slices.Sorted(maps.Keys(c.mem.overrides())) {
		if id != tested {
			return "the share of " + id + " is set by hand"
		}
	}
	rows := make(map[string]*InstanceStatus, len(c.status.Instances)) // of the last decision
	for i := range c.status.Instances {
		rows[c.status.Instances[i].ID] = &c.status.Instances[i]
	}
	for i := range s.Instances {
		if why := unfit(&s.Instances[i], rows[s.Instances[i].ID], tested); why != "" {
			return why
		}
	}
	return ""
}

// unfit returns why no test is made in a group with this instance.
func unfit(in *quell.Instance, row *InstanceStatus, tested string) string {
	switch {
	case in.Held != nil:
		return in.ID + " is out of rotation by " + in.Held.By
	case in.State != quell.Ready:
		return fmt.Sprintf("%s is %s", in.ID, in.State)
	case row == nil || row.Stale || row.Missing != nil || row.Health != "" || in.Observation == nil:
		return in.ID + " is missing, or nothing was measured there"
	case tested != in.ID && row.Severity != nil && *row.Severity > felt:
		return fmt.Sprintf("%s has neighbours: severity %.2f", in.ID, *row.Severity)
	case tested == "" && row.MissedSince != nil:
		return in.ID + " misses the objective"
	}
	return ""
}

func (c *nights) severityOf(id string) *float64 {
	for i := range c.status.Instances {
		if c.status.Instances[i].ID == id {
			return c.status.Instances[i].Severity
		}
	}
	return nil
}

// beginByNight begins a test if it is time and nothing is in the way.
func (c *nights) beginByNight(ctx context.Context, s *quell.Snapshot) {
	cfg := c.opts.Service.Redline
	left, inside := cfg.Nightly.Left(c.now())
	if !inside {
		c.clockWasSet = false // the next window counts again
		return
	}
	if left < min(leastPeriods*c.opts.Service.Sampling, cfg.Nightly.Length()/2) {
		c.nightWaits = "the window is nearly over"
		return
	}
	id, why := c.turnOf(s)
	if id == "" {
		c.nightWaits = why
		return
	}
	if c.nightWaits = c.hinders(s, ""); c.nightWaits != "" {
		return
	}
	severity := c.severityOf(id)
	switch {
	case severity == nil:
		c.nightWaits = "it is not known whether " + id + " has neighbours"
	case *severity > redline.Quiet:
		c.nightWaits = fmt.Sprintf("%s has neighbours: severity %.2f", id, *severity)
	}
	if c.nightWaits != "" {
		return
	}
	o := redline.Options{Instance: id, SLO: c.opts.Service.SLO, Risk: cfg.Risk}
	test, err := redline.New(o, redline.Period{Snapshot: s, Severity: severity})
	if err != nil {
		c.nightWaits = err.Error()
		return
	}
	c.night = &nightTest{test: test, id: id, orders: c.mem.Orders}
	c.mem.enterTested(Tested{Instance: id, At: c.now(), Rest: newTerm(c.now(), rest)})
	c.remember(ctx) // before the first share is set: a controller that is killed does not begin again
	c.event(ctx, fmt.Sprintf("a red-line test of %s begins, as redline.nightly allows from %s", id, cfg.Nightly))
}

// turnOf returns the instance whose turn it is, or why nobody's is: those that were never tested first, then the one whose test is oldest.
func (c *nights) turnOf(s *quell.Snapshot) (id, why string) {
	cfg, now := c.opts.Service.Redline, c.now()
	places, tonight := map[string]int{}, 0
	for i, t := range c.mem.Temporary.Tested {
		if places[t.Instance] = i + 1; !t.Rest.over(now) {
			places[t.Instance] = -1
			tonight++
		}
	}
	if tonight >= cfg.Tests {
		return "", fmt.Sprintf("%d of %d test(s) of this night were made", tonight, cfg.Tests)
	}
	for i := range s.Instances {
		other := s.Instances[i].ID
		if len(cfg.Instances) > 0 && !slices.Contains(cfg.Instances, other) || places[other] < 0 {
			continue
		}
		if id == "" || places[other] < places[id] || places[other] == places[id] && other < id {
			id = other
		}
	}
	if id == "" {
		why = "no instance is left to be tested this night"
	}
	return id, why
}

// enterTested replaces what is known of an instance's tests by this one.
func (m *memory) enterTested(t Tested) {
	others := slices.DeleteFunc(slices.Clone(m.Temporary.Tested), func(x Tested) bool { return x.Instance == t.Instance })
	m.Temporary.Tested = append(others, t)
}

// forgetTested forgets instances that are gone, when their night is over.
func (m *memory) forgetTested(now time.Time, s *quell.Snapshot) {
	m.Temporary.Tested = slices.DeleteFunc(slices.Clone(m.Temporary.Tested), func(t Tested) bool {
		return t.Rest.over(now) && !slices.ContainsFunc(s.Instances, func(in quell.Instance) bool { return in.ID == t.Instance })
	})
}

// shareByNight sets or renews the share of the test in progress. It ends by itself if the controller is killed.
func (c *nights) shareByNight(share float64) {
	c.mem.setFor(c.night.id, TemporaryOverride{newTerm(c.now(), redline.Lasts(c.opts.Service.Sampling)), share, byNight})
}

// endByNight ends the test in progress, puts the shares of before back, and records what was found.
func (c *nights) endByNight(ctx context.Context) {
	t := c.night
	c.night = nil
	result := t.test.Result()
	text := result.Text(c.opts.Service.SLO)
	c.mem.foundByNight(text)
	c.endShareByNight(ctx)
	c.remember(ctx)
	c.event(ctx, "red-line test by night: "+text)
}

// foundByNight notes what the last test found.
func (m *memory) foundByNight(text string) {
	tested := slices.Clone(m.Temporary.Tested)
	if n := len(tested); n > 0 {
		tested[n-1].Text = text
	}
	m.Temporary.Tested = tested
}

// endShareByNight ends the share that a test set, and puts those of before back at once. It returns whether there was one.
func (c *nights) endShareByNight(ctx context.Context) (was bool) {
	t := &c.mem.Temporary
	for _, id := range slices.Sorted(maps.Keys(t.Overrides)) {
		if t.Overrides[id].By == byNight {
			t.endOverride(id)
			was = true
		}
	}
	c.goBack(ctx)
	return was
}

// keepRows stores a level's training rows.
func (c *nights) keepRows(level *redline.Level) {
	if level == nil || c.opts.Rows == nil {
		return
	}
	if err := c.opts.Rows(level.Rows()); err != nil {
		c.failed("rows", err)
	}
}

// nightly is what the status says of tests by night, nil if there are none.
func (c *nights) nightly() *NightlyStatus {
	cfg := c.opts.Service.Redline
	if cfg.Nightly.Length() == 0 {
		return nil
	}
	s := &NightlyStatus{Window: cfg.Nightly.String(), Next: cfg.Nightly.Next(c.now()), Waits: c.nightWaits, Tested: c.mem.Temporary.Tested}
	if c.night != nil {
		s.Instance = c.night.id
	}
	return s
}

// Rows stores training rows.
type Rows func(rows []model.TrainingRow) error
