package experiment

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/lab/testbed/emulated"
	"github.com/quellhq/quell/probe"
	"github.com/quellhq/quell/sensor"
)

// Host is an emulated machine that this process runs; see emulated.HostOptions.
type Host struct {
	emulated.HostOptions
	Config string // path of the service's configuration; empty: no agent on the machine
}

// Run runs the machine, its service, its probe server and its agent until ctx ends or the lifeline's other end is closed.
func (h Host) Run(ctx context.Context, log *slog.Logger) (err error) {
	options := h.HostOptions
	options.Logger = log
	if options.Lifeline, err = lifeline.Inherited(); err != nil {
		return err
	}
	if h.Config != "" {
		file, mistakes, err := daemon.Drivers().LoadHost(h.Config)
		if err != nil {
			return err
		}
		if len(mistakes) > 0 {
			log.Warn("the configuration has mistakes in parts that an emulated machine does not need; quell config check lists them",
				"config", h.Config, "mistakes", len(mistakes))
		}
		server, err := daemon.NewProbeServer(file, log)
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

// agent runs the ordinary agent; its sensors read the emulated machine's file system.
func (h Host) agent(ctx context.Context, file *config.File, server *probe.Server, root fs.FS, log *slog.Logger) error {
	network, err := sensor.NewNetwork(sensor.Options{Root: root, Exclude: server.BytesSent,
		Capacity: map[quell.Resource]float64{quell.Network: float64(h.Bandwidth)}})
	if err != nil {
		return err
	}
	return daemon.Report(ctx, file, h.Instance, sensor.NewSet(network), log)
}
