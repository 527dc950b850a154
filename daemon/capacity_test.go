package daemon

import (
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/prima"
	"github.com/quellhq/quell/scaler/fixed"
	"github.com/quellhq/quell/sensor"
)

// A figure that was configured wins over the kernel's: that of the machine itself, or else that of every instance.
func TestConfiguredCapacity(t *testing.T) {
	for _, c := range []struct {
		own, every, want float64
	}{{0, 0, 0}, {0, 1e9, 1e9}, {2e9, 1e9, 2e9}} {
		file := &config.File{Probe: config.Probe{Capacity: c.every}, Agent: config.Agent{Capacity: map[quell.Resource]float64{quell.CPU: 2}}}
		if c.own > 0 {
			file.Agent.Capacity[quell.Network] = c.own
		}
		o := unprobed(file)
		if o.Capacity[quell.Network] != c.want || o.Capacity[quell.CPU] != 2 {
			t.Errorf("%+v: %v", c, o.Capacity)
		}
	}
}

func TestPublishedLink(t *testing.T) {
	t3 := sensor.Link{Type: "t3.medium", Baseline: 256e6, Burst: 5e9}
	listed := &fixed.Settings{Instances: []quell.Member{{ID: "a", Type: "t3.medium"}, {ID: "b", Type: "m6i.large"}}}
	for instance, want := range map[string]sensor.Link{"a": t3, "b": {}, "c": {}} {
		file := &config.File{Agent: config.Agent{Instance: instance}, Service: quell.DefaultService()}
		file.Scaler.Settings = listed
		if got := publishedLink(file); got != want {
			t.Errorf("%s: %+v", instance, got)
		}
	}
	file := &config.File{Service: quell.DefaultService()}
	file.Service.Policy.Settings = prima.Settings{Credits: policy.CreditSettings{Type: "t3.medium"}}
	if got := publishedLink(file); got != t3 {
		t.Errorf("named in the policy's settings: %+v", got)
	}
}
