package builtin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/connlimit"
	"github.com/quellhq/quell/internal/outage"
)

// Server is one load balancer. Its methods may be called concurrently; Start may be called only once.
type Server struct {
	opts     Options
	files    descriptors
	metrics  *metrics
	limiter  *connLimiter
	pool     *pool
	proxy    *proxy
	reporter *reporter
	memory   memory
	cert     *certfile.Certificate // nil: without TLS

	// applying makes changes of the pool and of its stored state one step. It also guards scheduling, configured and owner.
	applying   sync.Mutex
	scheduling quell.Scheduling
	configured quell.Scheduling // the scheduling in the options; the admin socket may have set another
	owner      ownership

	handing    sync.Mutex // held while another process takes over the sockets
	handedOver chan struct{}

	started    time.Time
	traffic    *endpoint
	metricsEnd *endpoint
	admin      *endpoint
	stopLoops  context.CancelFunc
	loops      sync.WaitGroup

	stopReports context.CancelFunc // stops reporting, because the next process reports under the same name
}

// New checks the options and builds a server that does nothing yet. Invalid options are a *quell.UserError.
func New(o Options) (*Server, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Server{opts: o, scheduling: o.Scheduling, configured: o.Scheduling, memory: memoryFor(o.Admin), stopLoops: func() {},
		stopReports: func() {}, handedOver: make(chan struct{})}
	s.metrics = newMetrics(&s.opts)
	var err error
	if s.files, err = shareOut(connlimit.Files(), o.MaxConns); err != nil {
		return nil, err
	}
	if s.pool, err = newPool(&s.opts, s.metrics, s.files); err != nil {
		return nil, &quell.UserError{Err: fmt.Errorf("balancer: %w", err)}
	}
	s.limiter = newConnLimiter(s.files.clients, s.eachClient(&o), clientRulesOf(&o), o.Logger)
	if o.TLS != nil {
		if s.cert, err = certfile.Open(certfile.Files{Cert: o.TLS.Cert, Key: o.TLS.Key}, "balancer.tls", o.Logger); err != nil {
			return nil, err
		}
		s.limiter.secure = s.cert.Config(protocols(o.HTTP2)...)
	}
	s.metrics.follow(s.pool, s.limiter, s.cert, &s.opts)
	s.proxy = newProxy(s.pool, s.limiter, &s.opts)
	s.reporter = newReporter(&s.opts, s.pool)
	return s, nil
}

// eachClient returns the limit of connections of one client.
func (s *Server) eachClient(o *Options) int {
	if o.MaxConnsPerClient != nil {
		return *o.MaxConnsPerClient
	}
	return (s.files.clients + 1) / 2
}

// Reconfigure applies changed options without interruption: Scheduling, if it differs from the last configured one, Health, MaxConns,
// MaxConnsPerClient, TrustedProxies, NameInstance, LoadReports, DefaultHost, Upgrades, Drain, Period, and Timeouts except Idle and
// ReadHeader. All other options keep the value they had at the start. If options are invalid, it changes nothing and returns a
// *quell.UserError.
func (s *Server) Reconfigure(o Options) error {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	changed := s.opts
	changed.Health, changed.TrustedProxies = o.Health, o.TrustedProxies
	changed.NameInstance, changed.DefaultHost, changed.Upgrades = o.NameInstance, o.DefaultHost, o.Upgrades
	changed.LoadReports = o.LoadReports
	changed.MaxConns, changed.MaxConnsSet, changed.MaxConnsPerClient = o.MaxConns, o.MaxConnsSet, o.MaxConnsPerClient
	changed.Drain, changed.Period, changed.Fast, changed.Timeouts = o.Drain, o.Period, o.Fast, o.Timeouts
	files, err := shareOut(connlimit.Files(), o.MaxConns)
	if err != nil {
		return err
	}
	if o.Scheduling != s.configured {
		if err := s.pool.setScheduling(o.Scheduling); err != nil {
			return &quell.UserError{Err: fmt.Errorf("balancer: %w", err)}
		}
		s.scheduling, s.configured = o.Scheduling, o.Scheduling
	}
	s.files = files
	s.pool.places.most.Store(int64(files.upstream))
	s.limiter.rules.Store(clientRulesOf(&changed))
	s.limiter.resize(files.clients, s.eachClient(&changed))
	s.pool.configure(&changed)
	s.reporter.pace.Set(changed.Period, changed.Fast)
	s.warnOfFiles(&changed)
	return nil
}

func (s *Server) warnOfFiles(o *Options) {
	if advice := s.files.shortfall(o.MaxConns); advice != "" {
		level := slog.LevelInfo
		if o.MaxConnsSet {
			level = slog.LevelWarn
		}
		o.Logger.Log(context.Background(), level, "the limit of open files leaves room for fewer clients than balancer.max_conns: "+advice,
			"open_files", s.files.limit, "max_conns", o.MaxConns, "clients", s.files.clients)
	}
}

// Start returns when the server listens on all its addresses. It begins with the backends that it had before a restart. The context limits
// only the start.
func (s *Server) Start(ctx context.Context) error {
	if err := s.listen(ctx); err != nil {
		s.closeEndpoints()
		return err
	}
	s.started = time.Now()
	s.recall()
	s.pool.assume(s.opts.Inherited.Healthy)
	loops, stop := context.WithCancel(context.Background())
	s.stopLoops = stop
	reports, stopReports := context.WithCancel(loops)
	s.stopReports = stopReports
	s.loops.Go(func() { s.reporter.run(reports) })
	if s.cert != nil {
		s.loops.Go(func() { s.cert.Follow(loops) })
	}
	for _, e := range s.endpoints() {
		s.loops.Go(func() { e.serve(s.opts.Logger) })
	}
	s.warnOfFiles(&s.opts)
	s.opts.Logger.Info("balancer is listening", "address", s.Addr(), "tls", s.cert != nil, "scheduling", s.scheduling)
	return nil
}

// listen opens the admin socket last, so that the server is complete when a client sees the socket.
func (s *Server) listen(ctx context.Context) error {
	have := s.opts.Inherited.fitting(&s.opts)
	if s.opts.Admin != "" && have.Admin == nil {
		if err := checkSocketFree(s.opts.Admin); err != nil {
			return err
		}
	}
	ln, err := have.listenTCP(ctx, have.Traffic, "traffic", s.opts.Listen)
	if err != nil {
		return err
	}
	s.traffic = s.newEndpoint(ln, newLimitedListener(ln, s.limiter), s.proxy)
	s.traffic.server.ConnContext, s.traffic.server.ConnState = withInbound, followInbound
	s.traffic.server.Protocols = clientProtocols(s.opts.HTTP2)
	s.traffic.server.DisableGeneralOptionsHandler = true // OPTIONS * is for an instance as well
	if s.opts.Metrics != "" {
		if ln, err = have.listenTCP(ctx, have.Metrics, "metrics", s.opts.Metrics); err != nil {
			return err
		}
		s.metricsEnd = s.insideEndpoint(ln, s.metrics.handler(s.opts.Process, s.opts.Bus))
		s.metricsEnd.by = s.opts.ServeMetrics
	}
	if s.opts.Admin != "" {
		if ln, err = s.listenAdmin(have); err != nil {
			return err
		}
		s.admin = s.insideEndpoint(ln, s.adminHandler())
	}
	return nil
}

func (s *Server) listenAdmin(have Inherited) (net.Listener, error) {
	if have.Admin == nil {
		return listenUnix(s.opts.Admin)
	}
	ln := &unlinkingListener{Listener: have.Admin, path: s.opts.Admin}
	ln.kept.Store(have.Lasting)
	return ln, nil
}

// insideIdle is how long the clients of metrics and of the admin API may keep a connection without a request.
const insideIdle = 15 * time.Second

// insideEndpoint makes an endpoint for metrics or for the admin API. Its limit of connections keeps its clients from using up the files
// that are reserved for both.
func (s *Server) insideEndpoint(ln net.Listener, h http.Handler) *endpoint {
	limited := &connlimit.Listener{Listener: ln, Limiter: connlimit.New(connlimit.Beside(s.files.limit), s.opts.Logger)}
	e := s.newEndpoint(ln, limited, h)
	e.server.IdleTimeout = min(insideIdle, s.opts.Timeouts.Idle)
	connlimit.Guard(e.server)
	return e
}

// recall loads the backends that were stored before a restart. If their file cannot be read, it logs a warning and the server starts
// without them.
func (s *Server) recall() {
	if s.opts.Admin == "" {
		return
	}
	last, err := s.memory.load()
	if err != nil {
		s.opts.Logger.Warn("starting without backends", "error", err)
		return
	}
	specs := make([]quell.Backend, len(last))
	for i, b := range last {
		specs[i] = b.Backend
	}
	s.pool.apply(specs, time.Now())
	for _, b := range last {
		if b.ByHand != nil {
			s.pool.hold(b.ID, b.ByHand)
		}
	}
	s.recallOwner()
}

// recallOwner loads the owner that was stored before a restart, and gives it one lease time to return.
func (s *Server) recallOwner() {
	owner, err := s.memory.loadOwner()
	if err != nil {
		s.opts.Logger.Warn("starting without an owner: the first controller that comes is obeyed", "error", err)
		return
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	s.owner = ownership{owner, time.Now().Add(s.opts.Lease)}
}

// Apply replaces the backends by exactly these. If the list breaks a rule, it changes nothing and returns joined *quell.InvalidError
// values. A backend that is no longer listed, or is listed as draining, gets no new requests. Its open requests may finish until
// Options.Drain is over. A backend that is not listed disappears from State when its requests have ended.
func (s *Server) Apply(_ context.Context, desired []quell.Backend) error {
	if err := checkBackends(desired); err != nil {
		return err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	s.put(desired)
	return nil
}

// put applies backends that were checked, and stores them. The caller holds s.applying.
func (s *Server) put(desired []quell.Backend) {
	s.pool.apply(desired, time.Now())
	s.keep()
}

// keep stores the backends in force. The caller holds s.applying.
func (s *Server) keep() {
	list, known := s.pool.asked()
	if s.opts.Admin == "" || !known {
		return
	}
	if err := s.memory.save(list); err != nil {
		s.opts.Logger.Error("the backends are in force but a restart would forget them", "error", err)
	}
}

// Backends returns the present backends, for callers in the same process, such as the prober.
func (s *Server) Backends() []quell.BackendState { return s.pool.state() }

// Status returns the status that the admin socket reports.
func (s *Server) Status() Status {
	s.applying.Lock()
	defer s.applying.Unlock()
	return Status{
		Name: s.opts.Name, Service: s.opts.Service, Scheduling: s.scheduling, Started: s.started.UTC(),
		Unrouted: s.pool.unrouted.Load(), Backends: s.pool.state(), Owner: s.liveOwner(),
	}
}

// liveOwner returns the controller with a valid lease, nil if there is none. The caller holds s.applying.
func (s *Server) liveOwner() *quell.Owner {
	if s.owner.ID == "" || !time.Now().Before(s.owner.until) {
		return nil
	}
	return new(s.owner.Owner)
}

// SetScheduling changes the scheduling until the next restart.
func (s *Server) SetScheduling(scheduling quell.Scheduling) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if err := s.pool.setScheduling(scheduling); err != nil {
		return err
	}
	s.scheduling = scheduling
	return nil
}

// Addr returns the address for clients. It is known after Start.
func (s *Server) Addr() string { return s.traffic.listener.Addr().String() }

// Metrics returns everything that /metrics shows.
func (s *Server) Metrics() prometheus.Gatherer { return s.metrics.gatherer(s.opts.Process) }

// Shutdown stops accepting connections and lets open requests finish until the context ends. Then it cuts the others and stops everything.
// If something was cut, it returns the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.linger(ctx)
	err := s.drain(ctx)
	s.pool.close()
	s.stopLoops()
	s.closeEndpoints()
	s.proxy.active.Wait()
	s.pool.checks.Wait()
	s.loops.Wait()
	return err
}

// linger answers the last requests on kept connections while no new connections are accepted.
func (s *Server) linger(ctx context.Context) {
	if s.traffic == nil || s.opts.Linger <= 0 {
		return
	}
	s.proxy.ending.Store(true)
	s.traffic.listener.Close()
	over := time.After(s.opts.Linger)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for open := 1; open > 0; open, _ = s.limiter.counts() {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-look.C:
		}
	}
}

// drain waits for open requests and for upgraded connections, which http.Server does not track.
func (s *Server) drain(ctx context.Context) error {
	if s.traffic == nil {
		return nil
	}
	if err := s.traffic.server.Shutdown(ctx); err != nil {
		return fmt.Errorf("requests were cut off: %w", err)
	}
	done := make(chan struct{})
	go func() { s.proxy.active.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		if s.proxy.open.Load() == 0 {
			return nil // done is just about to be closed
		}
		return fmt.Errorf("upgraded connections were cut off: %w", ctx.Err())
	}
}

func (s *Server) closeEndpoints() {
	for _, e := range s.endpoints() {
		e.server.Close()
		e.listener.Close()
	}
}

func (s *Server) endpoints() []*endpoint {
	all := []*endpoint{s.traffic, s.metricsEnd, s.admin}
	return slices.DeleteFunc(all, func(e *endpoint) bool { return e == nil })
}

// endpoint is one listener with its handler.
type endpoint struct {
	socket   net.Listener // the listener as it was opened
	listener net.Listener // the same with a limit of connections
	server   *http.Server
	by       func(*http.Server, net.Listener) error // serves it; nil: plain HTTP
}

// newEndpoint makes an endpoint with limits of the time and size of request headers.
func (s *Server) newEndpoint(socket, limited net.Listener, h http.Handler) *endpoint {
	return &endpoint{socket: socket, listener: limited, server: &http.Server{
		Handler: h, ReadHeaderTimeout: s.opts.Timeouts.ReadHeader, IdleTimeout: s.opts.Timeouts.Idle,
		MaxHeaderBytes: s.opts.MaxHeaderBytes, ErrorLog: outage.ErrorLog(s.opts.Logger),
	}}
}

func (e *endpoint) serve(log *slog.Logger) {
	serve := e.by
	if serve == nil {
		serve = (*http.Server).Serve
	}
	if err := serve(e.server, e.listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		log.Error("stopped listening", "address", e.listener.Addr().String(), "error", err)
	}
}
