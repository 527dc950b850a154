package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/testbed/emulated"
)

// Agent reports from the machine it runs on, and answers probes, until ctx ends. instance overrides the
// configuration's.
func Agent(ctx context.Context, path, instance string, log *slog.Logger) error {
	file, err := config.Load(path)
	if err != nil {
		return err
	}
	if instance == "" {
		instance = file.Agent.Instance
	}
	if instance == "" {
		return &quell.UserError{Err: fmt.Errorf("%s: agent.instance is not set: name the instance there or with --instance", path)}
	}
	if err := file.CheckInstance(instance); err != nil {
		return err
	}
	conn, err := join(file, nil, "agent "+instance, log)
	if err != nil {
		return err
	}
	defer conn.Close()
	server, err := newProbeServer(file, log)
	if err != nil {
		return err
	}
	sensors, err := sensor.New(sensor.Options{Root: os.DirFS(file.Agent.Root), Interface: file.Agent.Interface, Capacity: file.Agent.Capacity, Cgroup: file.Agent.Cgroup, Exclude: server.BytesSent})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	shut, err := serveHTTP("the agent's metrics", file.Agent.Metrics, agentHandler(registry, conn), log)
	if err != nil {
		return err
	}
	defer shut()
	listener, err := net.Listen("tcp", file.Probe.Listen)
	if err != nil {
		return fmt.Errorf("opening the probe server (probe.listen): %w; choose another address or stop what uses it", err)
	}
	a, err := agent.New(agent.Options{
		Service: file.Service.Name, Instance: instance, Period: file.Service.Sampling, Sampler: sensors,
		Publish: publisher(conn), ProbeServer: server, ProbeListener: listener, Logger: log, Metrics: registry,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	log.Info("agent started", "service", file.Service.Name, "instance", instance, "mode", file.Service.Mode, "bus", busOf(file), "probe", listener.Addr())
	return a.Run(ctx)
}

// agentHandler serves /metrics, /healthz (the process is alive) and /readyz (its readings reach the bus).
func agentHandler(registry *prometheus.Registry, conn *bus.Conn) http.Handler {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quell_agent_bus_connected", Help: "1 while the agent is connected to the bus.",
	}, func() float64 {
		if conn.Err() != nil {
			return 0
		}
		return 1
	}))
	mux := http.NewServeMux()
	mux.Handle("GET /", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := conn.Err(); err != nil {
			http.Error(w, "bus: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}

func newProbeServer(file *config.File, log *slog.Logger) (*probe.Server, error) {
	token, err := config.Token(file.Probe.Token, file.Probe.TokenFile)
	if err != nil {
		return nil, err
	}
	return probe.NewServer(probe.ServerOptions{Token: token, Logger: log}), nil
}

// Host is an emulated machine to run; see emulated.HostOptions.
type Host struct {
	emulated.HostOptions
	Config string // the service's configuration; empty: no agent on the machine
}

// Run runs the machine, its service, its probe server and its agent until ctx ends or the lifeline breaks.
func (h Host) Run(ctx context.Context, log *slog.Logger) (err error) {
	options := h.HostOptions
	options.Logger = log
	if options.Lifeline, err = Lifeline(); err != nil {
		return err
	}
	if h.Config != "" {
		file, err := config.Load(h.Config)
		if err != nil {
			return err
		}
		server, err := newProbeServer(file, log)
		if err != nil {
			return err
		}
		options.ProbeHandler = server
		options.Agent = func(ctx context.Context, root fs.FS) error { return h.agent(ctx, file, server, root, log) }
	}
	host, err := emulated.NewHost(options)
	if invalid := new(quell.InvalidError); errors.As(err, &invalid) {
		return &quell.UserError{Err: err}
	}
	if err != nil {
		return err
	}
	return host.Run(ctx)
}

// agent runs the ordinary agent on the machine's own file system.
func (h Host) agent(ctx context.Context, file *config.File, server *probe.Server, root fs.FS, log *slog.Logger) error {
	conn, err := join(file, nil, "agent "+h.Instance, log)
	if err != nil {
		return err
	}
	defer conn.Close()
	network, err := sensor.NewNetwork(sensor.Options{Root: root, Exclude: server.BytesSent, Capacity: map[quell.Resource]float64{quell.Network: float64(h.Bandwidth)}})
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Options{
		Service: file.Service.Name, Instance: h.Instance, Period: file.Service.Sampling,
		Sampler: sensor.NewSet(network), Publish: publisher(conn), Logger: log,
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
