package haproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/measure"
	"github.com/quellhq/quell/internal/logsocket"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/tick"
)

// monitorOptions configure a monitor.
type monitorOptions struct {
	Service string
	Sender  string           // the name of these HAProxies in their readings
	Period  time.Duration    // the sampling period; one reading per instance at its end
	Fast    time.Duration    // the period of a fast policy; it divides Period and also ends with one reading; 0: there is none
	Classes balancer.Classes // the classes of requests by their paths; none: by the first captured header, if Captured
	Log     net.PacketConn   // where HAProxy's log arrives; nil: there is no log, and readings are less precise
	Formats []*logFormat     // the formats of the log's lines, beside httplog and the short format
	// Captured says that the first captured request header is a request's class. Otherwise it may be anything, such as an address.
	Captured  bool
	FirstByte bool // the objective is about the time to the first byte
	Exact     bool // the objective is a percentile, which cannot be measured without a log
	Publish   func(context.Context, []quell.Reading)
	Logger    *slog.Logger
}

// monitor makes readings of a driver's instances. Rates and requests in flight come from HAProxy's counters. Response times come from
// HAProxy's log, which has every request. If there is no log, they also come from the counters: the mean total time of each server's last
// 1024 requests, however old those are. Such a reading has a mean but no histogram and no percentiles, and its counter haproxy_coarse is 1.
type monitor struct {
	opts   monitorOptions
	driver *Driver
	pace   measure.Pace
	reach  outage.Log
	watch  balancer.ClassWatch
	whole  completeness

	mu      sync.Mutex // guards what follows
	heard   heardOf
	problem error // why not everything was measured in the last period
}

// heardOf is what arrived in the log in one window.
type heardOf struct {
	servers   map[string]*heard
	frontends map[string]bool // of lines that were read; "" if a line shows none
	lines     int64           // number of lines about requests to the backend
	malformed int64           // number of lines that look like requests and cannot be read
	sample    string          // the first of them
	pathless  int64           // number of lines without the request's path
	refused   [refusals]int64 // number of requests that HAProxy itself refused
	early     int64           // number of lines that were written before the request's end
}

// heard is what the log contained about one server in one window.
type heard struct {
	tally *measure.Tally
	brief int64 // requests whose connection was opened in less than a millisecond, or was a kept one: the log does not tell which
}

// maxServers limits memory. It is exceeded only by names from a configuration that the driver does not know.
const maxServers = 4096

// newMonitor makes a monitor; Run starts it.
func newMonitor(d *Driver, o monitorOptions) *monitor {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	m := &monitor{
		opts: o, driver: d, heard: newHeardOf(),
		reach: outage.Log{Logger: o.Logger, What: "reading HAProxy's counters"},
	}
	m.pace.Set(o.Period, o.Fast)
	return m
}

// Run publishes readings at the end of every period until ctx ends, then closes the log.
func (m *monitor) Run(ctx context.Context) {
	var reader sync.WaitGroup
	if m.opts.Log != nil {
		reader.Go(m.listen)
		defer reader.Wait()
		defer m.opts.Log.Close()
	} else {
		m.opts.Logger.Warn("balancer.haproxy.log is not set: response times are HAProxy's means over each server's last 1024 requests, " +
			"without percentiles")
	}
	began := time.Now()
	var whole window
	for tick.Sleep(ctx, tick.Until(time.Now(), m.pace.Shortest())) {
		counts := m.counts(ctx)
		now := time.Now() // taken first, because a HAProxy may answer slowly
		w := window{counts, m.takeLog(), now.Sub(began)}
		began = now
		if m.pace.Fast() {
			m.opts.Publish(ctx, m.readings(&w, now, true))
			whole.add(&w)
			if !m.pace.Ends(now) {
				continue
			}
			w = whole
		}
		whole = window{}
		m.check(ctx, &w)
		m.opts.Publish(ctx, m.readings(&w, now, false))
	}
}

// check finds out whether everything was measured in a window.
func (m *monitor) check(ctx context.Context, w *window) {
	var problem error
	switch {
	case m.opts.Log != nil:
		lines := m.whole.judge(w, func() []string { return m.driver.frontends(ctx) })
		problem = errors.Join(lines, w.unclassed(m.opts.Classes), w.unfinished(m.opts.FirstByte), w.refused(m.driver.opts.Backend))
	case m.opts.Exact:
		problem = errors.New("the objective is a percentile, and HAProxy's counters have none: set balancer.haproxy.log")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problem = problem
}

// err returns why not everything was measured in the last period.
func (m *monitor) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.problem
}

func newHeardOf() heardOf { return heardOf{servers: map[string]*heard{}, frontends: map[string]bool{}} }

// takeLog ends the log's present window and returns what arrived in it.
func (m *monitor) takeLog() heardOf {
	m.mu.Lock()
	defer m.mu.Unlock()
	log := m.heard
	m.heard = newHeardOf()
	return log
}

// window is what HAProxy's counters and log contain for a period of time.
type window struct {
	counts map[string]*count // by server; nil if it is not known what was counted
	log    heardOf
	length time.Duration
}

// add appends the next window.
func (w *window) add(next *window) {
	if w.log.servers == nil {
		w.log = newHeardOf()
	}
	if next.counts != nil { // otherwise nobody knows what was counted meanwhile
		w.length += next.length
		if w.counts == nil {
			w.counts = map[string]*count{}
		}
	}
	for server, c := range next.counts {
		if w.counts[server] == nil {
			w.counts[server] = &count{}
		}
		w.counts[server].follow(c)
	}
	for server, h := range next.log.servers {
		if w.log.servers[server] == nil {
			w.log.servers[server] = newHeard(nil)
		}
		w.log.servers[server].merge(h)
	}
	w.log.lines += next.log.lines
	w.log.malformed += next.log.malformed
	w.log.sample = cmp.Or(w.log.sample, next.log.sample)
	maps.Copy(w.log.frontends, next.log.frontends)
	w.log.pathless += next.log.pathless
	w.log.early += next.log.early
	for i, n := range next.log.refused {
		w.log.refused[i] += n
	}
}

func (m *monitor) listen() {
	buffer := make([]byte, logsocket.MaxDatagram)
	for {
		n, _, err := m.opts.Log.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			m.hear(buffer[:n])
		}
	}
}

// hear processes one message of the log.
func (m *monitor) hear(message []byte) {
	l, err := m.read(message)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case errors.Is(err, errMalformed):
		if m.heard.malformed++; m.heard.sample == "" {
			m.heard.sample = string(message)
		}
	case (err == nil || l.frontend != "") && len(m.heard.frontends) < maxServers:
		m.heard.frontends[l.frontend] = true
	}
	if l.backend == m.driver.opts.Backend && l.refused != noRefusal {
		m.heard.refused[l.refused]++
	}
	if err != nil || l.backend != m.driver.opts.Backend {
		return
	}
	h := m.heard.servers[l.server]
	if h == nil {
		if len(m.heard.servers) >= maxServers {
			return
		}
		h = newHeard(m.opts.Classes)
		m.heard.servers[l.server] = h
	}
	m.heard.lines++
	switch {
	case len(m.opts.Classes) == 0 && !m.opts.Captured:
		l.class = ""
	case len(m.opts.Classes) > 0:
		if l.class = m.opts.Classes.Of(l.target); l.target == "" {
			m.heard.pathless++
		}
	}
	l.end.Aside = m.opts.Classes.Aside(l.class)
	if l.end.Early {
		m.heard.early++
	}
	h.take(&l, m.opts.FirstByte)
}

// read parses a message in one of the configured formats, or in one that is always known.
func (m *monitor) read(message []byte) (logged, error) {
	for _, f := range m.opts.Formats {
		if l, ok, err := f.parse(message); ok {
			return l, err
		}
	}
	return parseLog(message)
}

func newHeard(classes balancer.Classes) *heard { return &heard{tally: measure.New(classes.Names()...)} }

// merge adds what arrived in another window.
func (h *heard) merge(o *heard) {
	h.tally.Merge(o.tally)
	h.brief += o.brief
}

// take counts a request.
func (h *heard) take(l *logged, firstByte bool) {
	switch {
	case l.connected && l.connect == 0:
		h.brief++
	case l.connected:
		h.tally.Connect(l.connect)
	}
	verdict := l.verdict(firstByte)
	h.tally.Finish(verdict, l.class, l.took)
}

// counts returns what HAProxy counted in the window, by server; nil if that is not known.
func (m *monitor) counts(ctx context.Context) map[string]*count {
	counts, err := m.driver.counts(ctx)
	m.reach.Report(err)
	if err != nil && len(counts) == 0 {
		return nil
	}
	return counts
}

// unfinished returns an error if nearly all lines of the log were written before the request's end.
func (w *window) unfinished(firstByte bool) error {
	if firstByte || w.log.early == 0 || 10*w.log.early < 9*w.log.lines {
		return nil
	}
	return fmt.Errorf("%d of %d lines of HAProxy's log were written before the response's end, so there are no response times: remove "+
		"`option logasap`, or set slo.metric to the time to the first byte, as in ttfb_p95", w.log.early, w.log.lines)
}

// unclassed returns an error if the log's lines do not show the paths by which classes are told apart.
func (w *window) unclassed(classes balancer.Classes) error {
	if len(classes) == 0 || w.log.pathless == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d lines of HAProxy's log have no path, so their requests count as class %s: use `option httplog`, or a "+
		`log-format that ends with \"%%HM %%HP\"`, w.log.pathless, w.log.lines, balancer.OtherClass)
}

// readings returns the readings of a window, one for each instance; at the end of a sampling period one of none if there is no instance.
func (m *monitor) readings(w *window, now time.Time, fast bool) []quell.Reading {
	var readings []quell.Reading
	arrived := map[string]int64{}
	for _, server := range slices.Sorted(maps.Keys(w.counts)) {
		id, ours := m.driver.Instance(server)
		if !ours {
			continue
		}
		h := w.log.servers[server]
		r := m.reading(w.counts[server], h, now, w.length)
		r.Service, r.Instance, r.Sender, r.Fast = m.opts.Service, id, m.opts.Sender, fast
		readings = append(readings, r)
		if h != nil && !fast {
			for class, n := range h.tally.Arrivals() {
				arrived[class] += n
			}
		}
	}
	for _, mistake := range m.watch.Add(m.opts.Classes, arrived) {
		m.opts.Logger.Warn(mistake)
	}
	if fast || w.counts == nil { // there may be instances
		return readings
	}
	return measure.Unserved(readings, measure.None(m.opts.Service, m.opts.Sender, now, w.length), w.log.refused[unserved])
}

func (m *monitor) reading(c *count, h *heard, now time.Time, window time.Duration) quell.Reading {
	if m.opts.Log == nil {
		return coarse(c, now, window)
	}
	if h == nil {
		h = newHeard(m.opts.Classes)
	}
	h.tally.Arrived, h.tally.Answered, h.tally.Moved = c.arrived, c.responses+c.unanswered, c.moved
	h.tally.SpreadArrivals()
	for range h.brief - c.reused { // the rest are connections that were kept, which is no measurement
		h.tally.Connect(0)
	}
	h.brief = 0
	r, err := h.tally.Reading(now.UTC(), window, c.meanOpen())
	if err != nil {
		m.opts.Logger.Error("histogram not encoded", "error", err)
	}
	return r
}

// coarse makes a reading from the counters without a log.
func coarse(c *count, now time.Time, window time.Duration) quell.Reading {
	t := measure.New()
	t.Arrived, t.Requests, t.Errors = c.arrived, c.responses, min(c.responses, c.failures)
	o := t.Observation(now.UTC(), window, c.meanOpen())
	o.Counters = map[string]float64{"haproxy_coarse": 1}
	if c.responses > 0 {
		o.LatencyMS = &quell.Latency{Mean: new(float64(c.totalMS)), N: int(c.responses)}
	}
	return quell.Reading{Source: quell.FromBalancer, Observation: o, Requests: t.Requests, Errors: t.Errors}
}

func (c *count) meanOpen() float64 {
	if c.looks == 0 {
		return 0
	}
	return float64(c.open) / float64(c.looks)
}

// counts asks every HAProxy and sums what they counted since the last call. It returns nil if one of them may have servers that are not
// known, and the others have none.
func (d *Driver) counts(ctx context.Context) (map[string]*count, error) {
	errs := make([]error, len(d.processes))
	var all sync.WaitGroup
	for i, p := range d.processes {
		all.Go(func() { _, errs[i] = p.look(ctx) })
	}
	all.Wait()
	sum, unknown := map[string]*count{}, false
	for _, p := range d.processes {
		counts := p.takeCounts()
		unknown = unknown || counts == nil
		for server, c := range counts {
			if sum[server] == nil {
				sum[server] = &count{looks: c.looks}
			}
			sum[server].add(c)
		}
	}
	if unknown && len(sum) == 0 {
		sum = nil
	}
	return sum, errors.Join(errs...)
}

// follow appends the counts of the next window.
func (c *count) follow(next *count) {
	c.totalMS = c.mixed(next)
	c.open, c.looks = c.open+next.open, c.looks+next.looks
	c.arrived, c.responses, c.failures = c.arrived+next.arrived, c.responses+next.responses, c.failures+next.failures
	c.reused, c.moved, c.unanswered = c.reused+next.reused, c.moved+next.moved, c.unanswered+next.unanswered
}

// mixed returns the mean total time of both windows, weighted by requests.
func (c *count) mixed(o *count) int64 {
	if n := c.responses + o.responses; n > 0 {
		return (c.totalMS*c.responses + o.totalMS*o.responses) / n
	}
	return c.totalMS
}

// add adds another HAProxy's counts: mean open requests are summed, mean times are weighted by requests.
func (c *count) add(o *count) {
	if o.looks > 0 && c.looks > 0 {
		c.open += o.open * c.looks / o.looks
	}
	c.totalMS = c.mixed(o)
	c.arrived, c.responses, c.failures = c.arrived+o.arrived, c.responses+o.responses, c.failures+o.failures
	c.reused, c.moved, c.unanswered = c.reused+o.reused, c.moved+o.moved, c.unanswered+o.unanswered
}
