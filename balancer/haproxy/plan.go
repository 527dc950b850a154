package haproxy

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/quellhq/quell/balancer"
)

// target is the wanted state of a server.
type target struct {
	server   string
	address  string // ip:port
	named    string // the address as given, perhaps host:port
	share    float64
	weight   int
	draining bool
	leaving  bool // being removed: it gets no new requests, and is removed when the last one has ended
	overdue  bool // leaving, and its time to drain is over
	waited   bool // draining for as long as a server may
	added    bool // not declared in HAProxy's configuration: added and deleted at run time
	drained  bool // drained by the last Apply, perhaps of an earlier controller
	person   bool // it drains because a person asked Quell for it
	known    bool // the last Apply asked for it
	begins   bool // in a new HAProxy process it is in maintenance or missing: a slot, or an added server
	traces   []*trace
}

// serves returns whether the target gets a share of the requests.
func (t *target) serves() bool { return !t.draining && !t.leaving }

// idle returns whether Quell wants the server to get no new requests.
func (t *target) idle() bool { return !t.serves() || t.known && t.weight == 0 }

// view is the state of the backend in one HAProxy.
type view struct {
	info    info
	index   int // of the process
	how     scheduling
	servers map[string]*server
	order   []string
	sum     float64 // of the weights that have a part in the shares: see addUp
}

// command is a line for the runtime API, with the answer that means success.
type command struct {
	text string
	ok   func(answer string) bool
	// later marks a command that HAProxy may refuse for now. It is tried again later.
	later bool
}

func silent(answer string) bool { return answer == "" }

func saying(words ...string) func(string) bool {
	return func(answer string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(answer, word) })
	}
}

// commands lists the commands that bring a HAProxy from its present state (view) to the targets. There are none if they agree. absent is an
// error about servers that this HAProxy lacks and that cannot be added.
func commands(v *view, targets []target, o *Options) (todo []command, absent error) {
	b := builder{backend: o.Backend, parameters: o.Server, number: v.largestNumber()}
	weigh := !faithful(v, targets)
	for _, t := range targets {
		s := v.servers[t.server]
		switch {
		case s == nil && t.leaving:
		case s == nil && t.added:
			b.add(&t, v)
		case s == nil:
			absent = fmt.Errorf("backend %s has no server %s: declare it in HAProxy's configuration", o.Backend, t.server)
		case t.leaving:
			b.remove(&t, s)
		case t.placeless(s):
			absent = placeless(o.Backend, s)
		case t.held(v):
			b.leave(&t, s, v)
		default:
			b.change(&t, s, weigh)
		}
	}
	return b.all, absent
}

// faithful returns whether the weights in force give the shares as precisely as the best whole numbers would. Such weights are not changed,
// even if they are other numbers.
func faithful(v *view, targets []target) bool {
	var shares []float64
	var have, want []int
	for i := range targets {
		t := &targets[i]
		if !t.serves() || t.held(v) {
			continue
		}
		s := v.servers[t.server]
		switch {
		case s == nil && t.added:
			return false // it is added with a weight of the new scale, so all weights are set
		case s == nil:
			continue
		}
		shares, have, want = append(shares, t.share), append(have, s.weight), append(want, t.weight)
	}
	return balancer.AsPrecise(have, want, shares)
}

// weights returns the weights of the servers that serve, by name.
func (v *view) weights(targets []target) map[string]int {
	at := map[string]int{}
	for i := range targets {
		t := &targets[i]
		if s := v.servers[t.server]; s != nil && t.serves() && !t.held(v) {
			at[t.server] = s.weight
		}
	}
	return at
}

// placeless returns whether a server is a place of a server-template that is not used as a slot: it has no address, or the address of
// none and is disabled.
func (t *target) placeless(s *server) bool {
	if s == nil || t.begins || t.leaving {
		return false
	}
	a, err := netip.ParseAddrPort(s.address)
	return s.address == "" || err == nil && a.Addr().IsUnspecified() && s.forced() == maintState
}

// placeless is the error about such a server.
func placeless(backend string, s *server) error {
	prefix := strings.TrimRight(s.name, "0123456789")
	return fmt.Errorf("server %s of backend %s has no address: if it is of a server-template, set balancer.haproxy.slots: %s, and declare "+
		"the template as docs/balancers/haproxy.md shows for slots", s.name, backend, prefix)
}

// inForce returns whether a server is as requested, apart from its weight.
func inForce(s *server, t *target) bool {
	return (s.forced() != "") == t.draining && (t.draining || !s.isDraining() && !s.inMaint()) && t.isAt(s)
}

// isAt returns whether a server has the target's address. If HAProxy itself resolves the name that the target has, the addresses are not
// compared.
func (t *target) isAt(s *server) bool {
	return sameAddress(s.address, t.address) || s.fqdn != "" && net.JoinHostPort(s.fqdn, s.port) == t.named
}

// sameAddress compares addresses by value, not by spelling.
func sameAddress(one, other string) bool {
	if one == other {
		return true
	}
	a, errA := netip.ParseAddrPort(one)
	b, errB := netip.ParseAddrPort(other)
	return errA == nil && errB == nil && a.Addr().Unmap() == b.Addr().Unmap() && a.Port() == b.Port()
}

type builder struct {
	backend, parameters string
	number              int64 // the largest number of a server so far
	all                 []command
}

// largestNumber is the largest number (HAProxy's `id`) of a server in the backend.
func (v *view) largestNumber() (n int64) {
	for _, s := range v.servers {
		n = max(n, s.number)
	}
	return n
}

func (b *builder) set(server, what string) {
	b.all = append(b.all, command{text: fmt.Sprintf("set server %s/%s %s", b.backend, server, what), ok: silent})
}

// add adds commands that register a server. The server starts in maintenance, and its health checks are off until they are enabled.
// Its number is given: HAProxy before 3.0 places a server that has none at the same points of the ring from which `balance random` and
// consistent hashing choose, so that all of them but one get no requests (haproxy/haproxy issue 3413).
func (b *builder) add(t *target, v *view) {
	b.number++
	weight, byHand := t.weight, t.byHand(v)
	if t.zeroed(v) {
		weight = 0
	}
	line := fmt.Sprintf("add server %s/%s %s %s weight %d id %d", b.backend, t.server, t.address, b.parameters, weight, b.number)
	b.all = append(b.all, command{text: line, ok: saying("New server registered")})
	if strings.Contains(" "+b.parameters+" ", " check ") {
		b.all = append(b.all, command{text: fmt.Sprintf("enable health %s/%s", b.backend, t.server), ok: silent})
	}
	if byHand != "" {
		b.set(t.server, "state "+byHand)
	} else {
		b.state(t)
	}
}

func (b *builder) state(t *target) {
	if t.draining {
		b.set(t.server, "state drain")
	} else {
		b.set(t.server, "state ready")
	}
}

// change adds commands that correct the server's address and weight, and only then let requests in.
func (b *builder) change(t *target, s *server, weigh bool) {
	b.move(t, s)
	if weigh && t.serves() && s.weight != t.weight {
		b.set(t.server, fmt.Sprintf("weight %d", t.weight))
	}
	if state := s.forced(); t.draining && state == "" || !t.draining && state != "" {
		b.state(t)
	}
}

// leave corrects the address of a server that is out of service for a reason that is not Quell's. It corrects the server's state and weight
// only if a new process lost what a person set, or if Quell itself took the server out before.
func (b *builder) leave(t *target, s *server, v *view) {
	b.move(t, s)
	if byHand := t.byHand(v); s.forced() != byHand {
		b.set(t.server, "state "+cmp.Or(byHand, "ready"))
	}
	if t.zeroed(v) && s.weight > 0 {
		b.set(t.server, "weight 0")
	}
}

func (b *builder) move(t *target, s *server) {
	if t.isAt(s) {
		return
	}
	if a, err := netip.ParseAddrPort(t.address); err == nil {
		b.set(t.server, fmt.Sprintf("addr %s port %d", a.Addr(), a.Port()))
		b.all[len(b.all)-1].ok = saying("changed from", "no need to change")
	}
}

// remove drains the server. It removes the server when a later read shows that the last request has ended.
func (b *builder) remove(t *target, s *server) {
	empty := s.isDraining() && s.sessions == 0 || t.overdue
	switch {
	case !s.inMaint() && !empty:
		if !s.isDraining() {
			b.set(t.server, "state drain")
		}
		return
	case !s.inMaint():
		b.set(t.server, "state maint")
	}
	if t.overdue && s.sessions > 0 {
		b.all = append(b.all, command{text: fmt.Sprintf("shutdown sessions server %s/%s", b.backend, t.server), ok: silent})
	}
	if t.added {
		b.all = append(b.all, command{text: fmt.Sprintf("del server %s/%s", b.backend, t.server), ok: saying("Server deleted", "No such server"),
			later: true})
	}
}
