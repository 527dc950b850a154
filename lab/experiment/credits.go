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
	Cores float64 // of a host
}

// kernelCredits returns why a lab cannot play burstable instances.
func kernelCredits(sc *scenario.Scenario) error {
	c, path := sc.Instances.Credits, "instances.credits"
	if c == nil {
		return nil
	}
	const slowest = 0.05 // of a core: the kernel enforces no quota below 1 ms in 20 ms
	switch {
	case c.Resource != quell.CPU:
		return invalid(path+".resource", "a lab's instances have credits of their processors only: use quell sim")
	case c.Shown > 0:
		return invalid(path+".shown", "a lab has no provider that shows balances: leave this out, or use quell sim")
	case c.Surplus > 0:
		return invalid(path+".surplus", "a lab sells nothing: leave this out, or use quell sim")
	case c.Baseline*sc.Hosts[0].Cores < slowest:
		return invalid(path+".baseline", "is %g cores of a host; a lab enforces no less than %g: give it more, or use quell sim",
			c.Baseline*sc.Hosts[0].Cores, slowest)
	}
	for i, e := range sc.Timeline {
		n := e.Interfere
		if n != nil && (n.Program != "" || n.Resource == quell.CPU || n.Resource == quell.Memory) {
			return invalid(fmt.Sprintf("timeline[%d].interfere", i), "beside burstable instances a lab's neighbours cannot use processors: "+
				"use quell sim")
		}
	}
	return nil
}

func (g *KernelGroup) creditsFile() string { return filepath.Join(g.dir, "credits.json") }

// writeCredits writes the file for the instances, if they are burstable.
func (g *KernelGroup) writeCredits() error {
	if g.sc.Instances.Credits == nil {
		return nil
	}
	data, err := json.Marshal(labCredits{*g.sc.Instances.Credits, g.sc.Hosts[0].Cores})
	if err != nil {
		return err
	}
	return os.WriteFile(g.creditsFile(), data, 0o600)
}

// purse returns the credits of a new instance, which has this id.
func (c labCredits) purse(id string) *kernel.Purse {
	balance := c.Launch
	if n, err := strconv.Atoi(strings.TrimLeft(id, "abcdefghijklmnopqrstuvwxyz-")); err == nil && n >= 1 && n <= len(c.Balance) {
		balance = c.Balance[n-1]
	}
	return kernel.NewPurse(credit.Bucket{Baseline: c.Baseline * c.Cores, Burst: c.Cores, PerUse: 1.0 / 60, Cap: c.Cap}, balance)
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
	purse := credits.purse(i.ID)
	log.Info("instance is burstable", "instance", i.ID, "credits", purse.Balance())
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // open requests are answered after ctx has ended
	ended := make(chan struct{})
	var failure error
	go func() {
		defer close(ended)
		failure = kernel.KeepCredits(ctx, i.Prefix, i.Host, purse, func(slow bool) {
			log.Info("credits of processors", "instance", i.ID, "slowed_down", slow)
		})
	}()
	return ended, func() error { stop(); <-ended; return failure }, nil
}
