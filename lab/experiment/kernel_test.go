package experiment

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/balancer/command"
	"github.com/quellhq/quell/balancer/haproxy"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/kernel"
	processscaler "github.com/quellhq/quell/scaler/process"
	"github.com/quellhq/quell/train"
)

// TestLabConfigIsWhatTheDaemonsRead: for every balancer, the run's configuration file has the values of the scenario and of the lab.
func TestLabConfigIsWhatTheDaemonsRead(t *testing.T) {
	sc := noisyNeighbour(t)
	place, err := kernel.PlaceOf("quell", "", kernel.Balancer)
	if err != nil {
		t.Fatal(err)
	}
	rig := &Kernel{Program: "/opt/quell", Dir: "/data", Models: "/data/models.json", Prefix: "quell", Scenario: sc}
	for _, run := range []scenario.Run{
		{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn},
		{Policy: quell.Policy{Name: "static"}, Scheduling: quell.Random2, Fixed: 2, Balancer: scenario.Envoy},
		{Policy: quell.Policy{Name: "lsf"}, Scheduling: quell.RoundRobin, Balancer: scenario.Builtin},
	} {
		g := &KernelGroup{rig: rig, group: newGroup(sc, run, t.TempDir()), place: place, sockets: "/run/q"}
		if err := os.WriteFile(g.tokenFile(), []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := daemon.Drivers().Parse("quell.yaml", []byte(g.config()))
		if err != nil {
			t.Fatalf("%s: %v", Title(sc, run), err)
		}
		kind := map[scenario.Balancer]string{"": haproxy.Kind.Name, scenario.Envoy: command.Kind.Name,
			scenario.Builtin: builtin.Kind.Name}[run.Balancer]
		if file.Balancer.Kind != kind || file.Probe.From != config.FromController || file.Bus.Listen != "10.77.0.3:4222" {
			t.Errorf("%s: %+v, %+v, %+v", Title(sc, run), file.Balancer, file.Probe, file.Bus)
		}
		s := file.Scaler.Settings.(*processscaler.Settings)
		if s.Address != "10.77.{slot}.2:80" || s.ProbeAddress != "10.77.{slot}.2:9466" || s.Slots != len(sc.Hosts) || !s.Lifeline {
			t.Errorf("%s: scaler %+v", Title(sc, run), s)
		}
		if drain := file.Balancer.Drain; run.Balancer != scenario.Envoy && drain+kernel.Grace < patience { // Envoy's group is fixed
			t.Errorf("%s: requests have %v and %v before their instance is killed, and clients wait for %v", Title(sc, run), drain, kernel.Grace,
				patience)
		}
		if s.Drain <= kernel.Grace || s.Drain >= stopWait {
			t.Errorf("%s: an instance is killed after %v: its server may take %v, and its controller %v", Title(sc, run), s.Drain, kernel.Grace,
				stopWait)
		}
		if n := sc.Size(run); n > 0 && file.Service.Group.Max != n {
			t.Errorf("%s: group %+v", Title(sc, run), file.Service.Group)
		}
	}
}

// dynamic is a scenario of request classes on lab hosts.
func dynamic(t *testing.T, hosts, classes string) *scenario.Scenario {
	t.Helper()
	sc, err := scenario.Parse("dynamic.yaml", []byte(`
scenario: dynamic
duration: 10s
service: {slo: {metric: mean, threshold: 30ms}}
hosts: [{id: h, count: 2, network: 50Mbps`+hosts+`}]
workload: {kind: classes, load: 0.5, classes: [`+classes+`]}
`))
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// TestLabOfDynamicWork: hosts are limited in the resources that requests need, instances run the service that uses these resources, and
// agents know their group.
// The configuration of a training is one that its probe servers and meters read, too.
func TestTrainingsConfigIsWhatTheDaemonsRead(t *testing.T) {
	k := &KernelHosts{Dir: t.TempDir(), Host: scenario.Host{Network: 100e6, Cores: 1, DiskIOPS: 1000},
		resources: []quell.Resource{quell.Network}}
	path, err := k.configure()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := daemon.Drivers().Parse("quell.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if file.Probe.Token != k.token || file.Service.SLO.Threshold != time.Second {
		t.Errorf("%s", text)
	}
}

func TestLabOfDynamicWork(t *testing.T) {
	place, err := kernel.PlaceOf("quell", "", kernel.Balancer)
	if err != nil {
		t.Fatal(err)
	}
	for classes, want := range map[string]struct {
		host kernel.Host
		args string
		cpu  bool
	}{
		"{name: a, network: 10KB}": {kernel.Host{ID: "h1", Network: 50e6}, "--work", false},
		"{name: a, cpu: 1ms}":      {kernel.Host{ID: "h1", Network: 50e6, Cores: 0.5}, "--work", true},
		"{name: a, memory: 1ms}, {name: b, cpu: 1ms, disk: 2}": {kernel.Host{ID: "h1", Network: 50e6, Cores: 0.5, DiskIOPS: 200},
			"--work --disk --memory", true},
	} {
		sc := dynamic(t, ", cores: 0.5, disk_iops: 200", classes)
		if err := KernelPlayable(sc); err != nil {
			t.Errorf("%s: %v", classes, err)
		}
		if got := KernelHost(sc, sc.Hosts[0]); got != want.host {
			t.Errorf("%s: %+v, want %+v", classes, got, want.host)
		}
		if got := strings.Join(contentArgs(sc.Workload, "/run"), " "); got != want.args {
			t.Errorf("%s: %s, want %s", classes, got, want.args)
		}
		g := &KernelGroup{rig: &Kernel{Program: "/opt/quell", Prefix: "quell", Scenario: sc}, group: newGroup(sc, sc.Runs[0], t.TempDir()),
			place: place, sockets: "/run/q"}
		file, err := daemon.Drivers().Parse("quell.yaml", []byte(g.config()))
		if err != nil {
			t.Fatal(err)
		}
		agent := config.Agent{Root: "/", Counters: true, Capacity: map[quell.Resource]float64{quell.Network: 50e6}, Policy: file.Agent.Policy,
			Probing: file.Agent.Probing, Requests: file.Agent.Requests}
		if want.cpu {
			agent.Cgroup, agent.Capacity[quell.CPU] = "self", 0.5
		}
		if want.host.DiskIOPS > 0 {
			agent.Capacity[quell.Disk] = want.host.DiskIOPS
		}
		if !reflect.DeepEqual(file.Agent, agent) || agent.Policy.Chosen.Name != "" || len(agent.Probing.Resources) > 0 {
			t.Errorf("%s: %+v, want %+v", classes, file.Agent, agent)
		}
	}
}

// TestLabOfTheCalendar: instances run the calendar, the balancer knows its pages, makes a connection for each request, and clients ask for
// the pages.
func TestLabOfTheCalendar(t *testing.T) {
	place, err := kernel.PlaceOf("quell", "", kernel.Balancer)
	if err != nil {
		t.Fatal(err)
	}
	sc := dynamic(t, ", cores: 0.5, disk_iops: 200", "{name: HomePage, cpu: 1ms}, {name: EventDetail, disk: 1, memory: 1ms}")
	sc.Workload.Application = scenario.Calendar
	g := &KernelGroup{rig: &Kernel{Program: "/opt/quell", Prefix: "quell", Scenario: sc}, group: newGroup(sc, sc.Runs[0], t.TempDir()),
		place: place, sockets: "/run/q"}
	file, err := daemon.Drivers().Parse("quell.yaml", []byte(g.config()))
	if err != nil {
		t.Fatal(err)
	}
	want := balancer.Classes{{Name: "HomePage", Path: "/calendar/HomePage.php"}, {Name: "EventDetail", Path: "/calendar/EventDetail.php"}}
	if !reflect.DeepEqual(file.Balancer.Classes, want) {
		t.Errorf("classes %v", file.Balancer.Classes)
	}
	if !strings.Contains(g.haproxyConfig(), "option http-server-close\n") {
		t.Errorf("connections are kept:\n%s", g.haproxyConfig())
	}
	if got := strings.Join(contentArgs(sc.Workload, "/run"), " "); got != "--calendar /run/calendar --disk" {
		t.Errorf("arguments %s", got)
	}
	o, err := generator(sc, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		q, _ := o.Visit(0).Next(0)
		if !strings.HasPrefix(q.Path, kernel.CalendarPath(q.Class)+"?item=") {
			t.Fatalf("asks for %+v", q)
		}
	}
}

// TestProgramsOfNeighbours: scenarios and labs have the same programs.
func TestProgramsOfNeighbours(t *testing.T) {
	if len(scenario.Programs) != len(kernel.Programs) {
		t.Fatalf("%v and %v", scenario.Programs, kernel.Programs)
	}
	for i, p := range scenario.Programs {
		if string(p) != string(kernel.Programs[i]) {
			t.Errorf("%v and %v", scenario.Programs, kernel.Programs)
		}
	}
}

// TestKernelPlayable: the limits of all hosts must be equal, and no request may ask for more than the service allows.
func TestKernelPlayable(t *testing.T) {
	const unlike = "hosts: [{id: h1, network: 50Mbps, cores: 1, disk_iops: 1000000}, {id: h2, network: 50Mbps, cores: 2, disk_iops: 2000000}]"
	const like = "hosts: [{id: h, count: 2, network: 50Mbps, disk_iops: 1000000}]"
	classes := func(list string) string { return "workload: {kind: classes, load: 0.5, classes: [" + list + "]}" }
	for _, c := range []struct{ hosts, rest, path string }{
		{unlike, "workload: {kind: file, size: 60KB, load: 0.5}", ""},
		{unlike, classes("{name: a, memory: 1ms, network: 60KB}"), ""},
		{unlike, classes("{name: a, cpu: 1ms}"), "hosts[1].cores"},
		{unlike, classes("{name: a, disk: 1}"), "hosts[1].disk_iops"},
		{unlike, "workload: {kind: file, size: 60KB, load: 0.5}\ntimeline: [{at: 1s, interfere: {host: h2, resource: cpu, use: 0.5}}]",
			"hosts[1].cores"},
		{like, classes("{name: a, disk: 4000}"), ""},
		{like, "workload: {kind: file, size: 60KB, load: 0.5}\ntimeline: [{at: 1s, errors: {host: h2, share: 100%}}]", ""},
		{like, "workload: {kind: file, size: 60KB, load: 0.5}\ntimeline: [{at: 1s, errors: {host: h2, share: 50%}}]", "timeline[0].errors.share"},
		{like, classes("{name: a, network: 60KB}") + "\ntimeline: [{at: 1s, errors: {host: h2, share: 100%}}]", "timeline[0].errors"},
		{like, classes("{name: a, cpu: 1ms}, {name: b, disk: 4200}"), "workload.classes[1].disk"},
		{like, strings.Replace(classes("{name: a, disk: 100000}"), "kind", "spread: fixed, kind", 1), ""},
		{like, strings.Replace(classes("{name: a, disk: 100001}"), "kind", "spread: fixed, kind", 1), "workload.classes[0].disk"},
	} {
		sc, err := scenario.Parse("own.yaml", []byte("scenario: own\nduration: 10s\nservice: {slo: {metric: mean, threshold: 30ms}}\n"+c.hosts+
			"\n"+c.rest+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		err = KernelPlayable(sc)
		var invalid *quell.InvalidError
		if c.path == "" && err != nil || c.path != "" && (!errors.As(err, &invalid) || invalid.Path != c.path) {
			t.Errorf("%s, %s: %v, want %q", c.hosts, c.rest, err, c.path)
		}
	}
}

// TestKernelTrainable: a training loads the resources that the policy considers up to their capacity, so no other resource may reach its
// capacity before.
func TestKernelTrainable(t *testing.T) {
	for _, c := range []struct{ resource, classes, path string }{
		{"network", "{name: a, network: 60KB}", ""},
		{"network", "{name: a, cpu: 1ms, disk: 1, network: 60KB}", ""},
		{"network", "{name: a, cpu: 4ms}, {name: b, cpu: 1ms, network: 60KB}", "workload.classes"},
		{"network", "{name: a, cpu: 10ms}", "workload.classes"},
		{"network", "{name: a, disk: 9, network: 10KB}", "workload.classes"},
		{"cpu", "{name: a, cpu: 10ms, network: 10KB}", ""},
		{"cpu", "{name: a, cpu: 10ms, memory: 5ms}", ""},
		{"disk", "{name: a, disk: 9}", ""},
		{"disk", "{name: a, cpu: 50ms, disk: 9}", "workload.classes"},
		{"[cpu, disk]", "{name: a, cpu: 50ms, disk: 9, network: 10KB}", ""},
		{"[cpu, disk]", "{name: a, cpu: 50ms, network: 10KB}", "workload.classes"},
		{"auto", "{name: a, cpu: 50ms, disk: 9, network: 10KB}", ""},
	} {
		err := KernelTrainable(feeling(t, c.resource, c.classes))
		var invalid *quell.InvalidError
		if c.path == "" && err != nil || c.path != "" && (!errors.As(err, &invalid) || invalid.Path != c.path ||
			!strings.Contains(err.Error(), "--models")) {
			t.Errorf("%s, %s: %v, want %q", c.resource, c.classes, err, c.path)
		}
	}
}

// feeling is a scenario of request classes whose policy considers the given resources.
func feeling(t *testing.T, resource, classes string) *scenario.Scenario {
	t.Helper()
	sc, err := scenario.Parse("own.yaml", []byte(`
scenario: own
duration: 10s
service: {slo: {metric: mean, threshold: 30ms}, policy: {name: prima, resource: `+resource+`}}
hosts: [{id: h, count: 2, network: 50Mbps, cores: 0.5, disk_iops: 200}]
workload: {kind: classes, load: 0.5, classes: [`+classes+`]}
timeline: [{at: 1s, interfere: {host: h1, resource: cpu, use: 0.6}}, {at: 2s, interfere: {host: h1, resource: cpu, use: 0}},
  {at: 3s, interfere: {host: h2, resource: cpu, use: 0.6}}, {at: 4s, interfere: {host: h2, resource: disk, use: 0.3}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// TestWhatInstancesFeel: agents are told to probe the resources that the policy uses and that can be probed from inside. The levels of a
// training end where requests fill another resource.
func TestWhatInstancesFeel(t *testing.T) {
	place, err := kernel.PlaceOf("quell", "", kernel.Balancer)
	if err != nil {
		t.Fatal(err)
	}
	const classes = "{name: a, cpu: 10ms, disk: 2, network: 10KB}" // a request needs 20 ms, 10 ms and 1.6 ms of the whole resource
	for resource, want := range map[string]struct {
		felt, inside []quell.Resource
	}{
		"network":     {[]quell.Resource{quell.Network}, nil},
		"[disk, cpu]": {[]quell.Resource{quell.CPU, quell.Disk}, []quell.Resource{quell.CPU, quell.Disk}},
		"auto":        {[]quell.Resource{quell.CPU, quell.Network, quell.Disk}, []quell.Resource{quell.CPU, quell.Disk}},
	} {
		sc := feeling(t, resource, classes)
		if felt := Felt(sc); !slices.Equal(felt, want.felt) {
			t.Errorf("%s: felt %v, want %v", resource, felt, want.felt)
		}
		g := &KernelGroup{rig: &Kernel{Program: "/opt/quell", Scenario: sc}, place: place, sockets: "/run/q",
			group: newGroup(sc, scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.RoundRobin}, t.TempDir())}
		if err := os.WriteFile(g.tokenFile(), []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := daemon.Drivers().Parse("quell.yaml", []byte(g.config()))
		if err != nil {
			t.Fatal(err)
		}
		if a := file.Agent; !slices.Equal(a.Probing.Resources, want.inside) || a.Capacity[quell.Disk] != 200 || a.Capacity[quell.CPU] != 0.5 {
			t.Errorf("%s: the agent probes %v, capacities %v", resource, a.Probing.Resources, a.Capacity)
		}
	}
	sc := feeling(t, "auto", classes)
	for r, want := range map[quell.Resource][]float64{quell.CPU: {0, 0.8}, quell.Disk: {0, 0.4}, quell.Memory: {0, 0.8}} {
		got := Fills(sc, r, []float64{0, 0.8})
		if math.Abs(got[1]-want[1]) > 1e-9 || got[0] != 0 {
			t.Errorf("levels of %s %v, want %v", r, got, want)
		}
	}
	if r := Fullest(sc); r != quell.CPU {
		t.Errorf("%s is full first, want cpu", r)
	}
	if list := Neighbours(sc); !slices.Equal(list, []train.Neighbour{{Resource: quell.CPU, Use: 0.6}, {Resource: quell.Disk, Use: 0.3}}) {
		t.Errorf("neighbours %v", list)
	}
}

// TestRivalsConfiguration: Envoy's file is YAML with an endpoint for each instance; HAProxy's file names the scheduling.
func TestRivalsConfiguration(t *testing.T) {
	sc := noisyNeighbour(t)
	place, err := kernel.PlaceOf("quell", "", kernel.Balancer)
	if err != nil {
		t.Fatal(err)
	}
	rig := &Kernel{Scenario: sc}
	g := &KernelGroup{rig: rig, group: newGroup(sc,
		scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.Random2, Fixed: 3, Balancer: scenario.Envoy}, ""), place: place}
	var parsed struct {
		Resources struct {
			Clusters []struct {
				Load struct {
					Endpoints []struct {
						LB []struct {
							Metadata struct {
								Filter map[string]map[string]string `yaml:"filter_metadata"`
							}
						} `yaml:"lb_endpoints"`
					}
				} `yaml:"load_assignment"`
			}
		} `yaml:"static_resources"`
	}
	if err := yaml.Unmarshal([]byte(g.envoyConfig()), &parsed); err != nil {
		t.Fatal(err)
	}
	endpoints := parsed.Resources.Clusters[0].Load.Endpoints[0].LB
	if len(endpoints) != 3 || endpoints[2].Metadata.Filter["envoy.lb"]["instance"] != "i3" {
		t.Errorf("endpoints %+v", endpoints)
	}
	for scheduling, rule := range map[quell.Scheduling]string{quell.RoundRobin: "roundrobin", quell.LeastConn: "leastconn",
		quell.Random2: "random(2)"} {
		g.run.Scheduling = scheduling
		if text := g.haproxyConfig(); !strings.Contains(text, "balance "+rule+"\n") || !strings.Contains(text, filepath.Base(g.socket())) {
			t.Errorf("%s: %s", scheduling, text)
		}
	}
}

// TestProcessesAreAsLargeOnEveryMachine: the processes that an experiment starts run the configured number of threads, not one for each of
// the machine's processors.
func TestProcessesAreAsLargeOnEveryMachine(t *testing.T) {
	g := &KernelGroup{group: group{sc: &scenario.Scenario{}}}
	if text := g.haproxyConfig(); !strings.Contains(text, "\n  nbthread 1\n") || !strings.Contains(text, "\n  maxconn 8000\n") {
		t.Errorf("HAProxy chooses its own threads or connections:\n%s", text)
	}
	if args := strings.Join(envoyArgs, " "); !strings.HasPrefix(args, "--concurrency 1 ") {
		t.Errorf("Envoy chooses its own threads: %s", args)
	}
	cmd := exec.Command("quell")
	tie(cmd, os.Stdin)
	if !slices.Contains(cmd.Env, "GOMAXPROCS=2") {
		t.Errorf("Quell's processes choose their own threads: %q", cmd.Env)
	}
}

// TestAnInstanceThatEndsInATraining: if an instance ends, the error shows the instance's output. It does not say that the instance's meter
// did not answer.
func TestAnInstanceThatEndsInATraining(t *testing.T) {
	g := group{dir: t.TempDir()}
	if err := g.launch("h1", exec.Command("sh", "-c", "echo nginx was killed >&2; exit 1"), (*exec.Cmd).Start); err != nil {
		t.Fatal(err)
	}
	target := &kernelTarget{host: "h1", address: "127.77.0.1", machines: &madeUp{}, instance: g.procs[0]}
	if _, err := target.Carried(quell.Network); err == nil || err.Error() != "h1 ended by itself (exit status 1); it said: nginx was killed" {
		t.Errorf("got %v", err)
	}
}
