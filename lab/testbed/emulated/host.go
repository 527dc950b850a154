package emulated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
)

// Shared is the resource for which neighbours on an emulated machine compete.
const Shared = quell.Network

// HostOptions describes a physical machine and the instance on it. ID, Instance, Listen and Bandwidth have no default.
type HostOptions struct {
	ID               string // of the physical machine, such as h1
	Instance         string // of the instance on it, such as i1
	Listen           string // host:port of the service
	Bandwidth        int64  // of the link, in bits per second
	Piece            int64  // see LinkOptions
	FileSize         int64  // bytes of the service's file; default 50,000
	Boot             time.Duration
	InterferenceFile string // see WriteInterference; empty: only SetInterference changes what neighbours use
	InterferenceFlow int64  // bytes of one flow of the neighbours; see InterfererOptions
	Seed             uint64 // of the neighbours' random flows

	ProbeListen  string       // host:port of the probe server; empty: no probe server
	ProbeHandler http.Handler // answers probes; what it sends crosses the link

	// Agent, if set, runs beside the service and sees the emulated machine's file system. It must return when ctx ends. The machine goes on
	// when Agent returns.
	Agent func(ctx context.Context, root fs.FS) error

	Lifeline *os.File      // the machine ends, and closes the file, at the end of the file; nil: it runs until ctx ends
	Drain    time.Duration // how long open responses may take when the machine ends; default 2 s
	Now      func() time.Time
	Logger   *slog.Logger
}

// Host is one emulated physical machine with one instance. A host shares no state with other hosts, so one process may contain many hosts.
type Host struct {
	opts       HostOptions
	log        *slog.Logger
	link       *Link
	interferer *Interferer
	booted     atomic.Bool
	service    *server
	probe      *server // nil if there is no probe server
}

// server is an HTTP server on the link.
type server struct {
	http http.Server
	addr string
	ln   net.Listener // nil before Listen
}

// NewHost checks the options; it opens nothing yet. Errors are *quell.InvalidError.
func NewHost(o HostOptions) (*Host, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	link, err := NewLink(LinkOptions{BitsPerSecond: o.Bandwidth, Piece: o.Piece, Now: o.Now})
	if err != nil {
		return nil, err
	}
	interferer, err := NewInterferer(InterfererOptions{Link: link, FlowBytes: o.InterferenceFlow, Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	h := &Host{opts: o, log: o.Logger.With("host", o.ID, "instance", o.Instance), link: link, interferer: interferer}
	h.service = h.newServer(o.Listen, newService(o.FileSize))
	if o.ProbeListen != "" {
		h.probe = h.newServer(o.ProbeListen, o.ProbeHandler)
	}
	return h, nil
}

// complete fills in defaults, and checks the options that the link and the interferer do not check.
func (o *HostOptions) complete() error {
	if o.FileSize == 0 {
		o.FileSize = 50_000
	}
	if o.Drain == 0 {
		o.Drain = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, rule := range []struct {
		broken        bool
		path, problem string
	}{
		{o.ID == "", "id", "must not be empty"},
		{o.Instance == "", "instance", "must not be empty"},
		{o.Listen == "", "listen", "must not be empty"},
		{o.FileSize < 0, "file_size", "must not be negative"},
		{o.Boot < 0, "boot", "must not be negative"},
		{o.Drain < 0, "drain", "must not be negative"},
		{(o.ProbeListen == "") != (o.ProbeHandler == nil), "probe_listen", "a probe server needs an address and a handler"},
	} {
		if rule.broken {
			return &quell.InvalidError{Path: rule.path, Problem: rule.problem}
		}
	}
	return nil
}

func (h *Host) newServer(addr string, handler http.Handler) *server {
	return &server{addr: addr, http: http.Server{
		Handler:           whenBooted(&h.booted, handler),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
	}}
}

// Listen opens the host's addresses. If Listen was not called, Run opens them.
func (h *Host) Listen() error {
	for _, s := range h.servers() {
		if s.ln != nil {
			continue
		}
		ln, err := net.Listen("tcp", s.addr)
		if err != nil {
			h.unlisten()
			return fmt.Errorf("host %s: opening its address (choose another one, or stop what uses it): %w", h.opts.ID, err)
		}
		s.ln = ln
	}
	return nil
}

func (h *Host) unlisten() {
	for _, s := range h.servers() {
		if s.ln != nil {
			s.ln.Close()
			s.ln = nil
		}
	}
}

func (h *Host) servers() []*server {
	if h.probe == nil {
		return []*server{h.service}
	}
	return []*server{h.service, h.probe}
}

// Addr is the service's address. After Listen it has the port that was assigned.
func (h *Host) Addr() string { return h.service.at() }

// ProbeAddr is the probe server's address; empty if there is none. After Listen it has the port that was assigned.
func (h *Host) ProbeAddr() string {
	if h.probe == nil {
		return ""
	}
	return h.probe.at()
}

func (s *server) at() string {
	if s.ln == nil {
		return s.addr
	}
	return s.ln.Addr().String()
}

// FS is the root of the machine's file system, for sensors. It has /proc/net/dev, /proc/net/route and /sys/class/net/eth0/speed. The
// counters include what the instance and its probe server sent, but nothing of the neighbours.
func (h *Host) FS() fs.FS { return machine{h.link, h.opts.Now} }

// Counters are the bytes that have crossed the machine's link. Counters are for the accounts of experiments: an instance never sees the
// neighbours' part.
func (h *Host) Counters() Counters { return h.link.Counters() }

// SetInterference sets the share of the link that the neighbours ask for. If there is an interference file, its next change replaces this
// share.
func (h *Host) SetInterference(network float64) error { return h.interferer.SetUse(network) }

// Run answers requests until ctx ends, the lifeline ends or a listener fails; then open responses may finish for a limited time. During
// the emulated boot every request gets a 503. If ctx or the lifeline ended it, the error is nil. A Host runs once.
func (h *Host) Run(ctx context.Context) error {
	defer h.link.Close()
	if err := h.Listen(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h.booted.Store(h.opts.Boot == 0)
	boot := time.AfterFunc(h.opts.Boot, func() { h.booted.Store(true) })
	defer boot.Stop()
	h.watchLifeline(cancel)

	var parts sync.WaitGroup
	defer parts.Wait()
	h.serve(&parts, cancel)
	h.accompany(ctx, &parts)
	<-ctx.Done()
	h.stop()

	var failed *serveError
	if errors.As(context.Cause(ctx), &failed) {
		return fmt.Errorf("host %s: %w", h.opts.ID, failed)
	}
	return nil
}

type serveError struct{ err error }

func (e *serveError) Error() string { return "serving: " + e.err.Error() }
func (e *serveError) Unwrap() error { return e.err }

func (h *Host) serve(parts *sync.WaitGroup, cancel context.CancelCauseFunc) {
	owner := map[*server]Owner{h.service: OwnInstance, h.probe: OwnProbe}
	for _, s := range h.servers() {
		ln := h.link.Listener(s.ln, owner[s])
		parts.Go(func() {
			if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				cancel(&serveError{err})
			}
		})
	}
}

// accompany starts the parts that run beside the servers.
func (h *Host) accompany(ctx context.Context, parts *sync.WaitGroup) {
	if h.opts.InterferenceFile != "" {
		f := &interferenceFile{path: h.opts.InterferenceFile, set: h.SetInterference, log: h.log}
		parts.Go(func() { f.follow(ctx) })
	}
	if h.opts.Agent != nil {
		parts.Go(func() {
			if err := h.opts.Agent(ctx, h.FS()); err != nil && ctx.Err() == nil {
				h.log.Error("the agent ended; the instance goes on without it", "error", err)
			}
		})
	}
}

var errLifeline = errors.New("the lifeline broke")

// watchLifeline ends the run when the process at the other end of the pipe has ended. If the file's read cannot be interrupted, the read
// may outlive the run, but it keeps nothing open then.
func (h *Host) watchLifeline(cancel context.CancelCauseFunc) {
	if h.opts.Lifeline == nil {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, h.opts.Lifeline) // an error ends the lifeline, too
		cancel(errLifeline)
	}()
}

// stop lets open responses finish for the drain time, then breaks them off.
func (h *Host) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), h.opts.Drain)
	defer cancel()
	var servers sync.WaitGroup
	for _, s := range h.servers() {
		servers.Go(func() {
			if err := s.http.Shutdown(ctx); err != nil {
				s.http.Close()
			}
		})
	}
	servers.Wait()
	if h.opts.Lifeline != nil {
		h.opts.Lifeline.Close()
	}
}
