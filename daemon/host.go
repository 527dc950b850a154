package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/sensor"
)

// hostPolicy is the part of an agent's own policy that lasts over reloads.
type hostPolicy struct {
	name string // of the machine
	log  *slog.Logger
	home *host.Home // nil until a configuration has a policy
}

// loop makes the configured loop; nil if the configuration has no policy.
func (p *hostPolicy) loop(file *config.File, registry *prometheus.Registry) (*host.Loop, error) {
	own := file.Agent.Policy
	if own.Chosen.Name == "" {
		return nil, nil
	}
	groups, err := sensor.NewGroups(os.DirFS(file.Agent.Root), own.Groups)
	if err != nil {
		return nil, fmt.Errorf("agent.policy.groups: %w", err)
	}
	if p.home == nil {
		if p.home, err = host.Open(file.AgentDir(), p.log); err != nil {
			return nil, err
		}
	}
	return host.New(host.Options{
		Host: p.name, Period: own.Sampling, Policy: own.Chosen, Reader: groups, Home: p.home, Logger: p.log, Metrics: registry,
	})
}

// idle records in the agent's files that no policy runs any more.
func (p *hostPolicy) idle() {
	if p.home != nil {
		p.home.Clear()
	}
}

func (p *hostPolicy) close() error {
	if p.home == nil {
		return nil
	}
	return p.home.Close()
}

// AskAgent returns the status of the agent on this machine that uses a configuration's data folder, as JSON of a
// host.Status.
func AskAgent(ctx context.Context, file *config.File) (json.RawMessage, error) {
	return host.Ask(ctx, file.AgentDir())
}
