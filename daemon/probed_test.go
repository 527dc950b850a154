package daemon

import (
	"testing"

	"github.com/quellhq/quell/config"
)

// A changed name asks for a restart, so the prober keeps the old one, as the balancer does; its own keys are in force at once.
func TestAReloadKeepsTheNames(t *testing.T) {
	before, after := &config.File{}, &config.File{}
	before.Service.Name, before.Balancer.Name, before.Probe.Count = "shop", "b1", 4
	after.Service.Name, after.Balancer.Name, after.Probe.Count = "video", "b2", 8
	p := &running{started: before}
	if got := p.probed(after); got.Service.Name != "shop" || got.Balancer.Name != "b1" || got.Probe.Count != 8 {
		t.Errorf("it probes as %s of %s, %d times", got.Balancer.Name, got.Service.Name, got.Probe.Count)
	}
	if after.Service.Name != "video" {
		t.Error("the configuration in force was changed")
	}
}
