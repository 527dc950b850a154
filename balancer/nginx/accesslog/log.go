// Package accesslog makes readings of servers from the access log that nginx sends. nginx has no counters of its servers, so a request
// counts when it ends.
package accesslog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/measure"
	"github.com/quellhq/quell/internal/logsocket"
)

// Log makes readings from nginx's log. Its methods may be called concurrently.
type Log struct {
	conn     net.PacketConn // nil: there is none
	recorder *measure.Recorder
	upstream string // the service's; empty: it is not configured

	mu      sync.Mutex // guards what follows
	heard   heard
	empty   string // the first upstream that had no server left
	others  bool   // there was another one
	ever    bool   // lines in the right format have arrived
	problem error  // why not everything was measured in the last period
}

// heard is what arrived in one period.
type heard struct {
	lines, other int64  // in the right format, and in another one
	sample       string // the first of the others
}

// Listen opens the place where nginx sends its log: a path of a socket, or host:port. Without one nothing is measured, and Err says so.
// upstream is the name of the service's; empty: it is not known.
func Listen(place, upstream string, in balancer.Service, publish func([]quell.Reading)) (*Log, error) {
	l := &Log{recorder: measure.NewRecorder(in, publish), upstream: upstream}
	if place == "" {
		l.problem = errors.New("balancer.nginx.log is not set, and nginx counts no response times: set it, and add the access_log line of " +
			"docs/balancers/nginx.md")
		return l, nil
	}
	var err error
	l.conn, err = logsocket.Listen(place, "nginx")
	return l, err
}

// Run publishes readings at the end of every period until ctx ends, then closes the log. servers returns the numeric addresses of each
// instance; busy returns whether nginx has connections to any of them.
func (l *Log) Run(ctx context.Context, servers func(context.Context) map[string][]string, busy func(context.Context) bool) {
	if l.conn == nil {
		<-ctx.Done()
		return
	}
	var reader sync.WaitGroup
	reader.Go(l.listen)
	defer reader.Wait()
	defer l.conn.Close()
	l.recorder.Run(ctx, servers, func(ctx context.Context) { l.judge(busy(ctx)) })
}

// Pace changes how often readings are made.
func (l *Log) Pace(period, fast time.Duration) { l.recorder.Pace(period, fast) }

// Err returns why not everything was measured in the last period.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem
}

// judge finds out whether everything was measured in a period.
func (l *Log) judge(busy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.heard
	l.heard, l.ever, l.problem = heard{}, l.ever || h.lines > 0, nil
	switch {
	case h.other > 0:
		l.problem = fmt.Errorf("%d of %d lines of nginx's log are not in the format quell: give the access_log of balancer.nginx.log that "+
			"format; the first was %q", h.other, h.lines+h.other, shorten(h.sample))
	case !l.ever && busy:
		l.problem = errors.New("nginx has connections to the instances, and no line of its log arrived: check that access_log sends the " +
			"format quell to balancer.nginx.log")
	}
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 120 {
		return string(r[:120]) + "..."
	}
	return s
}

func (l *Log) listen() {
	buffer := make([]byte, logsocket.MaxDatagram)
	for {
		n, _, err := l.conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			l.hear(buffer[:n])
		}
	}
}

// hear counts one message of the log.
func (l *Log) hear(message []byte) {
	r, err := parseLine(message)
	if l.note(message, err); err != nil {
		return
	}
	if l.ours(r.unserved()) {
		l.recorder.Unserved()
	}
	attempts := r.given()
	for i := range attempts {
		a := &attempts[i]
		request := measure.Request{First: a.first, Took: a.all, Open: a.all}
		switch server := plain(a.server); {
		case server == "":
		case i == len(attempts)-1:
			request.Connect, request.Connected = a.connect, a.connected
			l.recorder.Judge(server, r.target, r.ending(a, i > 0), request)
		case !a.connected:
			l.recorder.Moved(server)
		default:
			request.Verdict = a.verdict()
			l.recorder.Count(server, request)
		}
	}
}

// ours returns whether an upstream that had no server left, if any had none, is this service's. If its name is not configured, it counts as
// this one's until a second upstream had none.
func (l *Log) ours(upstream string) bool {
	if upstream == "" || l.upstream != "" {
		return upstream != "" && strings.EqualFold(upstream, l.upstream)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.empty == "" {
		l.empty = upstream
	}
	l.others = l.others || upstream != l.empty
	return !l.others
}

func (l *Log) note(message []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.heard.lines++
		return
	}
	if l.heard.other++; l.heard.sample == "" {
		l.heard.sample = string(message)
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
