// Package host runs a policy over the control groups of the agent's machine, inside the agent. It needs no controller and no bus: readings,
// decisions and memory stay on the machine.
package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/sensor"
)

// Reader reads the machine and its control groups. The first call of Sample only sets the starting point. *sensor.Groups is a Reader.
type Reader interface {
	Sample(now time.Time) (quell.Snapshot, []sensor.Failure)
	// Subsample is called several times between two samples.
	Subsample(now time.Time)
}

var _ Reader = (*sensor.Groups)(nil)

// Limiter limits control groups, which it knows by the names that the Reader gave them in the last snapshot.
type Limiter interface {
	// Apply makes these limits the only ones of this process that are in force. It returns, by group, why a limit is not.
	Apply(limits []quell.Limit) map[string]error
}

// Options configure a loop.
type Options struct {
	Host    string        // name of the machine
	Period  time.Duration // between two snapshots, each of which gets one plan
	Policy  quell.Policy  // one snapshot and one plan each
	Reader  Reader
	Limiter Limiter               // nil: plans with limits are refused
	Home    *Home                 // used by several loops, one after the other
	Now     func() time.Time      // nil means time.Now
	Logger  *slog.Logger          // nil is silent
	Metrics prometheus.Registerer // nil registers none
}

// Loop reads and decides once per period. No failure ends it.
type Loop struct {
	opts      Options
	engine    *policy.HostEngine
	failures  *prometheus.CounterVec // counts, by part
	state     policy.State
	unread    map[string]*outage.Log // by what could not be read
	unlimited map[string]*outage.Log // by the group whose limit is not in force
	keeping   map[string]*outage.Log // failures of writing the journal and the memory
	written   string                 // reasons and refused parts of the last plan in the journal
	kept      time.Time
	decisions int
	problems  map[string]string
	beat      tick.Beat // of the loop in Run
}

// The parts of a loop that can fail, as metrics and status name them.
const (
	readPart    = "read"
	guardPart   = "guard"
	limitPart   = "limit"
	journalPart = "journal"
	memoryPart  = "memory"
)

// New checks o, loads the memory from its home, and registers the metrics.
func New(o Options) (*Loop, error) {
	if o.Host == "" || o.Period <= 0 || o.Reader == nil || o.Home == nil {
		return nil, errors.New("a host's loop needs Host, Period, Reader and Home")
	}
	engine, err := table.All.NewHostEngine(o.Policy)
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	l := &Loop{opts: o, engine: engine, unread: map[string]*outage.Log{}, unlimited: map[string]*outage.Log{},
		keeping: map[string]*outage.Log{}, problems: map[string]string{}}
	for _, part := range []string{journalPart, memoryPart} {
		l.keeping[part] = &outage.Log{Logger: o.Logger, What: "the host policy's " + part}
	}
	l.failures = newFailures()
	if err := register(o.Metrics, l.failures, collector{o.Home}); err != nil {
		return nil, fmt.Errorf("registering the host policy's metrics: %w", err)
	}
	return l, nil
}

// Run reads and decides until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	state, err := l.opts.Home.remember()
	l.state = state
	if err != nil {
		l.failures.WithLabelValues(memoryPart).Inc()
		l.opts.Logger.Warn("beginning with an empty memory", "error", err)
		l.write(bus.Entry{At: l.opts.Now(), Kind: bus.EventEntry, Text: err.Error()})
	}
	l.write(bus.Entry{At: l.opts.Now(), Kind: bus.EventEntry,
		Text: fmt.Sprintf("policy %s runs on %s, every %v", l.opts.Policy.Name, l.opts.Host, l.opts.Period)})
	_, failures := l.opts.Reader.Sample(l.opts.Now()) // sets the starting point
	l.opts.Home.shown.Store(&Status{Host: l.opts.Host, Policy: l.opts.Policy.Name, SamplingS: l.opts.Period.Seconds(),
		Unread: l.tell(failures)})
	l.beat.Mark()
	for l.wait(ctx) {
		l.step()
		l.beat.Mark()
	}
	l.keep(time.Time{})
	return nil
}

// Alive returns an error if the loop of Run hangs. It comes round once per period.
func (l *Loop) Alive() error { return l.beat.Late(3*l.opts.Period + time.Minute) }

// wait waits for the end of the period. Meanwhile the reader takes subsamples of the groups ten times, but not more often than every 50 ms.
func (l *Loop) wait(ctx context.Context) bool {
	subsamples := tick.Subsamples{Look: l.opts.Reader.Subsample, Every: max(l.opts.Period*2/21, 50*time.Millisecond), Now: l.opts.Now}
	begin := l.opts.Now()
	return subsamples.Until(ctx, begin.Add(tick.Until(begin, l.opts.Period)))
}

// step reads and decides once.
func (l *Loop) step() {
	now := l.opts.Now()
	snapshot, failures := l.opts.Reader.Sample(now)
	snapshot.Host = l.opts.Host
	plan, state := l.engine.Decide(&snapshot, l.state)
	l.state = state
	l.decisions++
	refused := l.refused(&plan)
	var failed map[string]string
	if len(refused) > 0 {
		l.failures.WithLabelValues(guardPart).Inc()
	} else {
		failed = l.limit(plan.Limits)
	}
	l.record(plan, refused, failed)
	l.keep(now)
	l.opts.Home.shown.Store(&Status{
		Host: l.opts.Host, Policy: l.opts.Policy.Name, SamplingS: l.opts.Period.Seconds(), At: snapshot.At, Decisions: l.decisions,
		Machine: snapshot.Machine, Groups: snapshot.Instances, Plan: &plan, Refused: refused, NotLimited: failed, Unread: l.tell(failures),
		Problems: l.troubles(),
	})
}

// limit puts a plan's limits in force, and returns why some are not, by group. It logs when such a failure begins and when it ends.
func (l *Loop) limit(limits []quell.Limit) map[string]string {
	if l.opts.Limiter == nil {
		return nil
	}
	failed := l.opts.Limiter.Apply(limits)
	l.failures.WithLabelValues(limitPart).Add(float64(len(failed)))
	return reported(l.unlimited, "limiting group ", failed, l.opts.Logger)
}

// refused lists the parts of a plan that nothing in the agent carries out. If there are any, the plan is an error and no part of it is
// carried out.
func (l *Loop) refused(p *quell.Plan) []quell.Part {
	return slices.DeleteFunc(p.Asks(), func(part quell.Part) bool { return part == quell.LimitsPart && l.opts.Limiter != nil })
}

func words(parts []quell.Part) string {
	list := make([]string, len(parts))
	for i, part := range parts {
		list[i] = string(part)
	}
	return strings.Join(list, ", ")
}

// record writes a plan to the journal if its reasons, its refused parts or the groups whose limits are not in force differ from those of
// the last one.
func (l *Loop) record(plan quell.Plan, refused []quell.Part, failed map[string]string) {
	unlimited := strings.Join(slices.Sorted(maps.Keys(failed)), ", ")
	named := words(refused)
	if unlimited != "" {
		named += "\nnot limited: " + unlimited
	}
	for _, r := range plan.Reasons {
		named += "\n" + r.Code + " " + r.Instance
	}
	if named == l.written {
		return
	}
	e := bus.Entry{At: plan.At, Kind: bus.PlanEntry, Plan: &plan, Applied: len(refused) == 0 && len(failed) == 0}
	switch {
	case len(refused) > 0:
		e.Why = "failed: nothing in the agent carries out " + words(refused)
	case len(failed) > 0:
		e.Why = "failed: the limits of " + unlimited + " are not in force: quell status --local says why"
	}
	if l.write(e) {
		l.written = named
	}
}

// write appends to the journal and returns whether that worked. If the disk is full, only the entry is lost.
func (l *Loop) write(e bus.Entry) bool { return l.report(journalPart, l.opts.Home.journal.append(e)) }

// keep writes the memory, at most once per second. If now is zero, it writes in any case.
func (l *Loop) keep(now time.Time) {
	if !now.IsZero() && now.Sub(l.kept) < time.Second && !now.Before(l.kept) {
		return
	}
	l.kept = now
	l.report(memoryPart, l.opts.Home.keep(l.state))
}

func (l *Loop) report(part string, err error) bool {
	l.keeping[part].Report(err)
	if err == nil {
		delete(l.problems, part)
		return true
	}
	l.failures.WithLabelValues(part).Inc()
	l.problems[part] = err.Error()
	return false
}

// troubles returns a copy of the present failures.
func (l *Loop) troubles() map[string]string {
	if len(l.problems) == 0 {
		return nil
	}
	list := make(map[string]string, len(l.problems))
	for part, text := range l.problems {
		list[part] = text
	}
	return list
}

// tell returns what could not be read, and why.
func (l *Loop) tell(failures []sensor.Failure) map[string]string {
	l.failures.WithLabelValues(readPart).Add(float64(len(failures)))
	list := map[string]error{}
	for _, f := range failures {
		list[f.Sensor] = f.Err
	}
	return reported(l.unread, "reading ", list, l.opts.Logger)
}

// reported returns the texts of the present failures; nil if there are none. It logs when a failure begins and when it ends.
func reported(logs map[string]*outage.Log, what string, failures map[string]error, log *slog.Logger) map[string]string {
	var list map[string]string
	for name, err := range failures {
		quell.Put(&list, name, err.Error())
		if logs[name] == nil {
			logs[name] = &outage.Log{Logger: log, What: what + name}
		}
		logs[name].Report(err)
	}
	for name, one := range logs {
		if _, failed := failures[name]; !failed {
			one.Report(nil)
			delete(logs, name)
		}
	}
	return list
}

// Status is what the agent's socket returns about a host's policy.
type Status struct {
	Host      string             `json:"host"`
	Policy    string             `json:"policy"`
	SamplingS float64            `json:"sampling_s"`
	At        time.Time          `json:"at,omitzero"` // when the last decision was made; absent before the first
	Decisions int                `json:"decisions"`
	Machine   *quell.Observation `json:"machine,omitempty"`
	Groups    []quell.Instance   `json:"groups,omitempty"`
	Plan      *quell.Plan        `json:"plan,omitempty"`
	Refused   []quell.Part       `json:"refused,omitempty"` // parts of the plan that the agent cannot carry out

	NotLimited map[string]string `json:"not_limited,omitempty"` // groups whose limits are not in force, and why

	Unread   map[string]string `json:"unread,omitempty"`   // what cannot be read, and why
	Problems map[string]string `json:"problems,omitempty"` // other present failures: journal, memory
}

// ReasonOf returns the plan's text about a group, "" if there is none.
func (s Status) ReasonOf(group string) string {
	if s.Plan == nil {
		return ""
	}
	i := slices.IndexFunc(s.Plan.Reasons, func(r quell.Reason) bool { return r.Instance == group })
	if i < 0 {
		return ""
	}
	return s.Plan.Reasons[i].Text
}
