package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/limit"
	limitpods "github.com/quellhq/quell/limit/pods"
	"github.com/quellhq/quell/sensor/pods"
)

// nodePolicy is the agent's own policy on a node of Kubernetes. Its groups are the pods of the service there, which it limits by the API.
type nodePolicy struct {
	of      *nodeAgent
	home    *host.Home // nil, as loop and limiter: there is no policy
	loop    *host.Loop
	limiter *limitpods.Limiter
}

// policy makes the policy of the configuration, if it has one.
func (a *nodeAgent) policy(node string, resizes bool, registry *prometheus.Registry) (*nodePolicy, error) {
	p, own := &nodePolicy{of: a}, a.file.Agent.Policy
	if own.Chosen.Name == "" {
		return p, nil
	}
	if !resizes {
		return nil, &quell.UserError{Err: errors.New("agent.policy: on a node of Kubernetes its limits are put in force by resizing pods, " +
			"which is off: set scaler.resize: true, or remove agent.policy")}
	}
	tenants, err := pods.NewTenants(os.DirFS(a.file.Agent.Root), a.members)
	if err != nil {
		return nil, err
	}
	if p.home, err = host.Open(a.file.AgentDir(), a.log); err != nil {
		return nil, err
	}
	p.limiter = limitpods.New(a.node, p.records(), time.Now)
	p.loop, err = host.New(host.Options{
		Host: node, Period: own.Sampling, Policy: own.Chosen, Reader: tenants, Limiter: p.limiter, Home: p.home, Logger: a.log, Metrics: registry,
	})
	if err != nil {
		return nil, errors.Join(err, p.home.Close())
	}
	return p, nil
}

// records is the folder that says what was there before the limits.
func (p *nodePolicy) records() string { return filepath.Join(p.of.file.AgentDir(), "pods") }

// members lists the pods of the service on the node.
func (a *nodeAgent) members() (members []pods.Pod, err error) {
	list, err := a.node.Pods(context.Background())
	for _, pod := range list {
		if pod.Member {
			members = append(members, pods.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID})
		}
	}
	return members, err
}

// run puts back what a killed agent left, and then decides until ctx ends. In the end it puts back what was there before.
func (p *nodePolicy) run(ctx context.Context) error {
	if p.restore(ctx) && p.loop != nil {
		err := p.loop.Run(ctx)
		return errors.Join(err, p.close())
	}
	return p.close()
}

// restore puts back what was there before the limits of a killed agent, and tries until that worked. It returns false if ctx ends before.
func (p *nodePolicy) restore(ctx context.Context) bool {
	restoring := outage.Log{Logger: p.of.log, What: "putting back what was there before the limits of an earlier agent"}
	for {
		err := p.of.known() // until the pods are, it cannot be told which ones are gone
		if err == nil {
			var done []limit.Target
			done, err = limitpods.Restore(p.of.node, p.records())
			for _, t := range done {
				p.of.log.Warn("a limit that an earlier agent left was removed", "container", t.Group)
			}
		}
		restoring.Report(err)
		if err == nil {
			return true
		}
		if !tick.Sleep(ctx, nodeLook) {
			return false
		}
	}
}

func (p *nodePolicy) close() error {
	if p.loop == nil {
		return nil
	}
	err := p.limiter.Close()
	if err != nil {
		err = fmt.Errorf("limits of pods stay in force; the next agent on this node puts back what was there before: %w", err)
	}
	return errors.Join(err, p.home.Close())
}
