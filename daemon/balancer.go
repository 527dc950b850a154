package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/probe"
)

// Balancer runs the built-in balancer, and beside it the prober, until ctx ends.
func Balancer(ctx context.Context, path string, log *slog.Logger) (err error) {
	file, err := config.Load(path)
	if err != nil {
		return err
	}
	if file.Balancer.Kind != config.BuiltinBalancer {
		return &quell.UserError{Err: errors.New(path + ": balancer.kind is not builtin: there is no balancer of Quell's own to run")}
	}
	ctx, cancel, _, err := tied(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	conn, err := join(file, nil, "balancer "+file.Balancer.Name, log)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := os.MkdirAll(filepath.Dir(file.Balancer.Admin), 0o700); err != nil {
		return fmt.Errorf("making the folder of balancer.admin: %w", err)
	}
	server, err := newServer(file, conn, log)
	if err != nil {
		return err
	}
	if err := server.Start(ctx); err != nil {
		return err
	}
	if err := seed(ctx, server, file); err != nil {
		return errors.Join(err, shutdown(server))
	}
	log.Info("balancer started", "service", file.Service.Name, "mode", file.Service.Mode, "bus", busOf(file), "listen", server.Addr(), "scheduling", file.Balancer.Scheduling, "admin", file.Balancer.Admin)
	var parts sync.WaitGroup
	if file.Probe.From == config.FromBalancer {
		prober, err := newProber(file, file.Balancer.Name, func() []probe.Target { return followed(server) }, publisher(conn), log)
		if err != nil {
			log.Error("nothing is probed, traffic flows on", "error", err) // a mistake in probe must not stop the service
		} else {
			parts.Go(func() { prober.Run(ctx) })
		}
	}
	<-ctx.Done()
	parts.Wait()
	return shutdown(server)
}

func newServer(file *config.File, conn *bus.Conn, log *slog.Logger) (*builtin.Server, error) {
	b := file.Balancer
	return builtin.New(builtin.Options{
		Name: b.Name, Service: file.Service.Name, Listen: b.Listen, Admin: b.Admin, Metrics: b.Metrics,
		Scheduling: b.Scheduling, MaxConns: b.MaxConns, MaxConnsPerClient: b.MaxConnsPerClient, TrustedProxies: b.TrustedProxies,
		Drain: b.Drain, Period: file.Service.Sampling, Health: builtin.Health(b.Health),
		Timeouts: builtin.Timeouts{
			Connect: b.Timeouts.Connect, ResponseHeader: b.Timeouts.Header, Idle: b.Timeouts.Idle, ReadHeader: b.Timeouts.ReadHeader,
			UpstreamIdle: b.Timeouts.UpstreamIdle, Body: b.Timeouts.Body, Write: b.Timeouts.Write, Upgrade: b.Timeouts.Upgrade,
		},
		Publish: func(_ context.Context, readings []quell.Reading) error {
			for _, r := range readings {
				if err := conn.PublishReading(r); err != nil {
					return err // the others would fail likewise
				}
			}
			return nil
		},
		Bus:    conn.Err,
		Logger: log,
	})
}

// seed gives a balancer that knows no backends those of a fixed fleet, in equal shares, so that traffic flows before
// and without a controller.
func seed(ctx context.Context, server *builtin.Server, file *config.File) error {
	if len(server.Backends()) > 0 || file.Scaler.Kind != config.FixedScaler {
		return nil
	}
	var backends []quell.Backend
	for _, m := range file.Scaler.Instances {
		backends = append(backends, quell.Backend{ID: m.ID, Address: m.Address, Probe: m.Probe, Weight: 1 / float64(len(file.Scaler.Instances))})
	}
	return server.Apply(ctx, backends)
}

func shutdown(server *builtin.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	return server.Shutdown(ctx)
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

// newProber makes the prober that a configuration asks for.
func newProber(file *config.File, sender string, targets func() []probe.Target, publish func(context.Context, quell.Reading) error, log *slog.Logger) (*probe.Prober, error) {
	token, err := config.Token(file.Probe.Token, file.Probe.TokenFile)
	if err != nil {
		return nil, err
	}
	p := file.Probe
	o := probe.Options{
		Service: file.Service.Name, Sender: sender, Targets: targets, Period: file.Service.Sampling, Count: p.Count,
		Size: p.Size, Budget: p.Budget, Token: token, Timeout: min(p.Timeout, file.Service.Sampling), Publish: publish,
		Seed: uint64(time.Now().UnixNano()), Logger: log,
	}
	if p.Capacity > 0 {
		o.Capacity = &p.Capacity
	} else if c, ok := file.Agent.Capacity[quell.Network]; ok {
		o.Capacity = &c
	}
	return probe.NewProber(o)
}
