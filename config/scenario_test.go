package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scenario"
)

func TestScenario(t *testing.T) {
	got, err := ParseScenario("scenario.yaml", read(t, "testdata/scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	service := quell.DefaultService()
	service.Name, service.Sampling = "noisy-neighbour", time.Second
	service.SLO = quell.SLO{Metric: quell.Mean, Threshold: 30 * time.Millisecond}
	service.Group.Max = 6 // as many as there are hosts
	var hosts []scenario.Host
	for _, id := range []string{"h1", "h2", "h3", "h4", "h5", "h6"} {
		hosts = append(hosts, scenario.Host{ID: id, Network: 40e6, Cores: 1, DiskIOPS: 1000, Memory: 1})
	}
	load := 1.4
	want := &scenario.Scenario{
		Name: "noisy-neighbour", Seed: 1, Duration: 90 * time.Second, Service: service, Hosts: hosts,
		Instances: scenario.Instances{Start: 2, Fixed: 3},
		Workload:  scenario.Workload{Kind: scenario.File, Arrivals: scenario.Poisson, Size: 50_000, Load: 0.8},
		Timeline: []scenario.Event{
			{At: 20 * time.Second, Load: &load, Mark: "load-up"},
			{At: 35 * time.Second, Interfere: &scenario.Interference{Host: "h1", Resource: quell.Network, Use: 0.4}, Mark: "noise"},
			{At: 70 * time.Second, Interfere: &scenario.Interference{Host: "h1", Resource: quell.Network}},
		},
		Runs: []scenario.Run{
			{Policy: "static", Scheduling: quell.RoundRobin}, {Policy: "static", Scheduling: quell.LeastConn},
			{Policy: "static", Scheduling: quell.LeastConn, Fixed: 4}, {Policy: "prima", Scheduling: quell.LeastConn},
		},
		Judge: scenario.Judging{Window: 5 * time.Second, Requests: 30},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

const shortest = `
scenario: short
duration: 10s
service: {slo: {metric: p90, threshold: 30ms}, policy: {name: lr}}
hosts: [{id: a, network: 1Gbps}, {id: b, count: 2, network: 40Mbps, cores: 2}]
workload: {size: 50KB, load: 0}
`

func TestScenarioDefaults(t *testing.T) {
	s, err := ParseScenario("short.yaml", []byte(shortest+"instances: {start: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, h := range s.Hosts {
		ids = append(ids, h.ID)
	}
	if want := []string{"a", "b1", "b2"}; !slices.Equal(ids, want) {
		t.Errorf("hosts %v, want %v", ids, want)
	}
	if s.Hosts[0].Cores != 1 || s.Hosts[2].Cores != 2 || s.Hosts[2].DiskIOPS != 1000 {
		t.Errorf("hosts %+v", s.Hosts)
	}
	if s.Seed != 1 || s.Instances != (scenario.Instances{Start: 2, Fixed: 2}) || s.Judge != scenario.DefaultJudging() {
		t.Errorf("seed %d, instances %+v, judge %+v", s.Seed, s.Instances, s.Judge)
	}
	if want := []scenario.Run{{Policy: "lr", Scheduling: quell.LeastConn}}; !slices.Equal(s.Runs, want) {
		t.Errorf("runs %+v, want %+v", s.Runs, want)
	}
	if s.Service.Name != "short" {
		t.Errorf("service %q, want the scenario's name", s.Service.Name)
	}
}

func TestScenarioForms(t *testing.T) {
	for name, text := range map[string]string{
		"a service with a name":  strings.Replace(shortest, "{slo", "{service: video, slo", 1),
		"exponential is poisson": strings.Replace(shortest, "{size", "{arrivals: exponential, size", 1),
		"an event at the end":    shortest + "timeline: [{at: 10s, load: 1}]\n",
		"a mark alone":           shortest + "timeline: [{at: 1s, mark: here}]\n",
		"several at one moment": shortest + `timeline:
  - {at: 1s, load: 1, interfere: {host: a, resource: network, use: 5%}}
  - {at: 1s, interfere: {host: b1, resource: network, use: 0.1}}
  - {at: 1s, interfere: {host: a, resource: cpu, use: 1}}
`,
	} {
		s, err := ParseScenario("short.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.Workload.Arrivals != scenario.Poisson {
			t.Errorf("%s: arrivals %q", name, s.Workload.Arrivals)
		}
		if err := s.Validate(); err != nil {
			t.Errorf("%s: parsed, but not valid: %v", name, err)
		}
	}
}
