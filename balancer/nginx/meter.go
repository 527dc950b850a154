package nginx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/balancer/measure"
	"github.com/quellhq/quell/internal/logsocket"
	"github.com/quellhq/quell/internal/tick"
)

// meter makes readings of a driver's instances from nginx's log. nginx has no counters of its servers, so a request counts when it ends.
type meter struct {
	driver  *Driver
	in      balancer.Service
	health  health.Options
	log     net.PacketConn // nil: there is none
	publish func([]quell.Reading)
	pace    measure.Pace
	cancel  context.CancelFunc
	running sync.WaitGroup
	watch   balancer.ClassWatch
	long    map[string]*measure.Stretch // since the sampling period began
	ever    bool                        // lines have arrived

	mu      sync.Mutex // guards what follows
	heard   heard
	problem error // why not everything was measured in the last period
}

// heard is what arrived in the log in one window.
type heard struct {
	servers map[netip.AddrPort]*tally
	lines   int64  // in the right format
	other   int64  // in another one
	sample  string // the first of them
}

type tally struct {
	*measure.Tally
	open time.Duration // summed time of all requests
}

// mostServers limits memory. It is exceeded only by servers of other upstreams.
const mostServers = 4096

func newMeter(d *Driver, s *Settings, in balancer.Service, publish func([]quell.Reading)) (*meter, error) {
	m := &meter{driver: d, in: in, health: s.Health, publish: publish, heard: newHeard(), long: map[string]*measure.Stretch{}}
	m.pace.Set(in.Period, in.Fast)
	if s.Log == "" {
		m.problem = errors.New("balancer.nginx.log is not set, and nginx counts no response times: set it, and add the access_log line of " +
			"docs/balancers/nginx.md")
		return m, nil
	}
	var err error
	m.log, err = logsocket.Listen(s.Log, "nginx")
	return m, err
}

func newHeard() heard { return heard{servers: map[netip.AddrPort]*tally{}} }

// Pace implements balancer.Meter.
func (m *meter) Pace(period, fast time.Duration) { m.pace.Set(period, fast) }

// Err implements balancer.Meter.
func (m *meter) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.problem
}

// Stop implements balancer.Meter.
func (m *meter) Stop() { m.cancel(); m.running.Wait() }

// run publishes readings at the end of every period until ctx ends, then closes the log.
func (m *meter) run(ctx context.Context) {
	defer m.driver.watch(ctx, m.health)()
	if m.log == nil {
		<-ctx.Done()
		return
	}
	var reader sync.WaitGroup
	reader.Go(m.listen)
	defer reader.Wait()
	defer m.log.Close()
	began, period := time.Now(), newHeard()
	for tick.Sleep(ctx, tick.Until(time.Now(), m.pace.Shortest())) {
		now := time.Now()
		h := m.take()
		m.window(ctx, &h, now, now.Sub(began))
		began = now
		period.lines, period.other = period.lines+h.lines, period.other+h.other
		if period.sample == "" {
			period.sample = h.sample
		}
		if !m.pace.Fast() || m.pace.Ends(now) {
			m.judge(ctx, &period)
			period = newHeard()
		}
	}
}

// take ends the log's present window.
func (m *meter) take() heard {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.heard
	m.heard = newHeard()
	return h
}

// judge finds out whether everything was measured in a period.
func (m *meter) judge(ctx context.Context, h *heard) {
	var problem error
	switch {
	case h.other > 0:
		problem = fmt.Errorf("%d of %d lines of nginx's log are not in the format quell: give the access_log of balancer.nginx.log that "+
			"format; the first was %q", h.other, h.lines+h.other, shorten(h.sample))
	case h.lines > 0:
		m.ever = true
	case !m.ever && m.driver.busy(ctx):
		problem = errors.New("nginx has connections to the instances, and no line of its log arrived: check that access_log sends the format " +
			"quell to balancer.nginx.log")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problem = problem
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 120 {
		return string(r[:120]) + "..."
	}
	return s
}

func (m *meter) listen() {
	buffer := make([]byte, logsocket.MaxDatagram)
	for {
		n, _, err := m.log.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			m.hear(buffer[:n])
		}
	}
}

// hear counts one message of the log.
func (m *meter) hear(message []byte) {
	l, err := parseLine(message)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.heard.other++; m.heard.sample == "" {
			m.heard.sample = string(message)
		}
		return
	}
	m.heard.lines++
	attempts := l.given()
	for i := range attempts {
		t := m.heard.of(attempts[i].server, m.in.Classes)
		if t == nil {
			continue
		}
		if i < len(attempts)-1 {
			t.passed(&attempts[i], m.in.FirstByte)
		} else {
			m.finish(t, &l, &attempts[i], i > 0)
		}
	}
}

// of returns the counts of a server; nil if there are too many, or if it has no address.
func (h *heard) of(server string, classes balancer.Classes) *tally {
	a, err := netip.ParseAddrPort(server)
	if err != nil {
		return nil
	}
	a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	if h.servers[a] == nil && len(h.servers) < mostServers {
		h.servers[a] = &tally{Tally: measure.New(classes.Names()...)}
	}
	return h.servers[a]
}

// passed counts an attempt after which nginx asked another server.
func (t *tally) passed(a *attempt, firstByte bool) {
	if !a.connected {
		t.Moved++
		return
	}
	took := a.all
	if firstByte {
		took = a.first
	}
	t.Arrived++
	t.Answered++
	t.open += a.all
	t.Finish(a.verdict(), "", took)
}

// finish counts a request at the server that was the last to get it.
func (m *meter) finish(t *tally, l *logged, a *attempt, moved bool) {
	class := m.in.Classes.Of(l.target)
	e := l.ending(a, moved)
	e.Aside, e.FirstByte = m.in.Classes.Aside(class), m.in.FirstByte
	took := a.all
	if m.in.FirstByte {
		took = a.first
	}
	t.Arrived++
	t.Answered++
	t.open += a.all
	if a.connected {
		t.Connect(a.connect)
	}
	verdict := measure.Judge(e)
	t.Finish(verdict, class, took)
	if class != "" && verdict != measure.Nothing {
		t.Class(class).Arrived++
	}
}

// window publishes the readings of a window, and at the end of a sampling period also those of the whole period.
func (m *meter) window(ctx context.Context, h *heard, now time.Time, length time.Duration) {
	fast := m.pace.Fast()
	ends := !fast || m.pace.Ends(now)
	var short, whole []quell.Reading
	arrived := map[string]int64{}
	for id, addresses := range m.driver.instances(ctx) {
		t := h.join(addresses, m.in.Classes)
		meanOpen := t.open.Seconds() / length.Seconds()
		if fast {
			short = append(short, m.reading(id, true, func() (quell.Reading, error) { return t.Reading(now.UTC(), length, meanOpen) }))
		}
		if m.long[id] == nil {
			m.long[id] = &measure.Stretch{}
		}
		m.long[id].Add(t.Tally, length, meanOpen)
		for class, n := range t.Arrivals() {
			arrived[class] += n
		}
		if ends {
			whole = append(whole, m.reading(id, false, func() (quell.Reading, error) { return m.long[id].Reading(now.UTC()) }))
		}
	}
	if fast {
		m.publish(byID(short))
	}
	for _, mistake := range m.watch.Add(m.in.Classes, arrived) {
		m.in.Logger.Warn(mistake)
	}
	if ends {
		m.publish(byID(whole))
		clear(m.long)
	}
}

func byID(list []quell.Reading) []quell.Reading {
	slices.SortFunc(list, func(a, b quell.Reading) int {
		if a.Instance < b.Instance {
			return -1
		}
		return 1
	})
	return list
}

// join sums the counts of all addresses of an instance.
func (h *heard) join(addresses []netip.AddrPort, classes balancer.Classes) tally {
	sum := tally{Tally: measure.New(classes.Names()...)}
	for _, a := range addresses {
		if t := h.servers[a]; t != nil {
			sum.Merge(t.Tally)
			sum.open += t.open
		}
	}
	return sum
}

func (m *meter) reading(id string, fast bool, read func() (quell.Reading, error)) quell.Reading {
	r, err := read()
	if err != nil {
		m.in.Logger.Error("histogram not encoded", "error", err)
	}
	r.Service, r.Instance, r.Sender, r.Fast = m.in.Name, id, m.in.Balancer, fast
	return r
}

// instances returns the addresses of all instances.
func (d *Driver) instances(ctx context.Context) map[string][]netip.AddrPort {
	at := d.addresses()
	list := make(map[string][]netip.AddrPort, len(at))
	for id, address := range at {
		list[id] = d.names.of(ctx, withPort(address))
	}
	return list
}

// addresses returns the addresses of all instances as they were given.
func (d *Driver) addresses() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known()
}

func (d *Driver) known() map[string]string {
	at := map[string]string{}
	for _, m := range d.opts.Members {
		at[m.ID] = m.Address
	}
	for _, e := range d.entries {
		at[e.ID] = e.Address
	}
	return at
}

// busy returns whether this machine has connections to an instance.
func (d *Driver) busy(ctx context.Context) bool {
	open, err := d.conns()
	if err != nil {
		return false
	}
	for _, addresses := range d.instances(ctx) {
		if slices.ContainsFunc(addresses, func(a netip.AddrPort) bool { return open[a] > 0 }) {
			return true
		}
	}
	return false
}
