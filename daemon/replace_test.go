package daemon_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
)

// TestReplacingUnderLoad replaces an instance while requests flow, and kills the controller in the middle. No request fails.
func TestReplacingUnderLoad(t *testing.T) {
	t.Parallel()
	r := emulatedService(t)
	load := flow(r)
	if out, status := r.quell("replace", "i1", "--config", r.config); status != 0 || !strings.Contains(out, "replacement of i1 asked for by") {
		t.Fatalf("status %d: %s", status, out)
	}
	r.awaitStatus("the fresh instance", func(s controller.Status) bool {
		return slices.ContainsFunc(s.Instances, func(in controller.InstanceStatus) bool { return in.ID == "i3" })
	})
	r.procs[0].kill(t)
	r.start("controller")
	r.awaitServing("i2", "i3")
	r.awaitWeights(map[string]float64{"i2": .5, "i3": .5})
	load.more(50)
	if pids := r.pids(); pids["i1"] != 0 || len(pids) != 2 {
		t.Errorf("processes %v", pids)
	}
	load.wantNoFailuresBut(r)
}

// TestAgentsRefuseOrdersWithoutADriver sends orders to the agent of an instance over the bus, and gets its answer.
func TestAgentsRefuseOrdersWithoutADriver(t *testing.T) {
	t.Parallel()
	r := plainService(t)
	agent := r.start("agent")
	r.awaitServing("i1")
	conn := r.connect()
	order := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return conn.Order(ctx, "shop", "i1", bus.Orders{Settings: []quell.Setting{{Instance: "i1", Target: "apache", Name: "x", Value: 1}}})
	}
	const refused = "the agent of i1: setting apache.x: this agent has no driver that sets apache"
	if err := order(); err == nil || err.Error() != refused {
		t.Errorf("%v", err)
	}
	agent.kill(t)
	r.await("nobody to hear orders", func() (bool, any) {
		err := order()
		return err != nil && strings.Contains(err.Error(), "no agent of i1 hears orders"), err
	})
	r.start("agent")
	r.await("the agent to be back", func() (bool, any) { err := order(); return err != nil && err.Error() == refused, err })
}
