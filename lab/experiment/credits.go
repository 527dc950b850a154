package experiment

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/kernel"
)

// labCredits is the file that tells a lab's instances their credits. Agents and the controller do not read it.
type labCredits struct {
	scenario.Credits
	Whole float64 // what a host has of the resource: cores, bit/s, or operations per second
}

// creditedHost returns what a scenario's hosts have of the resource that has credits.
func creditedHost(sc *scenario.Scenario) float64 {
	h := sc.Hosts[0]
	return map[quell.Resource]float64{quell.CPU: h.Cores, quell.Network: h.Network, quell.Disk: h.DiskIOPS}[sc.Instances.Credits.Resource]
}

// leastLimits are the least that a lab can limit a host to: the kernel enforces no quota below 1 ms in 20 ms, and a slower link carries
// about a packet per second.
var leastLimits = map[quell.Resource]struct {
	amount float64
	unit   string
}{quell.CPU: {0.05, "cores"}, quell.Network: {1e6, "bit/s"}, quell.Disk: {1, "operations per second"}}

// kernelCredits returns why a lab cannot play burstable instances.
func kernelCredits(sc *scenario.Scenario) error {
	c, path := sc.Instances.Credits, "instances.credits"
	if c == nil {
		return nil
	}
	least, known := leastLimits[c.Resource]
	switch baseline := c.Baseline * creditedHost(sc); {
	case !known:
		return invalid(path+".resource", "a lab's instances have no credits of %s", c.Resource)
	case c.Shown > 0:
		return invalid(path+".shown", "a lab has no provider that shows balances: leave this out, or use quell sim")
	case c.Surplus > 0:
		return invalid(path+".surplus", "a lab sells nothing: leave this out, or use quell sim")
	case baseline < least.amount:
		return invalid(path+".baseline", "is %g %s of a host; a lab enforces no less than %g: give it more, or use quell sim", baseline,
			least.unit, least.amount)
	}
	for i, e := range sc.Timeline {
		if n := e.Interfere; n != nil && alsoSpends(c.Resource, n) {
			return invalid(fmt.Sprintf("timeline[%d].interfere", i), "the credits of a lab's instances are those of the host's %s, which "+
				"neighbours cannot use then: use quell sim", c.Resource)
		}
	}
	return nil
}

// alsoSpends returns whether a neighbour uses a resource of its host. Neighbours on memory use processors.
func alsoSpends(r quell.Resource, n *scenario.Interference) bool {
	return n.Program != "" || n.Resource == r || r == quell.CPU && n.Resource == quell.Memory
}

func (g *KernelGroup) creditsFile() string { return filepath.Join(g.dir, "credits.json") }

// writeCredits writes the file for the instances, if they are burstable.
func (g *KernelGroup) writeCredits() error {
	if g.sc.Instances.Credits == nil {
		return nil
	}
	data, err := json.Marshal(labCredits{*g.sc.Instances.Credits, creditedHost(g.sc)})
	if err != nil {
		return err
	}
	return os.WriteFile(g.creditsFile(), data, 0o600)
}

// bucket returns the credits of a new instance, which has this id.
func (c labCredits) bucket(id string) *kernel.TokenBucket {
	balance := c.Launch
	if n, err := strconv.Atoi(strings.TrimLeft(id, "abcdefghijklmnopqrstuvwxyz-")); err == nil && n >= 1 && n <= len(c.Balance) {
		balance = c.Balance[n-1]
	}
	b := credit.Bucket{Baseline: c.Baseline * c.Whole, Burst: c.Whole, PerUse: 1.0 / 60, Cap: c.Cap}
	if c.Resource != quell.CPU {
		b.PerUse /= c.Whole // a credit is a minute of the whole resource
	}
	return kernel.NewTokenBucket(b, balance)
}

// spend makes the instance burstable, if it is to be, until settle is called. failed is closed if that ends by itself; it is nil if the
// instance is not burstable.
func (i Instance) spend(ctx context.Context, log *slog.Logger) (failed <-chan struct{}, settle func() error, err error) {
	if i.Credits == "" {
		return nil, func() error { return nil }, nil
	}
	data, err := os.ReadFile(i.Credits)
	if err != nil {
		return nil, nil, err
	}
	var credits labCredits
	if err := json.Unmarshal(data, &credits); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", i.Credits, err)
	}
	bucket := credits.bucket(i.ID)
	log.Info("instance is burstable", "instance", i.ID, "resource", credits.Resource, "credits", bucket.Balance())
	slow := false
	burstable := kernel.Burstable{Prefix: i.Prefix, Host: i.Host, Resource: credits.Resource, Folder: filepath.Dir(i.Credits),
		TokenBucket: bucket,
		Counted: func(c kernel.Counted) {
			if c.Slow != slow {
				slow = c.Slow
				log.Info("credits", "instance", i.ID, "resource", credits.Resource, "slowed_down", slow)
			}
		}}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // open requests are answered after ctx has ended
	ended := make(chan struct{})
	var failure error
	go func() {
		defer close(ended)
		failure = burstable.KeepCredits(ctx)
	}()
	return ended, func() error { stop(); <-ended; return failure }, nil
}
