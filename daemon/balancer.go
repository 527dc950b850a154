package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/internal/webfile"
	"github.com/quellhq/quell/probe"
)

// BalancerRun says how a balancer is started, in addition to its configuration.
type BalancerRun struct {
	Service  string           // which of several services; empty: the only one
	TakeOver bool             // take the listening sockets over from a running balancer
	Reload   <-chan os.Signal // each value makes it read the configuration again; one with mistakes is logged and not used
	Stop     <-chan os.Signal // also gets the signals that end ctx: the second one ends the process at once, without waiting for requests
}

// ErrHandedOver says that a balancer ends because another process has taken over. It is not a failure.
var ErrHandedOver = errors.New("another process has taken over")

// Balancer runs the built-in balancer, and the prober in the same process. It ends when ctx ends or, with ErrHandedOver, when
// another process has taken over. In both cases it then gives open requests the time balancer.drain to finish.
func Balancer(ctx context.Context, path string, run BalancerRun, log *slog.Logger) (err error) {
	file, settings, err := loadBalancer(path, run.Service)
	if err != nil {
		return err
	}
	asked := ctx
	ctx, cancel, _, err := lifeline.Tie(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	conn, err := join(file, nil, auth.Balancer, file.Balancer.Name, log)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := os.MkdirAll(filepath.Dir(settings.Admin), 0o700); err != nil {
		return fmt.Errorf("making the folder of balancer.admin: %w", err)
	}
	self := newSelf()
	server, err := startServer(ctx, file, settings, conn, self, run.TakeOver, log)
	if err != nil {
		return err
	}
	farewell, err := exportOTLP(ctx, "balancer", file.Balancer.Name, server.Metrics(), log)
	if err != nil {
		return errors.Join(err, server.Shutdown(canceled(ctx)))
	}
	defer farewell()
	p := &running{path: path, service: run.Service, started: file, file: file, server: server, conn: conn, log: log,
		manager: serviceManager{log, self}}
	p.probe(ctx, p.atStart(p.prober(file)))
	p.manager.ready()
	watched, unwatched := context.WithCancel(context.WithoutCancel(ctx))
	defer unwatched()
	go p.manager.watchdog(watched, answers(settings.Admin))
	stop := p.until(ctx, run.Reload)
	p.stopProbing()
	p.manager.stopping(p.file.Balancer.Drain + stopWait)
	if stop == toldTo { // its admin socket closes; after a hand-over the other process answers there
		unwatched()
	}
	limit, cut := p.file.Balancer.Drain, run.Stop
	switch {
	case stop == handedOver: // this process no longer listens: a first signal ends it at once
		watchStop, cancelWatch := context.WithCancel(ctx)
		defer cancelWatch()
		return errors.Join(ErrHandedOver, p.drain(watchStop, limit, nil))
	case asked.Err() == nil: // the parent process has ended
		limit, cut = min(limit, stopWait), nil
	}
	return p.drain(context.WithoutCancel(ctx), limit, cut)
}

// answers asks the balancer at an admin socket for its state.
func answers(socket string) func(context.Context) error {
	client := builtin.NewClient(socket)
	return func(ctx context.Context) error {
		_, err := client.Status(ctx)
		return err
	}
}

// LoadService reads the configuration of a service; name says which, if there are several.
func LoadService(path, name string) (*config.File, error) {
	if name == "" {
		return Drivers().Load(path)
	}
	fleet, err := Drivers().LoadFleet(path)
	if err != nil {
		return nil, err
	}
	for _, file := range fleet.Services {
		if file.Service.Name == name {
			return file, nil
		}
	}
	return nil, errors.Join(&quell.UserError{Err: fmt.Errorf("%s names no service %q", path, name)}, fleet.Err())
}

// loadBalancer reads a configuration, whose balancer must be the built-in one.
func loadBalancer(path, service string) (*config.File, *builtin.Settings, error) {
	file, err := LoadService(path, service)
	if err != nil {
		return nil, nil, err
	}
	settings, ok := file.Balancer.Settings.(*builtin.Settings)
	if !ok {
		return nil, nil, &quell.UserError{Err: errors.New(file.Path +
			": balancer.kind is not builtin: quell balancer runs only the built-in balancer")}
	}
	return file, settings, checkWeb(file)
}

// startServer starts the server on new sockets, on those of systemd, or on those of the balancer from which it takes
// over.
func startServer(
	ctx context.Context, file *config.File, settings *builtin.Settings, conn *bus.Conn, self *self, takeOver bool, log *slog.Logger,
) (*builtin.Server, error) {
	options := balancerOptions(file, settings, conn, log)
	options.Process = self.registry
	options.ServeMetrics = func(s *http.Server, ln net.Listener) error { return webfile.Serve(file.Web, s, ln, log) }
	var err error
	if options.Inherited, err = activated(settings); err != nil {
		return nil, err
	}
	var from *builtin.TakeOver
	if takeOver {
		from, err = builtin.AskToTakeOver(ctx, settings.Admin)
		switch {
		case errors.Is(err, builtin.ErrNobody):
			log.Info("no balancer runs: there is nothing to take over", "admin", settings.Admin)
		case err != nil:
			return nil, err
		default:
			defer from.Close()
			options.Inherited = from.Inherited
		}
	}
	server, err := builtin.New(options)
	if err != nil {
		return nil, err
	}
	if err := server.Start(ctx); err != nil {
		return nil, err
	}
	if err := seed(ctx, server, file); err != nil {
		return nil, errors.Join(err, server.Shutdown(canceled(ctx)))
	}
	if from != nil {
		if err := from.Serving(); err != nil {
			log.Warn("the balancer that ran may have ended by itself", "error", err)
		}
	}
	log.Info("balancer started", "service", file.Service.Name, "mode", file.Service.Mode, "bus", busOf(file), "listen", server.Addr(),
		"scheduling", settings.Scheduling, "admin", settings.Admin, "took_over", from != nil)
	return server, nil
}

func canceled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// running is a running balancer. Only one goroutine uses its fields.
type running struct {
	path, service string
	started, file *config.File // the configuration at the start, and the one in force
	server        *builtin.Server
	conn          *bus.Conn
	log           *slog.Logger
	manager       serviceManager
	stopProbing   func()
}

// prober makes the prober of a configuration; nil if the balancer has none.
func (p *running) prober(file *config.File) (*probe.Prober, error) {
	if file.Probe.From != config.FromBalancer {
		return nil, nil
	}
	if file.Unprobed() {
		tellUnprobed(file, p.log)
		return nil, nil
	}
	file = p.probed(file)
	return newProber(file, file.Balancer.Name, func() []probe.Target { return followed(p.server) }, publisher(p.conn), p.log)
}

// atStart logs why there is no prober: when the balancer starts, a mistake in the section probe must not stop the service.
func (p *running) atStart(prober *probe.Prober, err error) *probe.Prober {
	if err != nil {
		p.log.Error("nothing is probed, traffic flows on", "error", err)
	}
	return prober
}

// probe lets a prober run until stopProbing is called; nil: none.
func (p *running) probe(ctx context.Context, prober *probe.Prober) {
	p.stopProbing = func() {}
	if prober == nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { prober.Run(ctx); close(done) }()
	p.stopProbing = func() { cancel(); <-done }
}

// probed is the configuration by which the prober works: the one in force, with the names of the start. The balancer's readings have these
// names, too, until it is restarted.
func (p *running) probed(inForce *config.File) *config.File {
	file := *inForce
	file.Service.Name, file.Balancer.Name = p.started.Service.Name, p.started.Balancer.Name
	return &file
}

// reason is why a balancer ends.
type reason int

const (
	toldTo reason = iota
	handedOver
)

// until handles reloads until the balancer has to end.
func (p *running) until(ctx context.Context, reload <-chan os.Signal) reason {
	for {
		select {
		case <-ctx.Done():
			return toldTo
		case <-p.server.HandedOver():
			return handedOver
		case <-reload:
			p.manager.reload(func() bool { return p.reload(ctx) })
		}
	}
}

// reload applies a changed configuration, or keeps the running one and returns false.
func (p *running) reload(ctx context.Context) bool {
	file, settings, err := loadBalancer(p.path, p.service)
	var prober *probe.Prober
	if err == nil { // the keys of probe, or the content of its token file, may have changed
		prober, err = p.prober(file)
	}
	if err == nil {
		err = p.server.Reconfigure(balancerOptions(file, settings, p.conn, p.log))
	}
	if err != nil {
		p.log.Error("the new configuration is bad: keeping the running one", "error", err)
		return false
	}
	before := p.file
	p.file = file
	p.stopProbing()
	p.probe(ctx, prober)
	logReload(p.log, config.BalancerProcess, p.started, before, file,
		"restart the balancer to apply this, without a gap by `quell balancer --take-over` unless an address changed and its port did not")
	return true
}

// drain waits for open requests to finish: at most for the given time, until ctx ends, or until stop gives its second value.
func (p *running) drain(ctx context.Context, limit time.Duration, stop <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		for range 2 { // the first signal is why the balancer stops
			select {
			case <-stop:
			case <-finished:
				return
			}
		}
		cancel()
	}()
	p.log.Info("balancer stops: open requests may finish", "within", limit, "open", open(p.server))
	if err := p.server.Shutdown(ctx); err != nil {
		p.log.Warn("requests were cut off at the end of balancer.drain, or by a second signal", "error", err)
	}
	p.log.Info("balancer stopped")
	return nil
}

// open counts the requests that the server has not yet finished.
func open(server *builtin.Server) (n int64) {
	for _, b := range server.Backends() {
		n += b.InFlight
	}
	return n
}

// linger is how long idle connections stay open for a last request when a balancer stops.
const linger = time.Second

func balancerOptions(file *config.File, settings *builtin.Settings, conn *bus.Conn, log *slog.Logger) builtin.Options {
	o := settings.Options(serviceOf(file, log))
	o.Linger, o.Bus = linger, conn.Err
	o.Publish = func(_ context.Context, readings []quell.Reading) error {
		for _, r := range readings {
			if err := conn.PublishReading(r); err != nil {
				return err // the other sockets would fail for the same reason
			}
		}
		return nil
	}
	return o
}

// seed gives the machines of a fixed list, with equal shares, to a balancer that has no backends. So traffic flows before the
// controller runs.
func seed(ctx context.Context, server *builtin.Server, file *config.File) error {
	members, fixed := file.Scaler.Listed()
	if len(server.Backends()) > 0 || !fixed {
		return nil
	}
	var backends []quell.Backend
	for _, m := range members {
		backends = append(backends, quell.Backend{ID: m.ID, Address: m.Address, Probe: m.Probe, Weight: 1 / float64(len(members))})
	}
	return server.Apply(ctx, backends)
}

func publisher(conn *bus.Conn) func(context.Context, quell.Reading) error {
	return func(_ context.Context, r quell.Reading) error { return conn.PublishReading(r) }
}

// followed lists the probe servers of a balancer's backends.
func followed(server *builtin.Server) []probe.Target {
	var targets []probe.Target
	for _, b := range server.Backends() {
		if b.Probe != "" && !b.Draining {
			targets = append(targets, probe.Target{Instance: b.ID, Address: b.Probe})
		}
	}
	return targets
}

// tellUnprobed says why no prober runs.
func tellUnprobed(file *config.File, log *slog.Logger) {
	log.Info("nothing is probed: neither probe.capacity nor probe.size is set, and the policy needs no probes",
		"policy", file.Service.Policy.Name)
}

// newProber makes the prober that a configuration asks for.
func newProber(
	file *config.File, sender string, targets func() []probe.Target, publish func(context.Context, quell.Reading) error, log *slog.Logger,
) (*probe.Prober, error) {
	token, err := config.Token(file.Probe.Token, file.Probe.TokenFile)
	if err != nil {
		return nil, err
	}
	o := probing(file)
	o.Sender, o.Targets, o.Token, o.Publish = sender, targets, token, publish
	o.Seed, o.Logger = uint64(time.Now().UnixNano()), log
	return probe.NewProber(o)
}

// probing returns a prober's options from the configuration.
func probing(file *config.File) probe.Options {
	p := file.Probe
	o := probe.Options{
		Service: file.Service.Name, From: string(p.From), Period: file.Service.Sampling, Count: p.Count,
		Size: p.Size, Budget: p.Budget, Timeout: min(p.Timeout, file.Service.Sampling),
	}
	if p.Capacity > 0 {
		o.Capacity = &p.Capacity
	} else if c, ok := file.Agent.Capacity[quell.Network]; ok {
		o.Capacity = &c
	}
	return o
}

// TrainingProbes returns the options of downloads with which a training probes as live instances are probed.
func TrainingProbes(file *config.File) (o probe.Options, err error) {
	o = probing(file)
	o.Sender = "trainer"
	o.Token, err = config.Token(file.Probe.Token, file.Probe.TokenFile)
	return o, err
}

// Probing returns how instances are probed under this configuration; false if it does not determine that.
func Probing(file *config.File) (quell.Probing, bool) {
	prober, err := probe.NewProber(probing(file))
	if err != nil {
		return quell.Probing{}, false
	}
	return prober.Probing(), true
}
