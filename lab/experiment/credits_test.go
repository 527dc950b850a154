package experiment

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// burstable is a scenario of burstable instances.
func burstable(t *testing.T, credits, timeline string) *scenario.Scenario {
	t.Helper()
	sc, err := scenario.Parse("burstable.yaml", []byte(`
scenario: burstable
duration: 10s
service: {slo: {metric: mean, threshold: 30ms}, group: {min: 2, max: 2}}
hosts: [{id: h, count: 2, network: 50Mbps, cores: 0.5}]
instances: {start: 2, credits: {`+credits+`}}
workload: {kind: classes, load: 0.5, classes: [{name: a, cpu: 1ms, network: 1KB}]}
`+timeline))
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

func TestBurstableInstancesInALab(t *testing.T) {
	sc := burstable(t, "resource: cpu, baseline: 20%, cap: 2, launch: 0.5, balance: [1]", "")
	if err := KernelPlayable(sc); err != nil {
		t.Fatal(err)
	}
	if err := Playable(sc); err == nil {
		t.Error("emulated hosts play it")
	}
	g := &KernelGroup{rig: &Kernel{Program: "/opt/quell", Prefix: "quell", Scenario: sc}, group: newGroup(sc, sc.Runs[0], t.TempDir())}
	if err := g.writeCredits(); err != nil {
		t.Fatal(err)
	}
	command := g.instance()
	at := slices.Index(command, "--credits")
	if at < 0 || command[at+1] != g.creditsFile() {
		t.Fatalf("instances are started by %q", command)
	}
	data, err := os.ReadFile(g.creditsFile())
	if err != nil {
		t.Fatal(err)
	}
	var c labCredits
	if err := json.Unmarshal(data, &c); err != nil || c.Whole != 0.5 || c.Resource != quell.CPU {
		t.Fatalf("%+v, %v", c, err)
	}
	for id, want := range map[string]float64{"i1": 1, "i2": 0.5, "i17": 0.5, "web-1": 1, "odd": 0.5} {
		if got := c.bucket(id).Balance(); got != want {
			t.Errorf("%s begins with %v credits, want %v", id, got, want)
		}
	}
}

// A credit of the network or of a disk is a minute of the whole.
func TestCreditsOfOtherResourcesInALab(t *testing.T) {
	sc := burstable(t, "resource: network, baseline: 20%, cap: 2, launch: 0.5",
		"timeline: [{at: 1s, interfere: {host: h1, resource: cpu, use: 0.3}}]")
	if err := KernelPlayable(sc); err != nil {
		t.Fatal(err)
	}
	c := labCredits{*sc.Instances.Credits, creditedHost(sc)}
	p, now := c.bucket("i1"), time.Unix(0, 0)
	p.Count(now, 0, time.Second)
	allowed := p.Count(now.Add(15*time.Second), 15*50e6, time.Second) // 0.25 minutes of the link, of which a fifth is earned
	if left := p.Balance(); math.Abs(left-(0.5-0.25*0.8)) > 1e-9 || allowed != 50e6 {
		t.Errorf("%v credits are left, and %v bit/s allowed", left, allowed)
	}
}

func TestBurstableInstancesThatALabRefuses(t *testing.T) {
	for _, tc := range []struct{ why, credits, timeline, want string }{
		{"shown balances", "resource: cpu, baseline: 20%, cap: 2, shown: 5m", "", "instances.credits.shown"},
		{"unlimited mode", "resource: cpu, baseline: 20%, cap: 2, surplus: 0.05", "", "instances.credits.surplus"},
		{"less than a quota can be", "resource: cpu, baseline: 5%, cap: 2", "", "instances.credits.baseline: is 0.025 cores"},
		{"a neighbour on the processors", "resource: cpu, baseline: 20%, cap: 2",
			"timeline: [{at: 1s, interfere: {host: h1, resource: cpu, use: 0.3}}]", "timeline[0].interfere"},
		{"a neighbour on memory, which uses processors", "resource: cpu, baseline: 20%, cap: 2",
			"timeline: [{at: 1s, interfere: {host: h1, resource: memory, use: 0.3}}]", "timeline[0].interfere"},
		{"a link slower than a link can be", "resource: network, baseline: 1%, cap: 2", "", "is 500000 bit/s of a host"},
		{"a neighbour on the link", "resource: network, baseline: 20%, cap: 2",
			"timeline: [{at: 1s, interfere: {host: h1, resource: network, use: 0.3}}]", "those of the host's network"},
	} {
		if err := KernelPlayable(burstable(t, tc.credits, tc.timeline)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.why, err)
		}
	}
}
