package config

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/balancer/haproxy"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/internal/webcheck"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/middleware"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/divide"
	"github.com/quellhq/quell/policy/outlier"
	"github.com/quellhq/quell/policy/prima"
	"github.com/quellhq/quell/policy/waits"
	"github.com/quellhq/quell/probe/local"
	"github.com/quellhq/quell/scaler/process"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/sensor/credits/cloudwatch"
	"github.com/quellhq/quell/sensor/served"
	"github.com/quellhq/quell/setting"
)

const least = "service: video\nslo: {metric: mean, threshold: 75ms}\n"

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestFullFile reads a file that sets every key to a value other than its default.
func TestFullFile(t *testing.T) {
	got, err := drivers.Parse("/etc/quell/quell.yaml", read(t, "testdata/full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := &File{
		Path: "/etc/quell/quell.yaml",
		Service: quell.Service{
			Name: "video", SLO: quell.SLO{
				Metric: quell.P95, Threshold: 75 * time.Millisecond, Target: 0.995, Of: quell.OfRequests, Over: 14 * 24 * time.Hour,
			},
			Sampling: 5 * time.Second,
			Policy: quell.Policy{Name: "prima", Settings: prima.Settings{
				Senses: policy.Senses{Resources: policy.ResourcesOf(quell.CPU), Pooling: policy.Pooling{Learned: true},
					InterferenceModel: quell.Total, Confidence: 0.99, Confirm: 2},
				Headroom: 0.8, Margin: true, ScaleInMargin: 0.1, ScaleOut: quell.One, Share: divide.Tail,
				Tolerance: 0.025, Spare: 1, Calibrate: 0.2, CalibrationDecay: 0.1,
				Credits: policy.CreditSettings{Last: 2 * time.Hour, Type: "t2.micro", Unlimited: new(true)},
			}, Fast: quell.Fast{
				Name: "outlier", Sampling: 200 * time.Millisecond,
				Settings: outlier.Settings{Requests: 9, Slower: 3, Errors: 0.1, Hold: 20 * time.Second, Most: 0.5},
			}},
			Group: quell.Group{Min: 2, Max: 4, Initial: 3, Startup: 90 * time.Second, Protected: []string{"i1", "i2"},
				Replace: quell.Replace{Below: 0.2, Every: time.Hour}},
			Guard: quell.Guard{Floor: 0.1, Step: 1.5, SlowStart: 20 * time.Second, StaleAfter: 5, Fade: 20, ErrorRate: 0.01},
			Mode:  quell.Advise, Scheduling: quell.Random2,
			Redline: quell.Redline{Nightly: quell.Window{From: 23*time.Hour + 30*time.Minute, To: 75 * time.Minute},
				Instances: []string{"i1", "i2"}, Tests: 3, Risk: 0.005},
		},
		Models: "/etc/quell/models.json", Learn: true, Data: "/var/lib/quell",
		Page: Page{Hosts: []string{"quell.example.org"}}, Web: "/etc/quell/web.yml",
		KEDA: KEDA{Listen: "0.0.0.0:9470",
			TLS: TLS{CA: "/etc/quell/tls/keda.pem", Cert: "/etc/quell/tls/cert.pem", Key: "/etc/quell/tls/key.pem"}},
		Bus: Bus{
			Listen: ":4333", TokenFile: "/etc/quell/secrets/token", JournalBytes: 1 << 30, Replicas: 3, StoreDir: "/var/lib/quell/bus",
			Credentials: "/etc/quell/secrets/controller.creds", Join: "/etc/quell/secrets/shop.join",
			Proof: ProofKubernetes, ProofToken: "/etc/quell/secrets/pod-token",
			TokenCommands: true, Keyring: "/var/lib/quell/credentials",
			TLS: TLS{CA: "/etc/quell/tls/ca.pem", Cert: "/etc/quell/tls/cert.pem", Key: "/etc/quell/tls/key.pem"},
		},
		Balancer: Balancer{
			Kind: "builtin", Name: "edge-1", Drain: 10 * time.Second,
			Classes: balancer.Classes{{Name: "home", Path: "/"}, {Name: "tags", Path: "/tag/*"}},
			Settings: &builtin.Settings{
				Listen: ":80", Admin: "/etc/quell/run/admin.sock", Metrics: "0.0.0.0:9000", Scheduling: quell.Random2,
				Health: health.Options{Path: "/up", Interval: 500 * time.Millisecond, Timeout: 250 * time.Millisecond, Fall: 3, Rise: 1,
					Request: webcheck.Request{Host: "shop.example", Headers: []string{"X-Forwarded-Proto: https"}}},
				Timeouts: builtin.Timeouts{
					Connect: 100 * time.Millisecond, ResponseHeader: 5 * time.Second, Idle: time.Minute, ReadHeader: 2 * time.Second,
					UpstreamIdle: 4 * time.Second, Body: 20 * time.Second, Write: time.Minute, Upgrade: time.Hour,
					HalfClosed: time.Second,
				},
				TLS:      &builtin.TLS{Cert: "/etc/quell/tls/web.pem", Key: "/etc/quell/tls/web.key"},
				Upstream: builtin.H2C, NameInstance: true, LoadReports: true, DefaultHost: "video.example", Upgrades: []string{"websocket", "mqtt"},
				MaxConnsSet: true, MaxConnsPerClient: new(100), TrustedProxies: []netip.Prefix{
					netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("fd00::/8"),
				},
			}},
		Scaler: Scaler{Kind: "process", Settings: &process.Settings{
			Command: []string{"web", "--listen", "127.0.0.1:{port}", "--probe", "{probe_port}", "--level", "3", "--quiet", "true"},
			Address: "10.0.{slot}.2:80", ProbeAddress: "10.0.{slot}.2:{probe_port}",
			Slots: 5, Ports: setting.Ports{First: 9100, Last: 9120}, Ready: process.Ready{Path: "/ready", Timeout: 45 * time.Second,
				Request: webcheck.Request{Host: "shop.example:8080", Headers: []string{"Accept: text/plain"}}},
			Drain: 15 * time.Second, Lifeline: true,
		}},
		Probe: Probe{
			Size: 50_000, Count: 10, Budget: 0.01, Token: "secret", Listen: "[::]:9477", From: FromController,
			Timeout: 500 * time.Millisecond, Capacity: 1e9,
		},
		Agent: Agent{
			Instance: "i1", Interface: "eth0", Cgroup: "self", Training: true, Root: "/host", Metrics: "127.0.0.1:9467", Reports: "0.0.0.0:9469",
			Secure: ReportsTLS{Cert: "/etc/quell/tls/agent.pem", Key: "/etc/quell/tls/agent.key", ClientCA: "/etc/quell/tls/ca.pem"},
			Requests: served.Settings{
				URL: "http://127.0.0.1:8080/metrics", Histogram: served.Selector{Name: "request_ms", Labels: `{path="/buy"}`},
				Errors: served.Selector{Name: "failed_total"}, Unit: time.Millisecond,
			},
			DiskBytes: 125_000_000,
			Capacity:  map[quell.Resource]float64{quell.Network: 2.5e9, quell.CPU: 1.5, quell.Disk: 3000, quell.Memory: 20e9},
			Probing: local.Settings{
				Resources: []quell.Resource{quell.CPU, quell.Disk}, Budget: 0.004, Run: 400 * time.Microsecond, Buffer: 16 << 20,
				Folder: "/srv/probe", Writes: true,
			},
			Policy: AgentPolicy{
				Chosen:   quell.Policy{Name: "waits", Settings: waits.Settings{Window: 30 * time.Second, Report: 0.2}},
				Sampling: 500 * time.Millisecond,
				Groups:   []sensor.Group{{Name: "web", Path: "/web", Share: 2, Alone: 500}, {Path: "/system.slice/*.service", Share: 1}},
				Progress: "/run/progress", Port: 21, Records: "/run/records", TakeOver: true,
			},
			Servers: fullServers(),
			Credits: Credits{Kind: "cloudwatch", Settings: &cloudwatch.Settings{
				ID: "i-0123456789abcdef0", Region: "eu-west-1", Volume: "vol-0123456789abcdef0", Every: 2 * time.Minute,
				Endpoint: "https://monitoring.example:8443",
			}},
		},
		Train: Train{
			Resource: quell.Disk, Plan: CustomPlan, Levels: []float64{0.1, 0.5}, Interference: []float64{0, 0.3}, Run: 20 * time.Second,
			Repeat: 4, MaxRepeat: 6, Interval: 0.03, Confidence: 0.9, Budget: 60, Bound: 0.03, Testbed: KernelTestbed, Hosts: 2, Network: 100e6,
			FileSize: 64 << 10,
			Arrivals: loadgen.Deterministic, Seed: 1<<64 - 1,
		},
	}
	got.values, got.keys, got.places = nil, nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// fullServers are the servers of the full file.
func fullServers() []middleware.Server {
	web, streamer := middleware.Apache.Defaults(), middleware.Template.Defaults()
	web.Name, web.File, web.PID = "web", "/etc/quell/apache.conf", "/run/apache2/apache2.pid"
	web.Check, web.Reload = []string{"apache2ctl", "-t"}, []string{"systemctl", "reload", "apache2"}
	web.Parameters = []middleware.Parameter{
		{Name: "MaxRequestWorkers", Min: 50, Max: 400}, {Name: "KeepAliveTimeout", File: "/etc/keep.conf", Min: 1, Max: 15},
	}
	streamer.Template, streamer.File, streamer.Reload = "/etc/quell/streamer.tmpl", "/etc/streamer.conf", []string{"streamer", "reload"}
	streamer.Parameters = []middleware.Parameter{{Name: "threads", Initial: 8, Min: 1, Max: 32.5}}
	return []middleware.Server{{Kind: "apache", Settings: web}, {Kind: "template", Settings: streamer}}
}

// TestFullFileSetsEveryKey checks that the full file has every key, except those that exclude a key that it has, or name a file that must
// exist.
func TestFullFileSetsEveryKey(t *testing.T) {
	excluded := []string{"services", "bus.url", "bus.token", "probe.token_file", "policy.credits.types"}
	f := drivers.Defaults()
	d := yaml.NewDecoder("full.yaml")
	if !d.Decode(read(t, "testdata/full.yaml"), drivers.fileKeys(&f)) {
		t.Fatal(d.Err())
	}
	values := map[string]string{}
	drivers.fileKeys(&f).Currents("", values)
	for path := range values {
		if !d.Given(path) && !slices.Contains(excluded, path) {
			t.Errorf("testdata/full.yaml lacks %s", path)
		}
	}
}

// TestHAProxy sets the keys that the full file cannot have.
func TestHAProxy(t *testing.T) {
	f, err := drivers.Parse("/etc/quell/quell.yaml", []byte(least+`
balancer:
  kind: haproxy
  name: edge
  drain: 5s
  haproxy: {sockets: [/run/haproxy/admin.sock], backend: app, slots: slot, state_file: state, log: 127.0.0.1:5514}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &haproxy.Settings{
		Sockets: []string{"/run/haproxy/admin.sock"}, Backend: "app", Slots: "slot", StateFile: "/etc/quell/state", Log: "127.0.0.1:5514",
		Health: haproxy.Health{Interval: time.Second, Fall: 2, Rise: 2},
	}
	if !reflect.DeepEqual(f.Balancer.Settings, want) || f.Probe.From != FromController {
		t.Errorf("%+v, probe from %s", f.Balancer.Settings, f.Probe.From)
	}
	f, err = drivers.Parse("quell.yaml", []byte(least+`
balancer: {kind: haproxy, health: {interval: 2s}, haproxy: {sockets: ["10.0.0.1:9999"], backend: app, server: maxconn 100}}
`))
	if err != nil || f.Balancer.Settings.(*haproxy.Settings).Server != "maxconn 100" {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestDefaults(t *testing.T) {
	f, err := drivers.Parse("conf/quell.yaml", []byte(least))
	if err != nil {
		t.Fatal(err)
	}
	want := quell.DefaultService()
	want.Name, want.SLO = "video", quell.SLO{Metric: quell.Mean, Threshold: 75 * time.Millisecond, Of: quell.OfTime, Over: 7 * 24 * time.Hour}
	want.Scheduling = quell.LeastConn
	if !reflect.DeepEqual(f.Service, want) {
		t.Errorf("service %+v, want %+v", f.Service, want)
	}
	own := f.Balancer.Settings.(*builtin.Settings)
	for name, c := range map[string]struct{ got, want any }{
		"data":                {f.Data, "conf/quell-data"},
		"models":              {f.Models, ""},
		"listen":              {f.Listen, "127.0.0.1:9464"},
		"page.hosts":          {len(f.Page.Hosts), 0},
		"web_config":          {filepath.Base(f.Web), "."},
		"bus.listen":          {f.Bus.Listen, "127.0.0.1:4222"},
		"bus.journal_bytes":   {f.Bus.JournalBytes, int64(64 << 20)},
		"keyring":             {f.Bus.Keyring, "conf/quell-data/credentials"},
		"store":               {f.Bus.StoreDir, "conf/quell-data/bus"},
		"balancer.kind":       {f.Balancer.Kind, "builtin"},
		"balancer.admin":      {own.Admin, "conf/quell-data/balancer.sock"},
		"balancer.scheduling": {own.Scheduling, quell.LeastConn},
		"balancer.max_conns":  {own.MaxConns, 10000},
		"balancer.health":     {own.Health, health.Options{Path: "/healthz", Interval: time.Second, Timeout: time.Second, Fall: 2, Rise: 2}},
		"balancer.timeouts": {own.Timeouts,
			builtin.Timeouts{
				Connect: time.Second, ResponseHeader: 30 * time.Second, Idle: 90 * time.Second, ReadHeader: 10 * time.Second,
				UpstreamIdle: 1500 * time.Millisecond, Body: 30 * time.Second, Write: 30 * time.Second, Upgrade: 10 * time.Minute,
				HalfClosed: 5 * time.Second,
			}},
		"balancer.max_conns_per_client": {own.MaxConnsPerClient == nil, true},
		"balancer.trusted_proxies":      {len(own.TrustedProxies), 0},
		"scaler.kind":                   {f.Scaler.Kind, "fixed"},
		"probe.from":                    {f.Probe.From, FromBalancer},
		"probe.count":                   {f.Probe.Count, 0},
		"probe.budget":                  {f.Probe.Budget, 0.02},
		"probe.listen":                  {f.Probe.Listen, "127.0.0.1:9466"},
		"probe.timeout":                 {f.Probe.Timeout, 2 * time.Second},
		"agent.root":                    {f.Agent.Root, "/"},
		"agent.counters":                {f.Agent.Counters, true},
		"agent.training":                {f.Agent.Training, false},
		"agent.metrics":                 {f.Agent.Metrics, ""},
		"train.resource":                {f.Train.Resource, quell.Network},
		"train.plan":                    {f.Train.Plan, QuickPlan},
		"train.run":                     {f.Train.Run, 10 * time.Second},
		"train.repeat":                  {f.Train.Repeat, 3},
		"train.max_repeat":              {f.Train.MaxRepeat, 5},
		"train.interval":                {f.Train.Interval, 0.05},
		"train.confidence":              {f.Train.Confidence, 0.95},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

func TestDefaultsThatFollow(t *testing.T) {
	f, err := drivers.Parse("quell.yaml", []byte(least+`
sampling: 1s
group: {max: 3, startup: 5s}
balancer: {kind: command, command: [apply]}
scaler: {kind: process, command: [web, "{port}"]}
policy: {name: prima, resource: disk}
train: {plan: custom, levels: [50%], interference: [0], repeat: 7}
`))
	if err != nil {
		t.Fatal(err)
	}
	if f.Probe.Timeout != time.Second {
		t.Errorf("probe.timeout %v, want the sampling period", f.Probe.Timeout)
	}
	ready := process.Ready{Path: "/healthz", Timeout: 5 * time.Second}
	if s := f.Scaler.Settings.(*process.Settings); s.Slots != 4 || !reflect.DeepEqual(s.Ready, ready) {
		t.Errorf("slots %d, ready %+v, want one more than group.max, and group.startup", s.Slots, s.Ready)
	}
	if f.Train.Resource != quell.Disk {
		t.Errorf("train.resource %v, want the policy's", f.Train.Resource)
	}
	if f.Train.MaxRepeat != 7 {
		t.Errorf("train.max_repeat %d, want at least train.repeat", f.Train.MaxRepeat)
	}
	if f.Probe.From != FromController {
		t.Errorf("probe.from %v, want controller, as the balancer cannot", f.Probe.From)
	}
}

func TestAcceptedForms(t *testing.T) {
	for name, text := range map[string]string{
		"byte order mark":           "\ufeff" + least,
		"windows line ends":         strings.ReplaceAll(least, "\n", "\r\n"),
		"document mark":             "---\n" + least + "...\n",
		"quoted duration":           "service: \"video\"\nslo: {metric: 'mean', threshold: \"75ms\"}\n",
		"zero without unit":         least + "guard: {slow_start: 0}\n",
		"external bus":              least + "bus: {url: 'tls://a:4222,nats://b:4222', token: x}\n",
		"open bus with a token":     least + "bus: {listen: ':4222', token: x}\n",
		"bus on this machine":       least + "bus: {listen: 'localhost:4222'}\n",
		"bus on loopback 6":         least + "bus: {listen: '[::1]:4222'}\n",
		"one port for one instance": least + "group: {max: 1}\nscaler: {kind: process, command: [web], ports: 9000-9000}\n",
		"fixed instances":           least + "scaler: {instances: [{id: i1, address: 'h1:80', probe: 'h1:9466', type: t3.micro}]}\n",
		"own programs":              least + "scaler: {kind: command, start: [up], stop: [down], list: [ls]}\n",
		"free ports do not clash":   least + "balancer: {listen: '127.0.0.1:0', metrics: '127.0.0.1:0'}\n",
	} {
		if _, err := drivers.Parse("quell.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRefusedBeforeParsing(t *testing.T) {
	for want, text := range map[string]string{
		"larger than 1MiB":  least + strings.Repeat("# more\n", 1<<18),
		"not text in UTF-8": "service: \xff\n",
		"more than 50000":   "{" + strings.Repeat("a, ", 40_000) + "}",
		"levels deep":       indented(60),
	} {
		_, err := drivers.Parse("quell.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// indented is a map within a map within a map.
func indented(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "quell.yaml")
	if err := os.WriteFile(path, []byte(least+"models: models.json\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := drivers.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Models != filepath.Join(dir, "models.json") || f.Path != path {
		t.Errorf("models %q of %q, want it in the file's folder", f.Models, f.Path)
	}
	for _, path := range []string{filepath.Join(dir, "missing.yaml"), dir} {
		for _, load := range []func(string) error{
			func(p string) error { _, err := drivers.Load(p); return err },
			func(p string) error { _, err := drivers.Load(p); return err },
		} {
			var user *quell.UserError
			if err := load(path); !errors.As(err, &user) || !strings.HasPrefix(err.Error(), path+": cannot be read: ") {
				t.Errorf("%s: got %v, want a user error that names it", path, err)
			}
		}
	}
}

func TestToken(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct{ token, file, want, err string }{
		"none":           {},
		"in place":       {token: "secret", want: "secret"},
		"from a file":    {file: file("one", "secret\n"), want: "secret"},
		"from two lines": {file: file("two", "a\nb\n"), err: "one line"},
		"from nothing":   {file: file("none", "\n"), err: "one line"},
		"from no file":   {file: filepath.Join(dir, "missing"), err: "cannot be read"},
	} {
		got, err := Token(c.token, c.file)
		if got != c.want || (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

// TestProblemsStayReadable checks that at most 50 problems of a file are printed, and how many more there are.
func TestProblemsStayReadable(t *testing.T) {
	_, err := drivers.Parse("quell.yaml", []byte(least+"group: {protected: ["+strings.Repeat("'', ", 3000)+"i1]}\n"))
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 51 || !strings.HasSuffix(err.Error(), "more") {
		t.Errorf("%d lines, ending in %q", lines, err.Error()[len(err.Error())-40:])
	}
}

func TestWhereNothingIsProbed(t *testing.T) {
	for _, c := range []struct {
		keys string
		want bool
	}{
		{"policy: {name: static}", true},
		{"policy: {name: static}\nprobe: {capacity: 40Mbps}", false},
		{"policy: {name: static}\nprobe: {size: 20000}", false},
		{"policy: {name: static}\nagent: {capacity: {network: 1Gbps}}", false},
		{"policy: {name: prima}", false}, // a mistake, which the prober reports
	} {
		f, err := drivers.Parse("quell.yaml",
			[]byte("service: shop\nslo: {metric: mean, threshold: 100ms}\nscaler: {instances: [{id: a, address: \"10.0.0.1:80\"}]}\n"+c.keys))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Unprobed(); got != c.want {
			t.Errorf("%s: %v, want %v", c.keys, got, c.want)
		}
	}
}

// TestResources reads the forms that prima's resource may have, and writes them.
func TestResources(t *testing.T) {
	for text, want := range map[string]policy.Resources{
		"cpu": policy.ResourcesOf(quell.CPU), "[cpu]": policy.ResourcesOf(quell.CPU), "auto": policy.AllKnown(),
		"[network, cpu]": policy.ResourcesOf(quell.CPU, quell.Network), "[cpu, network]": policy.ResourcesOf(quell.CPU, quell.Network),
	} {
		f, err := drivers.Parse("quell.yaml", []byte(least+"policy: {resource: "+text+"}\n"))
		if err != nil || f.Service.Policy.Settings.(prima.Settings).Resources != want {
			t.Fatalf("%s: %+v, %v", text, f, err)
		}
		var b bytes.Buffer
		if err := setting.Write(&b, ServiceKeys(&f.Service), nil, nil); err != nil {
			t.Fatal(err)
		}
		if again, err := drivers.Parse("quell.yaml", b.Bytes()); err != nil || !reflect.DeepEqual(again.Service, f.Service) {
			t.Errorf("%s: written as\n%s\n%v", text, &b, err)
		}
	}
}

// A file without a service is for an agent's own policy. It needs nothing else and may not have a service's keys.
func TestAFileWithoutAService(t *testing.T) {
	f, err := drivers.Parse("/etc/agent.yaml", []byte("agent: {policy: {name: waits}}\ndata: kept\n"))
	if err != nil || !f.Local() || len(f.Agent.Policy.Groups) == 0 || f.AgentDir() != "/etc/kept/agent" {
		t.Fatalf("got %+v, %v", f, err)
	}
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte("agent: {policy: {name: waits}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, load := range map[string]func(string) error{
		"a process of a service": func(path string) error { _, err := drivers.Load(path); return err },
		"a command to it":        func(path string) error { _, err := drivers.LoadContacts(path); return err },
	} {
		var user *quell.UserError
		if err := load(path); !errors.As(err, &user) || !strings.Contains(err.Error(), "names no service") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f, err := drivers.LoadAgent(path); err != nil || !f.Local() {
		t.Errorf("an agent: %v", err)
	}
	if f, mistakes, err := drivers.LoadLocal(path); err != nil || len(mistakes) != 0 ||
		f.AgentDir() != filepath.Join(filepath.Dir(path), "quell-data", "agent") {
		t.Errorf("a command to the agent: %v, %v", mistakes, err)
	}
	if f, err := drivers.Check(path); err != nil || !f.Local() {
		t.Errorf("config check: %v", err)
	}
	// The configuration of a service may also have a policy for agents. Then commands can reach these agents in spite of mistakes in other
	// parts of the file.
	if f, err := drivers.Parse("quell.yaml", []byte(least+"agent: {policy: {name: waits}}\n")); err != nil || f.Local() {
		t.Errorf("beside a service: %v", err)
	}
	if err := os.WriteFile(path, []byte(least+"bus: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, mistakes, err := drivers.LoadLocal(path); err != nil || len(mistakes) != 1 {
		t.Errorf("with a mistake elsewhere: %v, %v", mistakes, err)
	}
}

// TestWhoLearns: a service learns its models unless the file says otherwise, or the policy needs none or cannot learn them.
func TestWhoLearns(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                    true,
		"policy: {name: lsf}\n":               true,
		"policy: {name: static}\n":            false,
		"policy: {name: dial}\n":              false,
		"models: off\n":                       false,
		"models: learn\n":                     true,
		"models: models.json\n":               false,
		"models: models.json\nlearn: true\n":  true,
		"models: models.json\nlearn: false\n": false,
	} {
		f, err := drivers.Parse("quell.yaml", []byte(least+text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if f.Learns() != want {
			t.Errorf("%q: learns %t, want %t", text, f.Learns(), want)
		}
		if trained := strings.Contains(text, "models.json"); trained != (f.Trained() != "") {
			t.Errorf("%q: trained models %q", text, f.Trained())
		}
	}
}
