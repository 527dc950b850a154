package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent"
	"github.com/quellhq/quell/agent/orca"
	"github.com/quellhq/quell/agent/training"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/progress"
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
