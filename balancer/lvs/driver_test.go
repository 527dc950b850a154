package lvs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/balancertest"
	"github.com/quellhq/quell/life"
)

// table is a fake of the kernel's table. It counts changes.
type table struct {
	services map[string]*service
	broken   error
	refuse   string // the address whose weight cannot be changed
	changes  []string
}

func (k *table) look(v virtual) (*service, error) {
	if k.broken != nil {
		return nil, k.broken
	}
	s := k.services[v.String()]
	if s == nil {
		return nil, errNoService
	}
	return &service{scheduler: s.scheduler, reals: slices.Clone(s.reals)}, nil
}

func (k *table) setWeight(v virtual, r *realServer, weight int) error {
	if r.address.String() == k.refuse {
		return errors.New("it is broken")
	}
	k.changes = append(k.changes, fmt.Sprintf("%s %s=%d", v, r.address, weight))
	k.put(v.String(), r.address.String(), weight)
	return nil
}

// put sets a weight as a person does; a weight of -1 removes the real server.
func (k *table) put(service, address string, weight int) {
	s := k.services[service]
	i := slices.IndexFunc(s.reals, func(r realServer) bool { return r.address.String() == address })
	if weight < 0 {
		s.reals = slices.Delete(s.reals, i, i+1)
		return
	}
	s.reals[i].weight = weight
}

func (k *table) weights(service string) (list []int) {
	for _, r := range k.services[service].reals {
		list = append(list, r.weight)
	}
	return list
}

const web = "10.0.0.1:80"

// newTable has a virtual service with three real servers.
func newTable() *table {
	s := &service{scheduler: "wlc"}
	for i := range 3 {
		s.reals = append(s.reals, realServer{address: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.1%d:80", i+1)), weight: 10, active: int64(i)})
	}
	return &table{services: map[string]*service{web: s}}
}

func members() (list []quell.Member) {
	for i := range 3 {
		list = append(list, quell.Member{ID: fmt.Sprintf("i%d", i+1), Address: fmt.Sprintf("10.0.0.1%d:80", i+1)})
	}
	return list
}

func backends(weights ...float64) (list []quell.Backend) {
	for i, w := range weights {
		list = append(list, quell.Backend{ID: members()[i].ID, Address: members()[i].Address, Weight: w, Draining: w < 0})
		list[i].Weight = max(0, w)
	}
	return list
}

// rig is a driver over a table, with its log.
type rig struct {
	*Driver
	*table
	t   *testing.T
	log strings.Builder
	o   Options
}

func newRig(t *testing.T, k *table, services ...string) *rig {
	t.Helper()
	r := &rig{table: k, t: t}
	if len(services) == 0 {
		services = []string{web}
	}
	r.o = Options{Services: services, Members: members(), Memory: filepath.Join(t.TempDir(), "lvs.json"),
		Logger: slog.New(slog.NewTextHandler(&r.log, nil))}
	r.restart()
	return r
}

// restart makes a new driver with the same memory.
func (r *rig) restart() {
	r.t.Helper()
	var err error
	if r.Driver, err = newDriver(r.o, r.table); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) apply(list []quell.Backend) {
	r.t.Helper()
	if err := r.Apply(context.Background(), list); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) states() map[string]quell.BackendState {
	r.t.Helper()
	list, err := r.State(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	found := map[string]quell.BackendState{}
	for _, s := range list {
		found[s.ID] = s
	}
	return found
}

// reconcile applies a list as often as the controller does: while the state differs. It fails if that does not end.
func (r *rig) reconcile(list []quell.Backend) {
	r.t.Helper()
	for range 3 {
		if !life.Differs(list, r.states()) {
			return
		}
		r.apply(list)
	}
	if life.Differs(list, r.states()) {
		r.t.Fatalf("the state still differs: %+v", r.states())
	}
}

func TestWeightsAreSetAndReadBack(t *testing.T) {
	r := newRig(t, newTable())
	before := r.states()
	if len(before) != 3 || !before["i1"].Foreign || before["i2"].Weight < 0.33 || before["i2"].Weight > 0.34 || before["i3"].InFlight != 2 {
		t.Errorf("before the first plan: %+v", before)
	}
	want := backends(0.5, 0.3, 0.2)
	r.reconcile(want)
	if got := r.weights(web); !slices.Equal(got, []int{100, 60, 40}) {
		t.Errorf("weights %v", got)
	}
	done := len(r.changes)
	r.apply(want)
	r.reconcile(want)
	if len(r.changes) != done {
		t.Errorf("the same plan changed %v", r.changes[done:])
	}
	r.restart()
	if s := r.states()["i1"]; s.Weight != 0.5 || s.Foreign || s.ByHand != nil || s.Address != "10.0.0.11:80" {
		t.Errorf("after a restart: %+v", s)
	}
	r.reconcile(want)
	if len(r.changes) != done {
		t.Errorf("a restart changed %v", r.changes[done:])
	}
}

// Equal weights are equal shares, whatever the numbers are.
func TestEqualSharesAreLeft(t *testing.T) {
	r := newRig(t, newTable())
	r.reconcile(backends(1./3, 1./3, 1./3))
	if len(r.changes) > 0 {
		t.Errorf("changed %v", r.changes)
	}
}

func TestWhatSomebodyElseChangesIsSetAgain(t *testing.T) {
	r := newRig(t, newTable())
	want := backends(0.5, 0.3, 0.2)
	r.reconcile(want)
	r.put(web, "10.0.0.12:80", 7)
	if !life.Differs(want, r.states()) {
		t.Error("the state does not show it")
	}
	r.reconcile(want)
	if got := r.weights(web); !slices.Equal(got, []int{100, 60, 40}) {
		t.Errorf("weights %v", got)
	}
	if !strings.Contains(r.log.String(), "somebody else changed the weight") || !strings.Contains(r.log.String(), "from=60 to=7") {
		t.Errorf("log: %s", r.log.String())
	}
}

func TestDrainIsWeightZero(t *testing.T) {
	r := newRig(t, newTable())
	r.reconcile(backends(0.5, -1, 0.5))
	s := r.states()["i2"]
	if got := r.weights(web); !slices.Equal(got, []int{10, 0, 10}) || !s.Draining || s.ByHand != nil || s.Held || s.InFlight != 1 {
		t.Errorf("weights %v, state %+v", got, s)
	}
	r.restart()
	if s := r.states()["i2"]; !s.Draining || s.ByHand != nil {
		t.Errorf("after a restart: %+v", s)
	}
	r.reconcile(backends(0.5, 0.25, 0.25))
	if got := r.weights(web); !slices.Equal(got, []int{100, 50, 50}) {
		t.Errorf("weights %v", got)
	}
	held := backends(0.5, -1, 0.5)
	held[1].Held = true
	r.reconcile(held)
	if s := r.states()["i2"]; !s.Held || s.ByHand != nil {
		t.Errorf("held by Quell's command: %+v", s)
	}
}

func TestWeightZeroOfAPersonIsHeld(t *testing.T) {
	r := newRig(t, newTable())
	want := backends(0.5, 0.3, 0.2)
	r.reconcile(want)
	r.put(web, "10.0.0.12:80", 0)
	for _, when := range []string{"at once", "after a restart"} {
		r.apply(want)
		r.reconcile(want)
		s := r.states()["i2"]
		if got := r.weights(web); got[1] != 0 || s.ByHand == nil || s.ByHand.By != "lvs" || s.Draining {
			t.Errorf("%s: weights %v, state %+v", when, got, s)
		}
		r.restart()
	}
	r.put(web, "10.0.0.12:80", 5) // the person puts it back
	r.reconcile(want)
	if got := r.weights(web); got[1] == 0 || r.states()["i2"].ByHand != nil {
		t.Errorf("put back: weights %v", got)
	}
	r.put(web, "10.0.0.12:80", 0)
	r.reconcile(want)
	if err := r.Release(t.Context(), "i2"); err != nil {
		t.Fatal(err)
	}
	r.apply(want)
	if got := r.weights(web); !slices.Equal(got, []int{100, 60, 40}) {
		t.Errorf("released: weights %v", got)
	}
	if err := r.Release(t.Context(), "i9"); err == nil {
		t.Error("released an instance that is not there")
	}
}

// A weight of 0 that was there before Quell is a person's if the group is fixed. The real server of an instance that has just started may
// have been added with the weight 0.
func TestWeightZeroBeforeTheFirstPlan(t *testing.T) {
	for _, c := range []struct {
		name string
		list []quell.Member
		held bool
	}{{"a fixed group", members(), true}, {"a group that grows", nil, false}} {
		k := newTable()
		k.put(web, "10.0.0.12:80", 0)
		r := newRig(t, k)
		r.o.Members = c.list
		r.restart()
		r.states()
		r.apply(backends(0.5, 0.3, 0.2))
		s := r.states()["i2"]
		if held := s.ByHand != nil; held != c.held || (r.weights(web)[1] == 0) != c.held {
			t.Errorf("%s: %+v, weights %v", c.name, s, r.weights(web))
		}
	}
}

// A real server that is deleted and added again with the weight 0 gets its weight in a group that grows. In a fixed group the 0 is a
// person's.
func TestARealServerThatIsAddedAgain(t *testing.T) {
	for name, list := range map[string][]quell.Member{"a fixed group": members(), "a group that grows": nil} {
		r := newRig(t, newTable())
		r.o.Members = list
		r.restart()
		want := backends(0.5, 0.3, 0.2)
		r.reconcile(want)
		r.put(web, "10.0.0.12:80", -1)
		r.states()
		r.restart()
		reals := &r.table.services[web].reals
		*reals = slices.Insert(*reals, 1, realServer{address: netip.MustParseAddrPort("10.0.0.12:80")})
		r.apply(want)
		r.apply(want)
		if held := r.states()["i2"].ByHand != nil; held != (list != nil) || (r.weights(web)[1] == 0) != held {
			t.Errorf("%s: held %v, weights %v; log:\n%s", name, held, r.weights(web), r.log.String())
		}
	}
}

func TestAnInstanceThatLeaves(t *testing.T) {
	r := newRig(t, newTable())
	r.reconcile(backends(0.5, 0.3, 0.2))
	r.reconcile(backends(0.5, 0.5))
	if got := r.weights(web); !slices.Equal(got, []int{100, 100, 0}) {
		t.Errorf("weights %v", got)
	}
	r.put(web, "10.0.0.13:80", -1)
	r.reconcile(backends(0.5, 0.5))
}

// If an instance has the real server of one that left, only its weight is set. That the server had the weight 0 because of the other one is
// no person's doing.
func TestAnotherInstanceTakesOverARealServer(t *testing.T) {
	renumbered := []quell.Member{{ID: "i1", Address: "10.0.0.12:80"}, {ID: "i2", Address: "10.0.0.13:80"}}
	renamed := []quell.Member{{ID: "i1", Address: "10.0.0.11:80"}, {ID: "other", Address: "10.0.0.12:80"}}
	for name, c := range map[string]struct {
		before []quell.Backend
		after  []quell.Member
	}{
		"the first left, and the list was renumbered": {backends(0.5, 0.3, 0.2), renumbered},
		"the same, and the last one drained":          {backends(0.5, 0.5, -1), renumbered},
		"the same, and the second one drained":        {backends(0.5, -1, 0.5), renumbered},
		"renamed":                                     {backends(0.5, 0.5), renamed},
	} {
		r := newRig(t, newTable())
		r.reconcile(c.before)
		r.o.Members = c.after
		r.restart()
		var want []quell.Backend
		for _, m := range c.after {
			want = append(want, quell.Backend{ID: m.ID, Address: m.Address, Weight: 0.5})
		}
		r.reconcile(want)
		states := r.states()
		for _, m := range c.after {
			if s := states[m.ID]; s.ByHand != nil || s.Weight != 0.5 {
				t.Errorf("%s: %+v, weights %v; log:\n%s", name, s, r.weights(web), r.log.String())
			}
		}
		if len(states) != 2 {
			t.Errorf("%s: %+v", name, states)
		}
	}
}

// The weights before Quell belong to the real servers: they stay what they were if an instance is renamed, or gets the real server of
// another one, and those of its own come back.
func TestTheFirstWeightOfARealServerThatChangesHands(t *testing.T) {
	for name, after := range map[string][]quell.Member{
		"renamed":    {{ID: "i1", Address: "10.0.0.11:80"}, {ID: "other", Address: "10.0.0.12:80"}, {ID: "i3", Address: "10.0.0.13:80"}},
		"renumbered": {{ID: "i1", Address: "10.0.0.12:80"}, {ID: "i2", Address: "10.0.0.13:80"}, {ID: "i3", Address: "10.0.0.11:80"}},
	} {
		k := newTable()
		first := []int{10, 20, 30}
		for i, w := range first {
			k.services[web].reals[i].weight = w
		}
		r := newRig(t, k)
		r.reconcile(backends(0.2, 0.3, 0.5))
		r.o.Members = after
		r.restart()
		var want []quell.Backend
		for i, m := range after {
			want = append(want, quell.Backend{ID: m.ID, Address: m.Address, Weight: []float64{0.5, 0.2, 0.3}[i]})
		}
		r.reconcile(want)
		for i, m := range after {
			base := float64(first[slices.Index([]string{"10.0.0.11:80", "10.0.0.12:80", "10.0.0.13:80"}, m.Address)]) / 20
			if s := r.states()[m.ID]; s.Base == nil || *s.Base != base || s.Weight != want[i].Weight {
				t.Errorf("%s: %+v, want base %g", name, s, base)
			}
		}
		if unknown, err := r.Restore(t.Context()); err != nil || len(unknown) > 0 || !slices.Equal(r.weights(web), first) {
			t.Errorf("%s: restored to %v, not known %v, %v", name, r.weights(web), unknown, err)
		}
	}
}

// If a virtual service is missing, the other one gets its weights, and the log names it once. If all are missing, that is an error, and
// nothing is changed, neither in the kernel nor in what is remembered. One that is made again gets its weights.
func TestAMissingVirtualService(t *testing.T) {
	const secure = "10.0.0.1:443"
	r := newRig(t, newTable(), web, secure)
	for range 2 {
		r.apply(backends(0.5, 0.3, 0.2))
	}
	if got := r.weights(web); !slices.Equal(got, []int{100, 60, 40}) {
		t.Errorf("weights %v", got)
	}
	if n := strings.Count(r.log.String(), "virtual service "+secure+": the kernel has no such virtual service: make it"); n != 1 {
		t.Errorf("said %d times:\n%s", n, r.log.String())
	}
	if s := r.states()["i2"]; s.Weight != 0.3 || s.Address == "" || !s.Healthy {
		t.Errorf("%+v", s)
	}
	there := r.table.services[web]
	before, err := os.ReadFile(r.o.Memory)
	if err != nil {
		t.Fatal(err)
	}
	delete(r.table.services, web)
	r.changes = nil
	for range 2 {
		err := r.Apply(t.Context(), backends(0.1, 0.9))
		_, read := r.State(t.Context())
		for _, err := range []error{err, read} {
			if err == nil || !strings.Contains(err.Error(), web) || !strings.Contains(err.Error(), secure) {
				t.Errorf("all are missing: %v", err)
			}
		}
	}
	if after, err := os.ReadFile(r.o.Memory); err != nil || string(after) != string(before) || len(r.changes) > 0 {
		t.Errorf("changed: %v; remembered:\n%s\nbefore:\n%s", r.changes, after, before)
	}
	other := &service{scheduler: "wrr"}
	for _, real := range there.reals {
		other.reals = append(other.reals, realServer{address: netip.AddrPortFrom(real.address.Addr(), 443), weight: 1})
	}
	r.table.services[web] = there
	if s := r.states()["i2"]; s.Weight != 0.3 {
		t.Errorf("the list that was refused counts: %+v", s)
	}
	r.table.services[secure] = other
	r.reconcile(backends(0.5, 0.3, 0.2))
	if a, b := r.weights(web), r.weights(secure); !slices.Equal(a, []int{100, 60, 40}) || !slices.Equal(b, a) {
		t.Errorf("weights %v and %v", a, b)
	}
}

func TestSeveralServices(t *testing.T) {
	k := newTable()
	secure := &service{scheduler: "wrr"}
	for _, r := range k.services[web].reals {
		secure.reals = append(secure.reals, realServer{address: netip.AddrPortFrom(r.address.Addr(), 443), weight: 1})
	}
	k.services["10.0.0.1:443"] = secure
	r := newRig(t, k, web, "10.0.0.1:443")
	want := backends(0.5, 0.3, 0.2)
	r.reconcile(want)
	if a, b := r.weights(web), r.weights("10.0.0.1:443"); !slices.Equal(a, b) || a[1] != 60 {
		t.Errorf("weights %v and %v", a, b)
	}
	r.put(web, "10.0.0.11:80", 0) // out here only: the instance goes on in the other service
	r.apply(want)
	if s := r.states()["i1"]; s.ByHand != nil || r.weights(web)[0] != 0 || r.weights("10.0.0.1:443")[0] == 0 {
		t.Errorf("%+v, %v", s, r.weights(web))
	}
	delete(k.services, web)
	r.apply(want)
	if !strings.Contains(r.log.String(), "no such virtual service") {
		t.Errorf("log: %s", r.log.String())
	}
}

func TestWhatIsMissing(t *testing.T) {
	r := newRig(t, newTable())
	r.put(web, "10.0.0.13:80", -1)
	r.apply(backends(0.5, 0.3, 0.2)) // the others get their weights
	if got := r.weights(web); !slices.Equal(got, []int{100, 60}) {
		t.Errorf("weights %v", got)
	}
	if !strings.Contains(r.log.String(), "has no real server 10.0.0.13:80 for i3: add it, for example with ipvsadm -a") {
		t.Errorf("log: %s", r.log.String())
	}
	if _, there := r.states()["i3"]; there {
		t.Error("an instance without a real server is shown")
	}
	refused := func(want string) {
		t.Helper()
		for _, err := range []error{r.Apply(t.Context(), backends(0.5, 0.5)), second(r.State(t.Context()))} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	delete(r.table.services, web)
	refused("10.0.0.1:80: the kernel has no such virtual service: make it")
	r.broken = errors.New("this machine's kernel has no IPVS")
	refused("has no IPVS")
}

func second[T any](_ T, err error) error { return err }

func TestAWeightThatCannotBeSet(t *testing.T) {
	r := newRig(t, newTable())
	r.refuse = "10.0.0.12:80"
	err := r.Apply(t.Context(), backends(0.5, 0.3, 0.2))
	if err == nil || !strings.Contains(err.Error(), "weight of 10.0.0.12:80 in virtual service 10.0.0.1:80: it is broken") {
		t.Errorf("%v", err)
	}
	if got := r.weights(web); !slices.Equal(got, []int{100, 10, 40}) {
		t.Errorf("weights %v", got)
	}
	r.refuse = ""
	r.reconcile(backends(0.5, 0.3, 0.2))
	if got := r.weights(web); !slices.Equal(got, []int{100, 60, 40}) {
		t.Errorf("weights %v", got)
	}
}

func TestBadLists(t *testing.T) {
	r := newRig(t, newTable())
	twice := append(backends(1), backends(1)...)
	unknown := []quell.Backend{{ID: "i1", Address: "10.0.0.99:80", Weight: 1}}
	for _, list := range [][]quell.Backend{twice, {{ID: "i1", Address: "nowhere", Weight: 1}}, unknown} {
		if err := r.Apply(t.Context(), list); err == nil {
			t.Errorf("took %+v", list)
		}
	}
	if len(r.changes) > 0 {
		t.Errorf("changed %v", r.changes)
	}
}

func TestADamagedMemory(t *testing.T) {
	r := newRig(t, newTable())
	for _, text := range []string{"{", "[{}]", `[{"id":"i1","address":"a:1","numeric":"nowhere"}]`, `[{"unknown":1}]`} {
		if err := os.WriteFile(r.o.Memory, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := newDriver(r.o, r.table); err == nil || !strings.Contains(err.Error(), "is damaged: delete it") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSchedulersWithoutWeightsAreReportedOnce(t *testing.T) {
	k := newTable()
	k.services[web].scheduler = "rr"
	r := newRig(t, k)
	r.states()
	r.states()
	if n := strings.Count(r.log.String(), "does not share requests by weights"); n != 1 {
		t.Errorf("reported %d times: %s", n, r.log.String())
	}
}

// TestPlansAreReached checks that any plan after any edits by others is in force after a few rounds, except for what others hold.
func TestPlansAreReached(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, newTable())
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			shares := make([]float64, 3)
			for i := range shares {
				shares[i] = rapid.SampledFrom([]float64{-1, 0, 0.01, 0.2, 0.5, 1}).Draw(rt, "share")
			}
			if rapid.Bool().Draw(rt, "restart") {
				r.restart()
			}
			if rapid.Bool().Draw(rt, "edit") {
				r.put(web, members()[rapid.IntRange(0, 2).Draw(rt, "which")].Address, rapid.SampledFrom([]int{0, 1, 65535}).Draw(rt, "weight"))
			}
			want := backends(shares...)
			r.reconcile(want)
			r.apply(want)
			for i, s := range shares {
				st, w := r.states()[members()[i].ID], r.weights(web)[i]
				if st.ByHand == nil && (w == 0) != (s <= 0) || st.ByHand != nil && w != 0 {
					rt.Fatalf("share %v has the weight %d: %+v", s, w, st)
				}
			}
		}
	})
}

// An instance's real server in another virtual service may have another port, if it is the only one on its machine, and no other instance
// is there.
func TestRealServersOfAMachine(t *testing.T) {
	s := &service{}
	for _, a := range []string{"10.0.0.1:80", "10.0.0.1:81", "10.0.0.2:443", "10.0.0.3:1", "10.0.0.3:2", "10.0.0.3:3", "10.0.0.5:80"} {
		s.reals = append(s.reals, realServer{address: netip.MustParseAddrPort(a)})
	}
	s.index(map[netip.Addr]bool{netip.MustParseAddr("10.0.0.5"): true})
	for address, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1:80", "10.0.0.1:81": "10.0.0.1:81", "10.0.0.1:82": "", "10.0.0.2:80": "10.0.0.2:443", "10.0.0.3:9": "",
		"10.0.0.4:80": "", "10.0.0.5:80": "10.0.0.5:80", "10.0.0.5:81": "",
	} {
		got := ""
		if r := s.find(netip.MustParseAddrPort(address)); r != nil {
			got = r.address.String()
		}
		if got != want {
			t.Errorf("%s: found %q, want %q", address, got, want)
		}
	}
}

// shareMachine has two instances on one machine, and one on another.
func shareMachine(t *testing.T, members bool) (*rig, []quell.Backend) {
	t.Helper()
	s, list := &service{scheduler: "wlc"}, []quell.Backend(nil)
	for i, a := range []string{"10.0.0.11:80", "10.0.0.11:81", "10.0.0.12:80"} {
		s.reals = append(s.reals, realServer{address: netip.MustParseAddrPort(a), weight: 10})
		list = append(list, quell.Backend{ID: fmt.Sprintf("i%d", i+1), Address: a, Weight: 1. / 3})
	}
	r := newRig(t, &table{services: map[string]*service{web: s}})
	r.o.Members = nil
	for _, b := range list {
		if members {
			r.o.Members = append(r.o.Members, quell.Member{ID: b.ID, Address: b.Address})
		}
	}
	r.restart()
	return r, list
}

// If the real server of one of two instances on a machine is deleted, the other instance keeps its own, whatever happens to the first.
func TestTheRealServerOfANeighbourIsLeft(t *testing.T) {
	for name, c := range map[string]func(list []quell.Backend) []quell.Backend{
		"stays":  func(list []quell.Backend) []quell.Backend { return list },
		"drains": func(list []quell.Backend) []quell.Backend { list[1].Draining, list[1].Weight = true, 0; return list },
		"leaves": func(list []quell.Backend) []quell.Backend { return slices.Delete(list, 1, 2) },
	} {
		for _, members := range []bool{false, true} {
			r, list := shareMachine(t, members)
			r.reconcile(list)
			r.put(web, "10.0.0.11:81", -1)
			list = c(list)
			for range 3 {
				r.apply(list)
				r.states()
			}
			if s := r.states(); len(r.changes) > 0 || s["i1"].ByHand != nil || len(s) != 2 {
				t.Errorf("%s: changed %v, states %+v", name, r.changes, s)
			}
		}
	}
}

// Before the first plan, an instance of a fixed group whose real server is missing does not show another instance's.
func TestTheRealServerOfANeighbourIsNotShown(t *testing.T) {
	r, list := shareMachine(t, true)
	r.put(web, "10.0.0.11:81", -1)
	if s := r.states(); len(s) != 2 || s["i2"].Address != "" {
		t.Errorf("%+v", s)
	}
	list[0], list[1] = list[1], list[0] // the one that is missing comes first
	if r.apply(list); !strings.Contains(r.log.String(), "has no real server 10.0.0.11:81 for i2") {
		t.Errorf("log: %s", r.log.String())
	}
}

// BenchmarkTenThousand applies a plan to ten thousand real servers, and reads it back.
func BenchmarkTenThousand(b *testing.B) {
	const many = 10_000
	s := &service{scheduler: "wlc"}
	var list []quell.Backend
	for i := range many {
		a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
		s.reals = append(s.reals, realServer{address: a, weight: 1})
		list = append(list, quell.Backend{ID: fmt.Sprint(i), Address: a.String(), Weight: float64(1+i%7) / (4 * many)})
	}
	d, err := newDriver(Options{Services: []string{web}}, &indexed{table{services: map[string]*service{web: s}}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := d.Apply(b.Context(), list); err != nil {
			b.Fatal(err)
		}
		if states, err := d.State(b.Context()); err != nil || len(states) != many {
			b.Fatal(len(states), err)
		}
	}
}

// indexed is a table whose changes take no time, however large it is.
type indexed struct{ table }

func (k *indexed) setWeight(virtual, *realServer, int) error { return nil }

func TestVirtualServices(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1:80", "tcp:10.0.0.1:80": "10.0.0.1:80", "udp:10.0.0.1:53": "udp:10.0.0.1:53", "[fd00::1]:80": "[fd00::1]:80",
		"sctp:[fd00::1]:80": "sctp:[fd00::1]:80", "fwmark:7": "fwmark:7", "fwmark6:7": "fwmark6:7", "[::ffff:10.0.0.1]:80": "10.0.0.1:80",
		"": "", "80": "", "web:80": "", "10.0.0.1": "", "10.0.0.1:http": "", "10.0.0.1:70000": "", "icmp:10.0.0.1:1": "",
		"fwmark:0": "", "fwmark:": "", "fwmark:-1": "", "fwmark:4294967296": "", "[fe80::1%eth0]:80": "",
	} {
		v, err := parseVirtual(text)
		if (err == nil) != (want != "") || err == nil && v.String() != want {
			t.Errorf("%s: %v, %v", text, v, err)
		}
	}
}

func TestNoService(t *testing.T) {
	for _, o := range []Options{{}, {Services: []string{"nowhere"}}} {
		if _, err := New(o); !errors.As(err, new(*quell.UserError)) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	s := &Settings{Services: []string{web}}
	d, err := s.New(balancer.Service{Data: t.TempDir()})
	if err != nil || d == nil || s.Where() != web || len(s.Parts(balancer.Service{})) != 1 {
		t.Errorf("%v, %v", d, err)
	}
}

func TestContract(t *testing.T) {
	k := newTable()
	k.services[web].reals = append(k.services[web].reals, realServer{address: netip.MustParseAddrPort("10.0.0.99:80"), weight: 10})
	r := newRig(t, k)
	r.o.Members = nil
	open := func() balancer.Driver { r.restart(); return r.Driver }
	balancertest.Contract(t, open, []string{"10.0.0.11:80", "10.0.0.12:80", "10.0.0.13:80"}, 0)
}
