package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent"
	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/agent/orca"
	"github.com/quellhq/quell/agent/training"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/probe/local"
	"github.com/quellhq/quell/progress"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/sensor/credits"
)

// Agent reports readings of its machine, answers probes, and runs the configured policy over the machine's control groups, until
// ctx ends, or until the process that holds the other end of its lifeline ends. If the configuration names no service, the agent only
// runs the policy and there is no bus. instance overrides agent.instance. Each value from reload makes the agent read the configuration
// again; if that has mistakes they are logged and the agent keeps the old one.
func Agent(ctx context.Context, path, instance string, reload <-chan os.Signal, log *slog.Logger) error {
	ctx, cancel, _, err := lifeline.Tie(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return (&reporter{path: path, log: log, manager: serviceManager{log, newSelf()}}).live(ctx, instance, reload)
}

func (r *reporter) live(ctx context.Context, instance string, reload <-chan os.Signal) (err error) {
	files, err := r.load(instance)
	if err != nil {
		return err
	}
	file := files[0]
	r.started = file
	log := r.log
	if err := r.introduce(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.own.close()) }()
	r.trainee = r.newTrainee()
	defer r.trainee.Close()
	if !file.Local() {
		defer func() { err = errors.Join(err, r.outlets.serve(nil, nil)) }()
		if err := r.connect(files); err != nil {
			return err
		}
	}
	restore, err := r.openServers(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	unreport, err := r.report(files)
	if err != nil {
		return err
	}
	defer unreport()
	next, err := r.prepare(files)
	if err != nil {
		return err
	}
	r.present.Store(next)
	r.shown.Store(next.registry)
	r.now.Store(next.agent)
	stop, err := r.serve()
	if err != nil {
		return errors.Join(err, next.close())
	}
	defer stop()
	if file.Local() {
		log.Info("agent started", "host", r.instance, "policy", file.Agent.Policy.Chosen.Name)
	} else {
		log.Info("agent started", "service", namesOf(files), "instance", r.instance, "mode", file.Service.Mode, "bus", busOf(file), "probe",
			next.listener.Addr())
	}
	r.manager.ready()
	defer r.manager.stopping(stopWait)
	go r.manager.watchdog(ctx, func(context.Context) error { return r.present.Load().alive() })
	for next != nil && err == nil {
		next, err = r.run(ctx, next, reload)
	}
	return err
}

// introduce names the machine by its host's name if the configuration has no service and no name for it.
func (r *reporter) introduce() error {
	if r.instance == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("naming this machine (agent.instance does): %w", err)
		}
		r.instance = name
	}
	r.own = hostPolicy{name: r.instance, log: r.log, servers: map[string]*progress.Server{},
		misses: misses{log: r.log}}
	r.own.clear(limitsOf(r.started))
	return nil
}

// serve receives orders from the bus, if there is one, and answers requests for metrics and health.
func (r *reporter) serve() (stop func(), err error) {
	var connected func() error
	if !r.started.Local() {
		connected = r.outlets.err
	}
	if err := r.outlets.open(); err != nil {
		r.outlets.shut()
		return nil, err
	}
	metrics := agentMetrics(r.manager.self, &r.shown, connected)
	unserve, err := ServeHTTP("the agent's metrics", r.started.Agent.Metrics, r.started.Web, agentHandler(metrics, connected), r.log)
	if err != nil {
		r.outlets.shut()
		return nil, err
	}
	farewell, err := exportOTLP(context.Background(), "agent", r.instance, metrics, r.log)
	if err != nil {
		unserve()
		r.outlets.shut()
		return nil, err
	}
	return func() { farewell(); unserve(); r.outlets.shut() }, nil
}

// carryOut carries out orders from the bus.
func carryOut(ctx context.Context, a *agent.Agent, o bus.Orders) error {
	switch {
	case o.Release:
		return a.Release(ctx)
	case o.Training != nil:
		return errors.New("this is no agent of a whole machine: it cannot be trained on")
	case o.Report != nil:
		return errors.New("it reports to no balancers: set agent.reports to an address and restart the agent")
	}
	return a.Order(ctx, o.Settings)
}

// report opens the port at which balancers get load reports, if one is configured.
func (r *reporter) report(files []*config.File) (stop func(), err error) {
	address := r.started.Agent.Reports
	if address == "" || r.started.Local() {
		return func() {}, nil
	}
	r.reports = orca.New(time.Now, r.log)
	r.reports.Serve(serviceNames(files))
	r.manager.self.registry.MustRegister(r.reports)
	secure := r.started.Agent.Secure
	return r.reports.Listen(address, certfile.Files{Cert: secure.Cert, Key: secure.Key, ClientCA: secure.ClientCA})
}

// publish sends a reading of the machine to each service, and notes its use of resources for load reports.
func (r *reporter) publish(ctx context.Context, reading quell.Reading) error {
	if r.reports != nil && !reading.Fast {
		r.reports.Observe(reading.Observation.Utilization)
	}
	return r.outlets.publish(ctx, reading)
}

// reporter is an agent that can read its configuration again: each time it runs a new agent.Agent.
type reporter struct {
	path, instance string
	started        *config.File // the configuration at the start; of several services, that of the first
	outlets        outlets      // the connections of the services
	own            hostPolicy
	trainee        *training.Machine
	reports        *orca.Reports           // what balancers are told; nil: nothing
	setters        map[string]agent.Setter // by server
	log            *slog.Logger
	manager        serviceManager
	present        atomic.Pointer[generation] // the parts that run now
	shown          atomic.Pointer[prometheus.Registry]
	now            atomic.Pointer[agent.Agent] // the agent that receives orders now
}

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
}

func (g *generation) close() error {
	if g.listener == nil {
		return nil
	}
	return g.listener.Close()
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
	return &generation{file, a, loop, balances, sets, probes, server, registry, listener}, nil
}

// Sensors makes the sensors of a configuration's agent, and its probes; some of the sensors report the results of running probes.
// exclude returns how many of the bytes that the machine has sent are not the service's. more are sampled after all others.
func Sensors(file *config.File, exclude func() uint64, more ...sensor.Sensor) (*sensor.Set, *local.Probes, error) {
	o, probes, err := sensorOptions(file)
	if err != nil {
		return nil, nil, err
	}
	o.Exclude, o.More = exclude, append(o.More, more...)
	sensors, err := sensor.New(o)
	return sensors, probes, err
}

// unprobed are the options of sensors without probes.
func unprobed(file *config.File) sensor.Options {
	a := &file.Agent
	o := sensor.Options{
		Root: os.DirFS(a.Root), Interface: a.Interface, Capacity: capacities(file), DiskBytes: float64(a.DiskBytes), Cgroup: a.Cgroup,
		Wanted: a.Probing.Resources, Link: publishedLink(file),
	}
	if a.Counters {
		o.Events = sensor.KernelEvents(a.Root)
	}
	return o
}

// capacities returns the configured capacities of this machine. Without a capacity of its own network, it has that of every instance.
func capacities(file *config.File) map[quell.Resource]float64 {
	own := file.Agent.Capacity
	if _, known := own[quell.Network]; known || file.Probe.Capacity == 0 {
		return own
	}
	all := maps.Clone(own)
	if all == nil {
		all = map[quell.Resource]float64{}
	}
	all[quell.Network] = file.Probe.Capacity
	return all
}

// publishedLink returns what is published of the network of this machine's type, if the configuration names the type.
func publishedLink(file *config.File) sensor.Link {
	listed := ""
	members, _ := file.Scaler.Listed()
	if i := slices.IndexFunc(members, func(m quell.Member) bool { return m.ID == file.Agent.Instance }); i >= 0 {
		listed = members[i].Type
	}
	kind, ok := table.All.TypeOf(file.Service.Policy, listed)
	if !ok || kind.Network == nil {
		return sensor.Link{}
	}
	return sensor.Link{Type: kind.Name, Baseline: kind.Network.Baseline, Burst: kind.Network.Burst}
}

func sensorOptions(file *config.File) (o sensor.Options, probes *local.Probes, err error) {
	a := &file.Agent
	o = unprobed(file)
	probes, err = local.New(local.Options{
		Resources: a.Probing.Resources, Period: file.Service.Sampling, Budget: a.Probing.Budget, Run: a.Probing.Run, Buffer: a.Probing.Buffer,
		Folder: file.ProbeDir(), Writes: a.Probing.Writes, Cores: a.Capacity[quell.CPU], Operations: a.Capacity[quell.Disk], Root: o.Root,
		Seed: rand.Uint64(),
	})
	if err == nil {
		o.More = probes.Sensors()
	}
	return o, probes, err
}

// Signals measures this machine with the sensors and probes of a configuration's agent, for two periods of the given length, and returns
// which signals the machine offers.
func Signals(ctx context.Context, file config.File, period time.Duration) ([]sensor.Signal, error) {
	file.Service.Sampling = period
	o, probes, err := sensorOptions(&file)
	if err != nil {
		return nil, err
	}
	requests, err := ownRequests(&file, period)
	if err != nil {
		return nil, err
	}
	o.More = append(o.More, requests.sensors()...)
	sensors, err := sensor.New(o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sensors.Close() }() // they were only read
	probing, stop := context.WithCancel(ctx)
	stopped := make(chan error)
	go func() { stopped <- probes.Run(probing) }()
	defer func() { stop(); <-stopped }()
	sensors.Sample(time.Now()) // sets the starting point
	if !tick.NewSubsamples(sensors, nil).Until(ctx, time.Now().Add(2*period)) {
		return nil, ctx.Err()
	}
	obs, failures := sensors.Sample(time.Now())
	return sensor.Signals(o, &obs, failures), nil
}

// fastSensors makes the sensors that are read once per period of the fast policy; nil if that policy does not use them. Each set of sensors
// measures from its own last reading.
func fastSensors(file *config.File, exclude func() uint64) (*sensor.Set, error) {
	if file == nil || !table.All.UsesAgents(file.Service.Policy.Fast) {
		return nil, nil
	}
	requests, err := ownRequests(file, file.Service.Policy.Fast.Sampling)
	if err != nil {
		return nil, err
	}
	o := unprobed(file)
	o.Exclude, o.More = exclude, requests.sensors()
	return sensor.New(o)
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
	for next == nil {
		select {
		case err := <-done:
			return nil, errors.Join(err, g.close())
		case <-reload:
			r.manager.reload(func() (ok bool) {
				next, ok = r.reload(g)
				return ok
			})
		}
	}
	stop()
	err = <-done
	if next.listener != g.listener {
		err = errors.Join(err, g.close())
	}
	return next, err
}

// reload reads the configuration again. It returns nil if nothing changes for the agent, and false if a file has mistakes.
func (r *reporter) reload(g *generation) (next *generation, ok bool) {
	files, err := r.loadAgain()
	switch {
	case err != nil:
	case files[0].Local() != g.file.Local():
		err = errors.New("a service was added or taken away: restart the agent to apply this")
	case !files[0].Local() && files[0].Probe.Listen == g.file.Probe.Listen:
		next, err = r.prepareOn(g.listener, files)
	default:
		next, err = r.prepare(files)
	}
	if err == nil && !files[0].Local() {
		if err = r.connect(files); err != nil && next.listener != g.listener {
			err = errors.Join(err, next.close())
		}
	}
	if err != nil {
		r.log.Error("the new configuration is bad: keeping the running one", "error", err)
		return nil, false
	}
	file := files[0]
	logReload(r.log, config.AgentProcess, r.started, g.file, file, "restart the agent to apply this")
	return next, true
}

// agentMetrics gathers the metrics of an agent's process and of the agent that runs now. connected is nil if there is no bus.
func agentMetrics(self *self, shown *atomic.Pointer[prometheus.Registry], connected func() error) prometheus.Gatherer {
	own := prometheus.NewRegistry()
	if connected != nil {
		own.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quell_agent_bus_connected", Help: "1 while the agent is connected to the bus.",
		}, func() float64 {
			if connected() != nil {
				return 0
			}
			return 1
		}))
	}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return prometheus.Gatherers{own, self.registry, shown.Load()}.Gather()
	})
}

// agentHandler serves /metrics, /healthz (the process is alive) and /readyz (its readings reach the bus, if there is one).
// connected is nil if there is none.
func agentHandler(metrics prometheus.Gatherer, connected func() error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if connected != nil {
			if err := connected(); err != nil {
				http.Error(w, "bus: "+err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}

// NewProbeServer makes the probe server of a configuration.
func NewProbeServer(file *config.File, log *slog.Logger) (*probe.Server, error) {
	token, err := config.Token(file.Probe.Token, file.Probe.TokenFile)
	if err != nil {
		return nil, err
	}
	return probe.NewServer(probe.ServerOptions{Token: token, Logger: log}), nil
}

// Report runs an agent with the given sensors and without a probe server until ctx ends.
func Report(ctx context.Context, file *config.File, instance string, sensors agent.Sampler, log *slog.Logger) error {
	conn, err := join(file, nil, auth.Sensor, instance, log)
	if err != nil {
		return err
	}
	defer conn.Close()
	a, err := agent.New(agent.Options{
		Service: file.Service.Name, Instance: instance, Period: file.Service.Sampling,
		Sampler: sensors, Publish: publisher(conn), Logger: log,
	})
	if err != nil {
		return err
	}
	unserve, err := conn.ServeOrders(file.Service.Name, instance, func(ctx context.Context, o bus.Orders) (any, error) {
		return nil, carryOut(ctx, a, o)
	})
	if err != nil {
		return err
	}
	defer unserve()
	return a.Run(ctx)
}
