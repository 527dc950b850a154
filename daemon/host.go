package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/limit"
	"github.com/quellhq/quell/progress"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/sensor/credits"
)

// hostPolicy is the part of an agent's own policy that lasts over reloads.
type hostPolicy struct {
	name string // of the machine
	log  *slog.Logger
	home *host.Home // nil until a configuration has a policy

	limits  *limit.Limits // those in force; nil until a configuration has a policy
	options limit.Options // of limits

	servers map[string]*progress.Server // of progress, by path; they stay open until the agent ends
	misses  misses
}

// loop makes the configured loop; nil if the configuration has no policy. balances is nil if no provider shows credits.
func (p *hostPolicy) loop(file *config.File, registry *prometheus.Registry, balances credits.Driver) (*host.Loop, error) {
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
	reader, err := p.reader(file, groups)
	if err != nil {
		return nil, err
	}
	return host.New(host.Options{
		Host: p.name, Period: own.Sampling, Policy: own.Chosen, Reader: crediting{reader, append(spending(file), creditSensors(balances)...)},
		Limiter: groupLimits{groups, p, limitsOf(file)}, Home: p.home, Logger: p.log, Metrics: registry,
	})
}

// tenancy is what readings tell of the policy; nil before its first decision.
func (p *hostPolicy) tenancy() *quell.Tenancy { return p.home.Status().Tenancy() }

// limitsOf says where an agent's limits are recorded.
func limitsOf(file *config.File) limit.Options {
	return limit.Options{Root: file.Agent.Root, Records: file.Agent.Policy.Records, TakeOver: file.Agent.Policy.TakeOver}
}

// clear puts back what was in force before the limits that killed agents left.
func (p *hostPolicy) clear(o limit.Options) {
	done, err := limit.Restore(o)
	for _, t := range done {
		p.log.Warn("a limit that an earlier agent left was removed", "group", t.Group, "resource", t.Resource)
	}
	if err != nil {
		p.log.Error("limits that an earlier agent left stay in force", "error", err)
	}
}

// prepare makes limits ready. If the options have changed, for example the folder of the records, the limits in force are lifted first.
// Loops call it, one after the other, when they run.
func (p *hostPolicy) prepare(o limit.Options) {
	if p.limits != nil && o == p.options {
		return
	}
	p.lift()
	p.limits, p.options = limit.New(o), o
}

// lift puts back what was there before the limits in force.
func (p *hostPolicy) lift() {
	if p.limits == nil {
		return
	}
	if err := p.limits.Close(); err != nil {
		p.log.Error("limits stay in force: quell limits clear removes them", "error", err)
	}
}

// groupLimits limits the groups of the last snapshot.
type groupLimits struct {
	groups  *sensor.Groups
	policy  *hostPolicy
	options limit.Options
}

// Apply implements host.Limiter.
func (g groupLimits) Apply(limits []quell.Limit) map[string]error {
	g.policy.prepare(g.options)
	failed, names, wanted := map[string]error{}, map[string]string{}, map[limit.Target]float64{}
	for _, l := range limits {
		if l.Resource == quell.Network { // the target is an interface, not a group
			names[l.Instance], wanted[limit.TargetOf(l.Instance, l)] = l.Instance, l.Value
			continue
		}
		path, _, ok := g.groups.Named(l.Instance)
		if strings.HasPrefix(l.Instance, "/") { // a group that some of the groups lie in
			path, ok = l.Instance, true
		}
		if !ok {
			failed[l.Instance] = errors.New("the group is gone")
			continue
		}
		names[path], wanted[limit.TargetOf(path, l)] = l.Instance, l.Value
	}
	for t, err := range g.policy.limits.Apply(wanted) {
		failed[cmp.Or(names[t.Group], t.Group)] = fmt.Errorf("%s: %w", t.What(), err)
	}
	return failed
}

// idle lifts all limits, and records in the agent's files that no policy runs any more.
func (p *hostPolicy) idle() {
	p.lift()
	if p.home != nil {
		p.home.Clear()
	}
}

func (p *hostPolicy) close() error {
	p.lift()
	p.misses.close()
	var errs []error
	for _, server := range p.servers {
		errs = append(errs, server.Close())
	}
	if p.home != nil {
		errs = append(errs, p.home.Close())
	}
	return errors.Join(errs...)
}

// AskAgent returns the status of the agent on this machine that uses a configuration's data folder, as JSON of a
// host.Status.
func AskAgent(ctx context.Context, file *config.File) (json.RawMessage, error) {
	return host.Ask(ctx, file.AgentDir())
}
