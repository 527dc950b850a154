package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/policy/table"
)

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestBadFiles has one invalid file for each rule, and checks that it gives the message in the file beside it.
func TestBadFiles(t *testing.T) {
	golden.BadFiles(t, "testdata/bad/*.yaml", func(t *testing.T, file string) error {
		_, err := Parse(filepath.Base(file), readFile(t, file))
		return err
	}, "prima")
}

func TestParse(t *testing.T) {
	got, err := Parse("scenario.yaml", readFile(t, "testdata/scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	service := quell.DefaultService()
	service.Name, service.Sampling = "noisy-neighbour", time.Second
	service.SLO.Metric, service.SLO.Threshold = quell.Mean, 30*time.Millisecond
	service.Group.Max = 6 // the same number as hosts
	var hosts []Host
	for _, id := range []string{"h1", "h2", "h3", "h4", "h5", "h6"} {
		hosts = append(hosts, Host{ID: id, Group: "h", Network: 40e6, Cores: 1, DiskIOPS: 1000, Memory: 1})
	}
	load := 1.4
	want := &Scenario{
		Name: "noisy-neighbour", Seed: 1, Duration: 90 * time.Second, Service: service, Hosts: hosts,
		Instances: Instances{Start: 2, Fixed: 3},
		Workload:  Workload{Kind: File, Arrivals: Poisson, Size: 50_000, Load: 0.8},
		Timeline: []Event{
			{At: 20 * time.Second, Load: &load, Mark: "load-up"},
			{At: 35 * time.Second, Interfere: &Interference{Host: "h1", Resource: quell.Network, Use: 0.4}, Mark: "noise"},
			{At: 70 * time.Second, Interfere: &Interference{Host: "h1", Resource: quell.Network}},
		},
		Runs: []Run{
			{Policy: quell.Policy{Name: "static"}, Scheduling: quell.RoundRobin},
			{Policy: quell.Policy{Name: "static"}, Scheduling: quell.LeastConn},
			{Policy: quell.Policy{Name: "static"}, Scheduling: quell.LeastConn, Fixed: 4},
			{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn},
			{Policy: quell.Policy{Name: "static"}, Scheduling: quell.Random2, Balancer: Envoy},
		},
		Judge: Judging{Window: 5 * time.Second, Requests: 30},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

const shortFile = `
scenario: short
duration: 10s
service: {slo: {metric: p90, threshold: 30ms}, policy: {name: lr}}
hosts: [{id: a, network: 1Gbps}, {id: b, count: 2, network: 40Mbps, cores: 2}]
workload: {size: 50KB, load: 0}
`

func TestDefaults(t *testing.T) {
	s, err := Parse("short.yaml", []byte(shortFile+"instances: {start: 2}\n"))
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
	if s.Seed != 1 || !reflect.DeepEqual(s.Instances, Instances{Start: 2, Fixed: 2}) || s.Judge != DefaultJudging() {
		t.Errorf("seed %d, instances %+v, judge %+v", s.Seed, s.Instances, s.Judge)
	}
	if want := []Run{{Policy: table.All.Whole(quell.Policy{Name: "lr"}), Scheduling: quell.LeastConn}}; !slices.Equal(s.Runs, want) {
		t.Errorf("runs %+v, want %+v", s.Runs, want)
	}
	if s.Service.Name != "short" {
		t.Errorf("service %q, want the scenario's name", s.Service.Name)
	}
}

func TestOfManyServices(t *testing.T) {
	s, err := Parse("short.yaml", []byte(shortFile+
		"services: 200\nstations: {discipline: fcfs, neighbours: fluid}\nprobing: {count: 20, budget: 1%}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Services != 200 || s.Stations != (Stations{Discipline: FirstCome, Neighbours: Fluid}) ||
		!reflect.DeepEqual(s.Probing, Probing{Count: 20, Budget: 0.01}) {
		t.Errorf("%d services, %+v, %+v", s.Services, s.Stations, s.Probing)
	}
}

func TestForms(t *testing.T) {
	for name, text := range map[string]string{
		"a service with a name":  strings.Replace(shortFile, "{slo", "{service: video, slo", 1),
		"exponential is poisson": strings.Replace(shortFile, "{size", "{arrivals: exponential, size", 1),
		"an event at the end":    shortFile + "timeline: [{at: 10s, load: 1}]\n",
		"a mark alone":           shortFile + "timeline: [{at: 1s, mark: here}]\n",
		"several at one moment": shortFile + `timeline:
  - {at: 1s, load: 1, interfere: {host: a, resource: network, use: 5%}}
  - {at: 1s, interfere: {host: b1, resource: network, use: 0.1}}
  - {at: 1s, interfere: {host: a, resource: cpu, use: 1}}
`,
	} {
		s, err := Parse("short.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.Workload.Arrivals != Poisson {
			t.Errorf("%s: arrivals %q", name, s.Workload.Arrivals)
		}
		if err := s.Validate(); err != nil {
			t.Errorf("%s: parsed, but not valid: %v", name, err)
		}
	}
}

func TestTraces(t *testing.T) {
	for text, want := range map[string][]TracePoint{
		"0,0.1\n2.5,50%\n":                         {{After: 0, Use: 0.1}, {After: 2500 * time.Millisecond, Use: 0.5}},
		"# a comment\nseconds,use\n0, 0.1\n 1,0\n": {{After: 0, Use: 0.1}, {After: time.Second}},
	} {
		if got, err := parseTrace(strings.NewReader(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q gives %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                "holds no lines",
		"seconds,use\n":   "holds no lines",
		"1\n":             "wrong number of fields",
		"0,0.1\nx,0.2\n":  `line 2: seconds must be a number from 0 on, is "x"`,
		"-1,0.1\n":        "line 1: seconds",
		"1e99,0.1\n":      "line 1: seconds",
		"0,1.1\n":         "line 1: use must be between 0 and 1",
		"0,NaN\n":         "line 1: use must be between 0 and 1",
		"1,0.1\n1,0.2\n":  "line 2: seconds must go up",
		"2,0.1\n1,0.2\n":  "line 2: seconds must go up",
		"0,0.1\nseconds,": "line 2: seconds",
	} {
		if got, err := parseTrace(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, %v; want %q", text, got, err, want)
		}
	}
}

// If other code refuses a part of a scenario, the error names the part's place in the file. For a host, this is the group of hosts that
// contains it; for a default value, it is the part in which the value could be set.
func TestInFile(t *testing.T) {
	for path, want := range map[string]string{
		"hosts[2].network":        `short.yaml:5:61: hosts[2].network: too slow`,
		"workload.size":           `short.yaml:6:18: workload.size: too slow`,
		"workload.classes[3].cpu": `short.yaml:6:11: workload.classes[3].cpu: too slow`,
		"runs[0].scheduling":      `short.yaml:2:1: runs[0].scheduling: too slow`,
	} {
		err := InFile("short.yaml", []byte(shortFile), &quell.InvalidError{Path: path, Problem: "too slow"})
		var user *quell.UserError
		if !errors.As(err, &user) || err.Error() != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if err := InFile("short.yaml", []byte(shortFile), os.ErrClosed); err.Error() != "short.yaml: file already closed" {
		t.Errorf("an error about nothing in it: %v", err)
	}
}

const varied = `
scenario: varied
duration: 60s
service: {slo: {metric: p90, threshold: 30ms}}
hosts: [{id: h, count: 2, network: 40Mbps}]
workload: {kind: users, users: 50, think: 2s, spread: fixed, classes: [{name: a, share: 2, cpu: 1ms}, {name: b, disk: 1.5, network: 5KB, memory: 2ms}]}
readings: {noise: 5%, lost: 0.1, late: 200ms}
warm_up: 7s
timeline:
  - {at: 1s, interfere: {host: h, resource: memory, use: 0.5, on: 4s, off: 2s, lengths: fixed}}
  - {at: 2s, interfere: {host: h1, resource: cpu, markov: [{use: 0, stay: 1s}, {use: 40%, stay: 2s}]}}
  - {at: 3s, interfere: {host: h1, resource: network, trace: TRACE}}
  - {at: 4s, interfere: {host: h2, resource: network, use: 0.3, ramp: 5s}, users: 80}
  - {at: 5s, fail: {host: h2}, mark: dead}
`

func TestOfEveryForm(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "use.csv"), []byte("0,0.1\n5,0.4\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Parse(filepath.Join(dir, "varied.yaml"), []byte(strings.Replace(varied, "TRACE", "use.csv", 1)))
	if err != nil {
		t.Fatal(err)
	}
	users, interfere := 80, func(host string, r quell.Resource) *Interference {
		return &Interference{Host: host, Resource: r}
	}
	turns, states, recorded, ramp := interfere("h", quell.Memory), interfere("h1", quell.CPU), interfere("h1", quell.Network), interfere("h2",
		quell.Network)
	turns.Use, turns.On, turns.Off, turns.Lengths = 0.5, 4*time.Second, 2*time.Second, Fixed
	states.Markov = []Stay{{Use: 0, Mean: time.Second}, {Use: 0.4, Mean: 2 * time.Second}}
	recorded.Trace = []TracePoint{{Use: 0.1}, {After: 5 * time.Second, Use: 0.4}}
	ramp.Use, ramp.Ramp = 0.3, 5*time.Second
	timeline := []Event{
		{At: time.Second, Interfere: turns}, {At: 2 * time.Second, Interfere: states}, {At: 3 * time.Second, Interfere: recorded},
		{At: 4 * time.Second, Interfere: ramp, Users: &users}, {At: 5 * time.Second, Fail: &Failure{Host: "h2"}, Mark: "dead"},
	}
	workload := Workload{
		Kind: Users, Users: 50, Think: 2 * time.Second, Spread: Fixed, System: 0.25, CacheStretch: 1,
		Classes: []Class{{Name: "a", Share: 2, CPU: time.Millisecond},
			{Name: "b", Share: 1, Disk: 1.5, Network: 5000, Memory: 2 * time.Millisecond}},
	}
	if !reflect.DeepEqual(s.Timeline, timeline) || !reflect.DeepEqual(s.Workload, workload) {
		t.Errorf("got %+v\n%+v", s.Timeline, s.Workload)
	}
	if s.WarmUp != 7*time.Second || s.Readings != (Readings{Noise: 0.05, Lost: 0.1, Late: 200 * time.Millisecond}) {
		t.Errorf("warm-up %v, readings %+v", s.WarmUp, s.Readings)
	}
	if _, err := Parse(filepath.Join(dir, "varied.yaml"), []byte(strings.Replace(varied, "TRACE", ".", 1))); err == nil ||
		!strings.Contains(err.Error(), "is no plain file") {
		t.Errorf("a folder as trace gives %v", err)
	}
}
