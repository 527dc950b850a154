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
	"github.com/quellhq/quell/balancer/managed"
	"github.com/quellhq/quell/balancer/measure"
	"github.com/quellhq/quell/internal/logsocket"
)

// meter makes readings of a driver's instances from nginx's log. nginx has no counters of its servers, so a request counts when it ends.
type meter struct {
	driver   *Driver
	in       balancer.Service
	health   health.Options
	log      net.PacketConn // nil: there is none
	recorder *measure.Recorder
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	heard   heard
	ever    bool  // lines in the right format have arrived
	problem error // why not everything was measured in the last period
}

// heard is what arrived in the log in one period.
type heard struct {
	lines, other int64  // in the right format, and in another one
	sample       string // the first of the others
}

func newMeter(d *Driver, s *Settings, in balancer.Service, publish func([]quell.Reading)) (*meter, error) {
	m := &meter{driver: d, in: in, health: s.Health, recorder: measure.NewRecorder(in, publish)}
	if s.Log == "" {
		m.problem = errors.New("balancer.nginx.log is not set, and nginx counts no response times: set it, and add the access_log line of " +
			"docs/balancers/nginx.md")
		return m, nil
	}
	var err error
	m.log, err = logsocket.Listen(s.Log, "nginx")
	return m, err
}

// Pace implements balancer.Meter.
func (m *meter) Pace(period, fast time.Duration) { m.recorder.Pace(period, fast) }

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
	defer m.driver.watch(ctx, m.health).Wait()
	if m.log == nil {
		<-ctx.Done()
		return
	}
	var reader sync.WaitGroup
	reader.Go(m.listen)
	defer reader.Wait()
	defer m.log.Close()
	m.recorder.Run(ctx, m.driver.servers, m.judge)
}

// watch checks the health of all instances until ctx ends: nginx itself only notices failing requests, and tells nobody.
func (d *Driver) watch(ctx context.Context, o health.Options) *health.Checks {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checks = health.NewChecks(ctx, o)
	d.checks.Follow(d.known())
	return d.checks
}

// judge finds out whether everything was measured in a period.
func (m *meter) judge(ctx context.Context) {
	busy := m.driver.busy(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.heard
	m.heard, m.ever, m.problem = heard{}, m.ever || h.lines > 0, nil
	switch {
	case h.other > 0:
		m.problem = fmt.Errorf("%d of %d lines of nginx's log are not in the format quell: give the access_log of balancer.nginx.log that "+
			"format; the first was %q", h.other, h.lines+h.other, shorten(h.sample))
	case !m.ever && busy:
		m.problem = errors.New("nginx has connections to the instances, and no line of its log arrived: check that access_log sends the " +
			"format quell to balancer.nginx.log")
	}
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
	m.note(message, err)
	if err != nil {
		return
	}
	attempts := l.given()
	for i := range attempts {
		a := &attempts[i]
		switch server := plain(a.server); {
		case server == "":
		case i == len(attempts)-1:
			m.recorder.Count(server, m.request(&l, a, i > 0))
		case !a.connected:
			m.recorder.Moved(server)
		default:
			m.recorder.Count(server, measure.Request{Verdict: a.verdict(), Took: m.took(a), Open: a.all})
		}
	}
}

func (m *meter) note(message []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.heard.lines++
		return
	}
	if m.heard.other++; m.heard.sample == "" {
		m.heard.sample = string(message)
	}
}

// plain returns a numeric address in the form in which all are compared; empty if it is none.
func plain(server string) string {
	a, err := netip.ParseAddrPort(server)
	if err != nil {
		return ""
	}
	return balancer.Plain(a).String()
}

// request describes a request at the server that was the last to get it.
func (m *meter) request(l *logged, a *attempt, moved bool) measure.Request {
	class := m.in.Classes.Of(l.target)
	e := l.ending(a, moved)
	e.Aside, e.FirstByte = m.in.Classes.Aside(class), m.in.FirstByte
	return measure.Request{Verdict: measure.Judge(e), Class: class, Took: m.took(a), Connect: a.connect, Connected: a.connected, Open: a.all}
}

func (m *meter) took(a *attempt) time.Duration {
	if m.in.FirstByte {
		return a.first
	}
	return a.all
}

// servers returns the numeric addresses of all instances.
func (d *Driver) servers(ctx context.Context) map[string][]string {
	at := d.addresses()
	list := make(map[string][]string, len(at))
	for id, address := range at {
		for _, a := range d.names.of(ctx, withPort(address)) {
			list[id] = append(list[id], a.String())
		}
		if list[id] == nil {
			list[id] = []string{} // its reading says that it got no requests
		}
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
	at := managed.Addresses(d.entries)
	for _, m := range d.opts.Members {
		if _, known := at[m.ID]; !known {
			at[m.ID] = m.Address
		}
	}
	return at
}

// busy returns whether this machine has connections to an instance.
func (d *Driver) busy(ctx context.Context) bool {
	open, err := d.conns()
	if err != nil {
		return false
	}
	for _, address := range d.addresses() {
		if slices.ContainsFunc(d.names.of(ctx, withPort(address)), func(a netip.AddrPort) bool { return open[a] > 0 }) {
			return true
		}
	}
	return false
}
