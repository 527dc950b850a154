package experiment

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/kernel"
)

// Envoy's configuration has the run's outlier detection, and no detection if the run has none.
func TestEnvoysEjectionConfiguration(t *testing.T) {
	sc := noisyNeighbour(t)
	place, err := kernel.PlaceOf("quell", "", kernel.Balancer)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		run     scenario.Run
		want    map[string]any
		rule    string
		logs    bool
		timeout string
	}{
		{scenario.Run{Scheduling: quell.Random2}, nil, "LEAST_REQUEST", false, "60s"},
		{scenario.Run{Scheduling: quell.RoundRobin, Ejection: scenario.EjectionDefaults}, map[string]any{
			"consecutive_5xx": uint64(5), "interval": "10s", "base_ejection_time": "30s", "max_ejection_time": "300s",
			"max_ejection_percent": uint64(10), "success_rate_minimum_hosts": uint64(5), "success_rate_request_volume": uint64(100),
			"success_rate_stdev_factor": uint64(1900), "enforcing_failure_percentage": uint64(0), "failure_percentage_threshold": uint64(1),
			"failure_percentage_minimum_hosts": uint64(5), "failure_percentage_request_volume": uint64(50),
		}, "ROUND_ROBIN", true, "60s"},
		{scenario.Run{Scheduling: quell.Random2, Ejection: scenario.EjectionTuned}, map[string]any{
			"consecutive_5xx": uint64(3), "interval": "1s", "base_ejection_time": "30s", "max_ejection_time": "300s",
			"max_ejection_percent": uint64(30), "success_rate_minimum_hosts": uint64(5), "success_rate_request_volume": uint64(20),
			"success_rate_stdev_factor": uint64(1900), "enforcing_failure_percentage": uint64(100), "failure_percentage_threshold": uint64(30),
			"failure_percentage_minimum_hosts": uint64(5), "failure_percentage_request_volume": uint64(20),
		}, "LEAST_REQUEST", true, "1s"},
	} {
		c.run.Policy, c.run.Fixed, c.run.Balancer = quell.Policy{Name: "static"}, 3, scenario.Envoy
		g := &KernelGroup{rig: &Kernel{Scenario: sc}, group: newGroup(sc, c.run, t.TempDir()), place: place}
		var parsed struct {
			Manager   map[string]map[string]string `yaml:"cluster_manager"`
			Resources struct {
				Listeners []struct {
					Chains []struct {
						Filters []struct {
							Config struct {
								Routes struct {
									Hosts []struct {
										Routes []struct{ Route struct{ Timeout string } }
									} `yaml:"virtual_hosts"`
								} `yaml:"route_config"`
							} `yaml:"typed_config"`
						}
					} `yaml:"filter_chains"`
				}
				Clusters []struct {
					Rule      string         `yaml:"lb_policy"`
					Detection map[string]any `yaml:"outlier_detection"`
				}
			} `yaml:"static_resources"`
		}
		if err := yaml.Unmarshal([]byte(g.envoyConfig()), &parsed); err != nil {
			t.Fatalf("%v in\n%s", err, g.envoyConfig())
		}
		cluster := parsed.Resources.Clusters[0]
		if !reflect.DeepEqual(cluster.Detection, c.want) || cluster.Rule != c.rule {
			t.Errorf("%s: %s, %v; want %s, %v", Title(sc, c.run), cluster.Rule, cluster.Detection, c.rule, c.want)
		}
		if got := parsed.Resources.Listeners[0].Chains[0].Filters[0].Config.Routes.Hosts[0].Routes[0].Route.Timeout; got != c.timeout {
			t.Errorf("%s: requests may take %s, want %s", Title(sc, c.run), got, c.timeout)
		}
		if log := parsed.Manager["outlier_detection"]["event_log_path"]; c.logs != (log == g.ejections()) {
			t.Errorf("%s: Envoy logs to %q", Title(sc, c.run), log)
		}
	}
}

// From Envoy's event log only returns and enforced ejections are counted, beginning at a given time. If there is no log, there was no
// ejection.
func TestReadEjections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ejections.log")
	since := time.Date(2026, 11, 22, 19, 59, 0, 0, time.UTC)
	if changes, err := readEjections(path, since); err != nil || changes != nil {
		t.Errorf("without a log: %v, %v", changes, err)
	}
	log := `{"type":"CONSECUTIVE_5XX","timestamp":"2026-11-22T19:58:59.100Z","action":"EJECT","num_ejections":1,"enforced":true}
{"type":"CONSECUTIVE_GATEWAY_FAILURE","timestamp":"2026-11-22T19:59:20.179Z","action":"EJECT","num_ejections":0,"enforced":false}
{"type":"CONSECUTIVE_5XX","timestamp":"2026-11-22T19:59:20.180Z","action":"EJECT","num_ejections":1,"enforced":true}
{"type":"CONSECUTIVE_5XX","timestamp":"2026-11-22T19:59:51.000Z","action":"UNEJECT","num_ejections":1,"enforced":false}
`
	if err := os.WriteFile(path, []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	changes, err := readEjections(path, since)
	want := []time.Time{since.Add(20180 * time.Millisecond), since.Add(51 * time.Second)}
	if err != nil || !reflect.DeepEqual(changes, want) {
		t.Errorf("%v, %v; want %v", changes, err, want)
	}
	if err := os.WriteFile(path, []byte("{\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readEjections(path, since); err == nil {
		t.Error("a broken log is read")
	}
}
