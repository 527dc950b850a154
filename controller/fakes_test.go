package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/rivals"
	"github.com/quellhq/quell/policy/table"
)

var errBroken = errors.New("it is broken")

// fault is the misbehaviour of a fake.
type fault struct {
	mu   sync.Mutex
	err  error
	hang bool // does not answer before the caller's time limit
}

func (f *fault) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fault) setHang(hang bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hang = hang
}

func (f *fault) strike(ctx context.Context) error {
	f.mu.Lock()
	err, hang := f.err, f.hang
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
	}
	return cmp.Or(err, context.Cause(ctx)) // as drivers that run programs or ask over HTTP
}

type fakeBalancer struct {
	mu       sync.Mutex
	fault    fault // fault of both methods
	refuse   fault // fault of Apply only
	backends []quell.Backend
	sick     map[string]bool
	why      string // the failing checks' result
	inFlight map[string]int64
	byHand   map[string]quell.Held // a person took these out at the balancer
	lost     map[string]bool       // somebody deleted these, and Apply does not bring them back
	foreign  bool                  // the backends were there before Quell
	vague    map[string]bool       // these are not in force everywhere: State gives no address
	base     map[string]float64    // the weights that people gave them
	applied  [][]quell.Backend
	amid     func(*fakeBalancer) // called when State is asked for the second time
	asked    int                 // since amid was set
}

func (b *fakeBalancer) Apply(ctx context.Context, backends []quell.Backend) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := errors.Join(b.fault.strike(ctx), b.refuse.strike(ctx)); err != nil {
		return err
	}
	b.backends = slices.Clone(backends)
	b.applied = append(b.applied, b.backends)
	return nil
}

func (b *fakeBalancer) State(ctx context.Context) ([]quell.BackendState, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asked++; b.asked == 2 && b.amid != nil {
		b.amid(b)
	}
	if err := b.fault.strike(ctx); err != nil {
		return nil, err
	}
	var states []quell.BackendState
	for _, x := range b.backends {
		if b.lost[x.ID] {
			continue
		}
		s := quell.BackendState{Backend: x, Healthy: !b.sick[x.ID], Health: b.why, InFlight: b.inFlight[x.ID]}
		s.Foreign = b.foreign
		if b.vague[x.ID] {
			s.Address = ""
		}
		if base, ok := b.base[x.ID]; ok {
			s.Base = &base
		}
		if held, ok := b.byHand[x.ID]; ok {
			s.ByHand = &held
		}
		states = append(states, s)
	}
	return states, nil
}

func (b *fakeBalancer) Release(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byHand, id)
	return nil
}

// set changes the balancer directly, not through the controller.
func (b *fakeBalancer) set(change func(*fakeBalancer)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

func (b *fakeBalancer) weights() map[string]float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	weights := map[string]float64{}
	for _, x := range b.backends {
		weights[x.ID] = x.Weight
	}
	return weights
}

func (b *fakeBalancer) applies() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.applied)
}

func (b *fakeBalancer) backend(id string) (quell.Backend, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.backends, func(x quell.Backend) bool { return x.ID == id })
	if i < 0 {
		return quell.Backend{}, false
	}
	return b.backends[i], true
}

// fakeScaler's instances are ready at once, unless slow is set.
type fakeScaler struct {
	mu       sync.Mutex
	fault    fault
	stop     fault
	refuses  map[string]bool // Stop refuses a call that names one of these, and stops nothing
	half     func()          // what happens in the next Stop, which then fails
	report   error
	slow     bool
	later    bool          // Start returns no ids, and the list has them only after appear
	hangs    bool          // Start starts the instances, as if later were set, and hangs until it is ended
	ordered  int           // if later is set: number of instances ordered by Start
	stays    bool          // stopped instances are still listed
	stopTake time.Duration // duration of Stop
	stopWait time.Duration // the same, and Stop is cut short when its context ends
	members  []quell.Member
	next     int
	starts   []int
	stopped  []string
	drained  []string // that the controller said so of
}

func (s *fakeScaler) Drained(ids []string) {
	s.set(func(s *fakeScaler) { s.drained = ids })
}

func (s *fakeScaler) Members(ctx context.Context) ([]quell.Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.members), s.fault.strike(ctx)
}

func (s *fakeScaler) Start(ctx context.Context, n int) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fault.strike(ctx); err != nil {
		return nil, err
	}
	s.starts = append(s.starts, n)
	if s.later || s.hangs {
		s.ordered += n
	}
	if s.hangs {
		<-ctx.Done()
		return nil, &quell.UnsureError{Err: fmt.Errorf("starting %d: %w", n, ctx.Err())}
	}
	if s.later {
		return nil, nil
	}
	var ids []string
	for range n {
		ids = append(ids, s.add())
	}
	return ids, nil
}

// appear lists n of the ordered instances.
func (s *fakeScaler) appear(n int) {
	s.set(func(s *fakeScaler) {
		for range n {
			s.add()
		}
		s.ordered -= n
	})
}

func (s *fakeScaler) add() string {
	s.next++
	state := quell.Ready
	if s.slow {
		state = quell.Starting
	}
	id := fmt.Sprintf("i%d", s.next)
	s.members = append(s.members, quell.Member{ID: id, Address: fmt.Sprintf("10.0.0.%d:80", s.next), State: state, Started: time.Now()})
	return id
}

func (s *fakeScaler) Stop(ctx context.Context, ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = append(s.stopped, ids...)
	if s.stopTake > 0 {
		s.mu.Unlock()
		time.Sleep(s.stopTake)
		s.mu.Lock()
	}
	if s.stopWait > 0 {
		s.mu.Unlock()
		tick.Sleep(ctx, s.stopWait)
		s.mu.Lock()
	}
	if err := s.stop.strike(ctx); err != nil {
		return err
	}
	if half := s.half; half != nil {
		s.half = nil
		half()
		return errBroken
	}
	if i := slices.IndexFunc(ids, func(id string) bool { return s.refuses[id] }); i >= 0 {
		return fmt.Errorf("%s is protected against termination", ids[i])
	}
	if !s.stays {
		s.members = slices.DeleteFunc(s.members, func(m quell.Member) bool { return slices.Contains(ids, m.ID) })
	}
	return nil
}

func (s *fakeScaler) Report() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report
}

func (s *fakeScaler) set(change func(*fakeScaler)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *fakeScaler) state(id string, state quell.State) {
	s.set(func(s *fakeScaler) {
		for i := range s.members {
			if s.members[i].ID == id {
				s.members[i].State = state
			}
		}
	})
}

func (s *fakeScaler) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := []string{}
	for _, m := range s.members {
		ids = append(ids, m.ID)
	}
	return ids
}

func (s *fakeScaler) ended() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.stopped)
}

type fakeJournal struct {
	mu        sync.Mutex
	fault     fault
	entries   []bus.Entry
	snapshots []quell.Snapshot
}

func (j *fakeJournal) Append(ctx context.Context, e bus.Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.fault.strike(ctx); err != nil {
		return err
	}
	j.entries = append(j.entries, e)
	return nil
}

func (j *fakeJournal) AppendSnapshot(ctx context.Context, s quell.Snapshot) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.fault.strike(ctx); err != nil {
		return err
	}
	j.snapshots = append(j.snapshots, s)
	return nil
}

func (j *fakeJournal) plans() (plans []bus.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		if e.Kind == bus.PlanEntry {
			plans = append(plans, e)
		}
	}
	return plans
}

func (j *fakeJournal) events() (texts []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		if e.Kind == bus.EventEntry {
			texts = append(texts, e.Text)
		}
	}
	return texts
}

func (j *fakeJournal) newest() quell.Snapshot {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.snapshots[len(j.snapshots)-1]
}

type fakeMemory struct {
	mu     sync.Mutex
	fault  fault
	later  int // so many values are only kept in memory, and lost
	values map[string][]byte
}

func (m *fakeMemory) Put(ctx context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fault.strike(ctx); err != nil {
		return err
	}
	if m.later > 0 {
		m.later--
		return bus.ErrLater
	}
	m.values[key] = slices.Clone(value)
	return nil
}

func (m *fakeMemory) Get(ctx context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fault.strike(ctx); err != nil {
		return nil, err
	}
	value, ok := m.values[key]
	if !ok {
		return nil, fmt.Errorf("nothing under %s: %w", key, quell.ErrNoData)
	}
	return value, nil
}

func testService() quell.Service {
	s := quell.DefaultService()
	s.Name = "shop"
	s.SLO = quell.SLO{Metric: quell.Mean, Threshold: 75 * time.Millisecond}
	s.Sampling = time.Second
	s.Policy.Name = "static"
	s.Group.Min, s.Group.Max = 2, 5
	s.Guard.StaleAfter = 0 // most tests send no readings
	return s
}

// rig is a controller with fakes, in synthetic time.
type rig struct {
	t        *testing.T
	balancer *fakeBalancer
	scaler   *fakeScaler
	journal  *fakeJournal
	memory   *fakeMemory
	agents   *fakeAgents
	opts     Options
	c        *Controller
	stop     func()
}

// play runs body in synthetic time with a controller whose options change may alter. The controller does not run yet.
func play(t *testing.T, change func(*rig), body func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			t: t, journal: &fakeJournal{}, memory: &fakeMemory{values: map[string][]byte{}}, scaler: &fakeScaler{},
			agents:   &fakeAgents{values: map[string]float64{}, fault: map[string]error{}},
			balancer: &fakeBalancer{sick: map[string]bool{}, inFlight: map[string]int64{}, byHand: map[string]quell.Held{}},
		}
		r.opts = Options{Policies: table.All,
			Service: testService(), Balancer: r.balancer, Scaler: r.scaler, Journal: r.journal, Memory: r.memory,
			Drain: 10 * time.Second,
		}
		if change != nil {
			change(r)
		}
		defer r.kill()
		r.restart()
		body(r)
	})
}

// restart makes another controller that uses the same fakes, as after a crash.
func (r *rig) restart() {
	r.t.Helper()
	r.kill()
	c, err := New(r.opts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.c = c
}

func (r *rig) kill() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// run starts the loop and lets it run for a while: until just after a step, for a whole number of periods.
func (r *rig) run(d time.Duration) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.c.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("the loop ended with %v", err)
		}
	}
	r.pass(d + tick.Settle(r.opts.Service.Sampling))
}

// pass lets time pass.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) step() {
	r.c.Step(context.Background())
	synctest.Wait()
}

func (r *rig) ask(cmd bus.Command) bus.Reply {
	cmd.By = "ann"
	return r.c.Command(context.Background(), cmd)
}

func (r *rig) do(cmd bus.Command) {
	r.t.Helper()
	if reply := r.ask(cmd); reply.Error != "" {
		r.t.Fatalf("%s was refused: %s", cmd.Name, reply.Error)
	}
}

func (r *rig) wantWeights(want map[string]float64) {
	r.t.Helper()
	got := r.balancer.weights()
	same := maps.EqualFunc(got, want, func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 })
	if !same {
		r.t.Fatalf("weights %v, want %v", got, want)
	}
}

func (r *rig) wantIDs(want ...string) {
	r.t.Helper()
	if got := r.scaler.ids(); !slices.Equal(got, want) {
		r.t.Fatalf("instances %v, want %v", got, want)
	}
}

// untouched checks that body changes nothing at the balancer or the scaler.
func (r *rig) untouched(body func()) {
	r.t.Helper()
	starts := func() int { r.scaler.mu.Lock(); defer r.scaler.mu.Unlock(); return len(r.scaler.starts) }
	applies, started, stopped := r.balancer.applies(), starts(), len(r.scaler.ended())
	body()
	if a, b, c := r.balancer.applies()-applies, starts()-started, len(r.scaler.ended())-stopped; a+b+c > 0 {
		r.t.Fatalf("%d times Apply, %d times Start, %d instances stopped: nothing should have been touched", a, b, c)
	}
}

func remembered(t *testing.T, m *fakeMemory) (mem memory) {
	t.Helper()
	data, err := m.Get(context.Background(), memoryKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.read(table.All, data); err != nil {
		t.Fatal(err)
	}
	return mem
}

func at(v float64) *float64 { return &v }

// amended returns a policy, to whose plans more adds, and the policy that decides while too little is known for it.
func amended[S any](spec policy.Spec[S], more func(*policy.Group, *quell.Plan)) policy.Table {
	decide := spec.Decide
	spec.Decide = func(in *policy.Input, settings S, g *policy.Group, st *policy.State) quell.Plan {
		plan := decide(in, settings, g, st)
		more(g, &plan)
		return plan
	}
	return policy.NewTable(spec.Row(), rivals.Static.Row())
}
