package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent"
	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/probe/local"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/sensor/credits"
	"github.com/quellhq/quell/setting"
)

// generation is the set of parts made from one reading of the configuration.
type generation struct {
	file     *config.File   // of the first service
	agent    *agent.Agent   // nil: no service
	loop     *host.Loop     // nil without a policy of the agent's own
	credits  credits.Driver // nil: no provider shows credits
	sensors  []*sensor.Set  // none: no service
	probes   *local.Probes
	server   *probe.Server // nil: no service
	registry *prometheus.Registry
	listener *net.TCPListener // kept open when the agent's own listener on the same socket is closed; nil: no service
	inForce  func()           // says that it runs now; nil if it is the process's first
}

func (g *generation) close() error {
	if g.listener == nil {
		return nil
	}
	return g.listener.Close()
}

// listensOnPortOf returns whether its probe server has the port of an address.
func (g *generation) listensOnPortOf(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && g.listener != nil && port == strconv.Itoa(g.listener.Addr().(*net.TCPAddr).Port)
}

// alive returns an error if a loop of its parts hangs.
func (g *generation) alive() error {
	var errs []error
	if g.agent != nil {
		errs = append(errs, g.agent.Alive())
	}
	if g.loop != nil {
		errs = append(errs, g.loop.Alive())
	}
	return errors.Join(errs...)
}

// run runs all parts until ctx ends or one of the parts ends.
func (g *generation) run(ctx context.Context) error {
	var parts []func(context.Context) error
	if g.agent != nil {
		parts = append(parts, g.agent.Run)
	}
	if g.loop != nil {
		parts = append(parts, g.loop.Run)
	}
	if g.probes != nil {
		parts = append(parts, g.probes.Run)
	}
	if g.credits != nil {
		parts = append(parts, g.credits.Run)
	}
	for _, set := range g.sensors {
		defer func() { _ = set.Close() }() // they were only read
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, len(parts))
	for _, part := range parts {
		go func() {
			defer stop()
			done <- part(ctx)
		}()
	}
	<-ctx.Done()
	var errs []error
	for range parts {
		errs = append(errs, <-done)
	}
	return errors.Join(errs...)
}

// prepare opens everything that a configuration needs, but starts nothing.
func (r *reporter) prepare(files []*config.File) (*generation, error) {
	file := files[0]
	if file.Local() {
		registry := prometheus.NewRegistry()
		balances, err := shownCredits(file)
		if err != nil {
			return nil, err
		}
		loop, err := r.own.loop(file, registry, balances)
		return &generation{file: file, loop: loop, credits: balances, registry: registry}, err
	}
	listener, err := net.Listen("tcp", file.Probe.Listen)
	if err != nil {
		return nil, fmt.Errorf("opening the probe server (probe.listen): %w; choose another address or stop what uses it", err)
	}
	g, err := r.prepareOn(listener.(*net.TCPListener), files)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return g, nil
}

func (r *reporter) prepareOn(listener *net.TCPListener, files []*config.File) (*generation, error) {
	file := files[0]
	server, err := NewProbeServer(file, r.log)
	if err != nil {
		return nil, err
	}
	balances, err := shownCredits(file)
	if err != nil {
		return nil, err
	}
	requests, err := ownRequests(file, file.Service.Sampling)
	if err != nil {
		return nil, err
	}
	sensors, probes, err := Sensors(file, server.BytesSent, append(creditSensors(balances), requests.sensors()...)...)
	if err != nil {
		return nil, err
	}
	if why := sensors.Substitute(); why != "" {
		r.log.Info("the own use of the processors stands in for that of the memory", "because", why)
	}
	registry := prometheus.NewRegistry()
	loop, err := r.own.loop(file, registry, balances)
	if err != nil {
		return nil, err
	}
	own, err := again(listener)
	if err != nil {
		return nil, err
	}
	fastest, fastPeriod := fastestOf(files)
	fast, err := fastSensors(fastest, server.BytesSent)
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	o := agent.Options{
		Service: namesOf(files), Instance: r.instance, Period: file.Service.Sampling, Sampler: sensors,
		Publish: r.publish, ProbeServer: server, ProbeListener: own, Setters: r.setters,
		Logger: r.log, Metrics: registry, Counted: requests.counted(),
	}
	if loop != nil {
		o.Tenancy = r.own.tenancy
	}
	sets := []*sensor.Set{sensors}
	if fast != nil {
		o.Fast, o.FastSampler, sets = fastPeriod, fast, append(sets, fast)
	}
	a, err := agent.New(o)
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return &generation{file: file, agent: a, loop: loop, credits: balances, sensors: sets, probes: probes, server: server, registry: registry,
		listener: listener}, nil
}

// again returns another listener on the same socket. While the socket is open, connections wait in its queue even if no listener
// accepts them.
func again(listener *net.TCPListener) (net.Listener, error) {
	file, err := listener.File()
	if err != nil {
		return nil, fmt.Errorf("sharing the probe server's socket: %w", err)
	}
	defer file.Close()
	return net.FileListener(file)
}

// run runs one generation until ctx ends, or until a reload has made the next generation.
func (r *reporter) run(ctx context.Context, g *generation, reload <-chan os.Signal) (next *generation, err error) {
	r.present.Store(g)
	r.shown.Store(g.registry)
	r.now.Store(g.agent)
	if g.loop == nil {
		r.own.idle()
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- g.run(running) }()
	if g.inForce != nil {
		g.inForce()
	}
	for next == nil {
		select {
		case err := <-done:
			return nil, errors.Join(err, g.close())
		case <-reload:
			r.manager.reloading()
			if next = r.reload(g); next == nil {
				r.manager.reloaded(false)
			}
		}
	}
	stop()
	err = <-done
	if next.listener != g.listener {
		err = errors.Join(err, g.close())
	}
	return next, err
}

// reload reads the configuration again. It returns nil if a file has mistakes. Until the generation that it returns runs, the present one
// is in force.
func (r *reporter) reload(g *generation) (next *generation) {
	files, err := r.loadAgain()
	switch {
	case err != nil:
	case files[0].Local() != g.file.Local():
		err = errors.New("a service was added or taken away: restart the agent to apply this")
	case !files[0].Local() && files[0].Probe.Listen == g.file.Probe.Listen:
		next, err = r.prepareOn(g.listener, files)
	default:
		next, err = r.prepare(files)
		if errors.Is(err, syscall.EADDRINUSE) && g.listensOnPortOf(files[0].Probe.Listen) {
			err = &quell.UserError{Err: setting.Problems{files[0].Problem("probe.listen", fmt.Sprintf("probe.listen: %s is another address of "+
				"the port that this agent has open at %s: restart the agent to apply this", files[0].Probe.Listen, g.listener.Addr()))}}
		}
	}
	if err == nil && !files[0].Local() {
		if err = r.connect(files); err != nil && next.listener != g.listener {
			err = errors.Join(err, next.close())
		}
	}
	if err != nil {
		r.log.Error("the new configuration is bad: keeping the running one", "error", err)
		return nil
	}
	next.inForce = func() {
		logReload(r.log, config.AgentProcess, r.started, g.file, files[0], "restart the agent to apply this")
		r.manager.reloaded(true)
	}
	return next
}
