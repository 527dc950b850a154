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

// Shared is what neighbours on an emulated machine compete for.
const Shared = quell.Network

// HostOptions describes a physical machine and the instance on it. ID, Instance, Listen and Bandwidth have no default.
type HostOptions struct {
	ID               string // of the physical machine, as in h1
	Instance         string // of the instance on it, as in i1
	Listen           string // host:port of the service
	Bandwidth        int64  // of the link, in bits per second
	Piece            int64  // see LinkOptions
	FileSize         int64  // bytes of the service's file; default 50,000
	Boot             time.Duration
	InterferenceFile string // see WriteInterference; none: the neighbours change by SetInterference only
	InterferenceFlow int64  // bytes of a neighbour's flow; see InterfererOptions
	Seed             uint64 // of the neighbours

	ProbeListen  string       // host:port of the probe server; none: there is no probe server
	ProbeHandler http.Handler // answers there; what it sends crosses the link

	// Agent, if set, runs beside the service, with the machine's file system, and must return when ctx ends. Its
	// end does not end the machine.
	Agent func(ctx context.Context, root fs.FS) error

	Lifeline *os.File      // the machine ends at its end of file, and closes it; none: it lives until told
	Drain    time.Duration // how long open responses may take once it is told to end; default 2 s
	Now      func() time.Time
	Logger   *slog.Logger
}

// Host is one emulated physical machine with one instance. It keeps no state outside itself, so that a process may
// hold many.
type Host struct {
	opts       HostOptions
	log        *slog.Logger
	link       *Link
	interferer *Interferer
	booted     atomic.Bool
	service    *server
	probe      *server // nil: none
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

// complete fills in defaults and checks what the link and the interferer do not.
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

// Listen opens the host's addresses, once; Run does it if it was not done before.
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

// Addr is the service's address, with the port that was given to it once Listen has returned.
func (h *Host) Addr() string { return h.service.at() }

// ProbeAddr is the probe server's address likewise, and empty if there is none.
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

// FS is the root of the machine's file system, for sensors: /proc/net/dev, /proc/net/route and
// /sys/class/net/eth0/speed, whose counters hold what the instance and its probe sent and nothing of the neighbours.
func (h *Host) FS() fs.FS { return machine{h.link, h.opts.Now} }

// Counters are the bytes that have crossed the machine's link. An instance never sees the neighbours' part; it is for
// the accounts of experiments.
func (h *Host) Counters() Counters { return h.link.Counters() }

// SetInterference sets the share of the link that the neighbours ask for. With an interference file, the file's next
// change overrides it.
func (h *Host) SetInterference(network float64) error { return h.interferer.SetUse(network) }

// Run serves until ctx ends, the lifeline breaks or a listener fails, then lets open responses finish for a bounded
// time. During the emulated boot every request gets a 503. It returns nil when it was told to end. A Host runs once.
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

// accompany starts what runs beside the servers.
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

// watchLifeline ends the run when whoever holds the other end of the pipe has gone. Its read may outlive the run where
// the file cannot be interrupted; it holds nothing then.
func (h *Host) watchLifeline(cancel context.CancelCauseFunc) {
	if h.opts.Lifeline == nil {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, h.opts.Lifeline) // an error is an end too
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
