package haproxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/outage"
)

// process is one HAProxy.
type process struct {
	opts   *Options
	socket *socket
	index  int // its position among the driver's processes
	claim  claim

	mu        sync.Mutex     // guards what follows, and keeps related exchanges together
	last      *view          // the state last read, with the changes made since; nil if it must be read again
	known     info           // what `show info` said at the last read; zero before the first
	restarted time.Time      // when a new process was first seen; zero if none was
	noticed   bool           // apply found a change that a person made
	settled   bool           // this process has what it was last sent
	weights   map[string]int // by server: as last seen while they were as wanted; nil after a change by Quell
	counted   counters
	reach     outage.Log
	absent    outage.Log
	refused   outage.Log
	foreign   outage.Notice
}

func newProcess(o *Options, address string, index int) *process {
	return &process{
		opts: o, socket: newSocket(address), index: index, counted: newCounters(),
		reach:   outage.Log{Logger: o.Logger, What: "driving HAProxy at " + address},
		refused: outage.Log{Logger: o.Logger, What: "changing everything in HAProxy at " + address},
		absent:  outage.Log{Logger: o.Logger, What: "finding every server in HAProxy at " + address},
		foreign: outage.Notice{Logger: o.Logger,
			Begun: "something else changes weights of this backend, and they are put back: look for a person, another controller, a script or an " +
				"agent-check. To set a share yourself: quell override INSTANCE SHARE",
			End: "the backend has the wanted weights"},
	}
}

// look reads the backend's state.
func (p *process) look(ctx context.Context) (*view, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lookLocked(ctx)
}

func (p *process) lookLocked(ctx context.Context) (*view, error) {
	p.last = nil
	v, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	restarted := p.known.pid != 0 && (p.known.pid != v.info.pid || v.info.uptime < p.known.uptime) // in containers the same pid may return
	if restarted {
		p.restarted, p.settled = p.opts.Now(), false
		p.opts.Logger.Info("HAProxy was restarted or reloaded", "socket", p.socket.address, "pid", v.info.pid, "version", v.info.version)
	}
	p.counted.take(v, p.known.pid == 0, restarted)
	p.known, p.last = v.info, v
	return v, nil
}

// handovers limits how often a connection may lead to a process that is being replaced.
const handovers = 3

// read queries the servers and then their counters. After a reload, an open connection still leads to the old process, which runs until the
// connection is closed. Then read opens a new connection, which leads to the new process.
func (p *process) read(ctx context.Context) (*view, error) {
	for range handovers {
		answers, err := p.socket.exec(ctx, "show info", "show servers state "+p.opts.Backend)
		if err != nil {
			return nil, err
		}
		i, err := parseInfo(answers[0])
		if err == nil && i.stopping {
			p.socket.close()
			continue
		}
		servers, id, err := p.serversOf(answers, err)
		if err != nil {
			return nil, fmt.Errorf("HAProxy at %s: %w", p.socket.address, err)
		}
		v, same, err := p.counters(ctx, i, servers, id)
		if err != nil || same {
			return v, err
		}
	}
	return nil, fmt.Errorf("HAProxy at %s is shutting down", p.socket.address)
}

// serversOf reads the servers and the backend's number from answers. If err is not nil, it returns err.
func (p *process) serversOf(answers []string, err error) (servers []server, id string, _ error) {
	for _, a := range answers {
		if strings.HasPrefix(a, "Permission denied") {
			return nil, "", errors.New("permission denied: the socket must be declared with `level admin`")
		}
	}
	if err != nil {
		return nil, "", err
	}
	if strings.HasPrefix(answers[1], "Can't find backend") {
		return nil, "", fmt.Errorf("there is no backend %q: balancer.haproxy.backend must name one of its backends", p.opts.Backend)
	}
	return parseState(answers[1])
}

// counters queries the counters of the backend and its servers. It uses the backend's number, because a frontend may have the same name.
// same is false if another process answered than before, because its numbers may differ.
func (p *process) counters(ctx context.Context, i info, servers []server, id string) (v *view, same bool, err error) {
	v = &view{info: i, index: p.index, servers: make(map[string]*server, len(servers))}
	if id != "" {
		answers, err := p.socket.exec(ctx, "show info", "show stat "+id+" 6 -1") // 2 for the backend, 4 for servers
		if err != nil {
			return nil, false, err
		}
		if again, err := parseInfo(answers[0]); err != nil || again.pid != i.pid {
			return nil, false, err
		}
		if v.how, err = parseStat(answers[1], servers); err != nil {
			return nil, false, fmt.Errorf("HAProxy at %s: %w", p.socket.address, err)
		}
	}
	for k := range servers {
		v.servers[servers[k].name] = &servers[k]
		v.order = append(v.order, servers[k].name)
	}
	return v, true, nil
}

// seen returns the last view. If there is none, it reads one.
func (p *process) seen(ctx context.Context) (*view, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil {
		return p.last, nil
	}
	return p.lookLocked(ctx)
}

// unreachable says that a HAProxy could not be asked.
type unreachable struct{ error }

// partly is the error if some commands were refused and others were carried out.
type partly struct{ error }

// apply brings this HAProxy to the targets, and returns whether commands were needed. Its view may be outdated, so if applying fails, it
// reads again and tries once more. What is refused then is reported; it is an error only if no command was carried out.
func (p *process) apply(ctx context.Context, targets []target) (changed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	some := false
	if p.last != nil {
		if changed, err = p.attempt(ctx, targets); err == nil {
			p.refused.Report(nil)
			return changed, nil
		}
		some = errors.As(err, new(partly))
		p.socket.close()
	}
	if _, err = p.lookLocked(ctx); err != nil {
		return some, unreachable{err}
	}
	changed, err = p.attempt(ctx, targets)
	if some = some || errors.As(err, new(partly)); err != nil && !some {
		return changed, err
	}
	p.refused.Report(err)
	return changed, nil
}

func (p *process) attempt(ctx context.Context, targets []target) (changed bool, err error) {
	p.noticed = notice(p.last, targets) || p.noticed
	todo, absent := commands(p.last, targets, p.opts)
	p.absent.Report(absent)
	if len(todo) > 0 {
		p.weights, err = nil, p.carryOut(ctx, todo)
	}
	if p.settled = err == nil; err != nil {
		p.last = nil
		return true, err
	}
	p.expect(targets, todo)
	return len(todo) > 0, nil
}

func (p *process) carryOut(ctx context.Context, todo []command) error {
	lines := make([]string, len(todo))
	for i, c := range todo {
		lines[i] = c.text
	}
	answers, err := p.socket.exec(ctx, lines...)
	if err != nil {
		return unreachable{err}
	}
	done := false
	for i, c := range todo {
		switch {
		case c.ok(answers[i]):
			done = true
		case err == nil && !c.later: // report only the first one, because it may be the reason for the others
			err = fmt.Errorf("HAProxy at %s: %w", p.socket.address, refused(c.text, answers[i]))
		}
	}
	if err != nil && done {
		return partly{err}
	}
	return err
}

// refused explains a refused command.
func refused(command, answer string) error {
	hint := ""
	switch {
	case strings.Contains(answer, "Permission denied"):
		hint = ": declare the socket with `level admin`"
	case strings.Contains(answer, "isabled") && strings.Contains(answer, "roxy"):
		hint = ": the process is being replaced"
	case strings.Contains(answer, "address family"):
		hint = ": the server has no address that could be replaced: declare its server-template as docs/balancers/haproxy.md shows for slots"
	case strings.Contains(answer, "static LB algorithm"):
		hint = ": `balance` must be roundrobin, leastconn or random"
	case strings.HasPrefix(command, "add server") && strings.Contains(answer, "unknown keyword"):
		hint = ": balancer.haproxy.server must be parameters of a `server` line"
	case strings.HasPrefix(command, "add server"):
		hint = ": where HAProxy cannot add servers, declare slots with server-template and name them in balancer.haproxy.slots"
	}
	return fmt.Errorf("%q was answered with %q%s", command, shorten(answer), hint)
}

// expect updates the view with the effect of the commands that were sent. If the commands changed anything but weights, the state must be
// read again.
func (p *process) expect(targets []target, todo []command) {
	for _, c := range todo {
		if !strings.Contains(c.text, " weight ") || strings.HasPrefix(c.text, "add ") {
			p.last = nil
			return
		}
	}
	if len(todo) == 0 {
		return // the present weights may be as good as the targets' own
	}
	for i := range targets {
		if t := &targets[i]; t.serves() && !t.held(p.last) && p.last.servers[t.server] != nil {
			p.last.servers[t.server].weight = t.weight
		}
	}
}

// saveState writes the file that HAProxy loads when it starts.
func (p *process) saveState(ctx context.Context) error {
	answers, err := p.socket.exec(ctx, "show servers state")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(p.opts.StateFile, []byte(answers[0]+"\n\n"), 0o644); err != nil {
		return fmt.Errorf("balancer.haproxy.state_file: %w", err)
	}
	return nil
}

// takeNoticed returns whether apply has found a change by a person since takeNoticed was last called.
func (p *process) takeNoticed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	noticed := p.noticed
	p.noticed = false
	return noticed
}

// watchWeights reports once if somebody else changes weights in a HAProxy that had the requested weights.
func (p *process) watchWeights(kept bool, weights map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.settled {
		return // the process is new, or was not sent any weights yet
	}
	args := []any{"socket", p.socket.address}
	if text := changedWeights(p.weights, weights); !kept && text != "" {
		args = append(args, "changed", text)
	}
	p.foreign.Observe(!kept, args...)
	if kept {
		p.weights = weights
	}
}

// changedWeights lists the servers whose weight is another one now, at most three.
func changedWeights(before, now map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if w, ok := now[name]; ok && w != before[name] {
			parts = append(parts, fmt.Sprintf("%s from %d to %d", name, before[name], w))
		}
	}
	if more := len(parts) - 3; more > 0 {
		parts = append(parts[:3], fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}

// recentlyRestarted returns whether requests may still be open in a process that this one replaced.
func (p *process) recentlyRestarted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.restarted.IsZero() && p.opts.Now().Sub(p.restarted) < p.opts.Drain
}

func (p *process) report(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reach.Report(err)
}

// counters turns HAProxy's totals into counts since takeCounts was last called.
type counters struct {
	before map[string]server // totals at the last read
	window map[string]*count
	read   bool // totals were read in this window
	blind  bool // none were read in the window before this one, so that nobody knows what was counted in this one
}

// count is what a server counted in a window.
type count struct {
	arrived, responses, failures int64
	moved                        int64 // attempts to connect that failed and were repeated, here or at another server
	unanswered                   int64 // requests that ended without an answer
	reused                       int64 // requests on connections that were kept
	open, looks                  int64
	totalMS                      int64 // as of the newest read
}

func newCounters() counters {
	return counters{before: map[string]server{}, window: map[string]*count{}}
}

// take adds newly read totals. If a server or a process was not there before, its totals started at zero. At the very first read, it is
// unknown when they started.
func (c *counters) take(v *view, first, restarted bool) {
	c.read = true
	kept := restarted && v.restored() // HAProxy 3.0 can keep counters over a reload (stats-file)
	if restarted && !kept {
		clear(c.before)
	}
	after := make(map[string]server, len(v.servers))
	for name, s := range v.servers {
		after[name] = *s
		if c.blind {
			continue
		}
		n := c.window[name]
		if n == nil {
			n = &count{}
			c.window[name] = n
		}
		old, known := c.before[name]
		switch {
		case kept && (!known || s.total < old.total): // it is unknown what was counted since
		case known || !first:
			if s.total < old.total {
				old = server{} // another server that got the same name
			}
			n.arrived += s.total - old.total
			n.responses += max(0, s.responses-old.responses)
			n.failures += max(0, s.failures-old.failures)
			n.moved += max(0, s.moved-old.moved)
			n.unanswered += max(0, s.unanswered-old.unanswered)
			n.reused += max(0, s.reused-old.reused)
		}
		n.open += s.sessions
		n.looks++
		n.totalMS = s.totalMS
	}
	c.before = after
}

// restored returns whether the process has counters of the one before: more than it can have counted itself.
func (v *view) restored() bool {
	var sum int64
	for _, s := range v.servers {
		sum += s.total - s.moved
	}
	return v.info.requests > 0 && sum > v.info.requests
}

// end ends the window and returns its counts; nil if there was no read. After such a window it returns nil for the next one, too: what was
// counted meanwhile would look like requests of a single window.
func (c *counters) end() map[string]*count {
	w := c.window
	if c.blind || !c.read {
		w = nil
	}
	c.window, c.blind, c.read = map[string]*count{}, !c.read, false
	return w
}

// takeCounts ends the window and returns its counts.
func (p *process) takeCounts() map[string]*count {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counted.end()
}
