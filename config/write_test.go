package config

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/policy/prima"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/scaler/process"
)

// TestWrittenFilesReadBack checks that a written file reads back to what it was written from, for all kinds of
// drivers.
func TestWrittenFilesReadBack(t *testing.T) {
	for name, text := range map[string]string{
		"every key": string(read(t, "testdata/full.yaml")),
		"defaults":  least,
		"a policy":  least + "policy: {name: lr}\n",
		"no limit":  least + "balancer: {max_conns_per_client: 0}\nlisten: off\nagent: {capacity: {cpu: 1.5}}\n",
		"haproxy": least + "balancer: {kind: haproxy, drain: 3s, haproxy: {sockets: [/run/a, '10.0.0.1:9999'], backend: app}}\n" +
			"scaler: {kind: process, command: [web, --port, '{port}', \"a 'b'\"], lifeline: true}\n",
		"lvs":     least + "balancer: {kind: lvs, lvs: {services: ['10.0.0.1:80', 'fwmark:7']}}\n",
		"reports": least + "balancer: {kind: reports, log: {listen: '10.0.0.1:18000', clusters: [web], cert: a, key: b, client_ca: c}}\n",
		"envoy":   least + "balancer: {kind: envoy, envoy: {listen: '10.0.0.1:18000', clusters: [web], cert: a, key: b, client_ca: c}}\n",
		"nginx": least + "balancer: {kind: nginx, health: {path: /}, nginx: {include: shop.conf, reload: [nginx-reload, now], " +
			"upstream: shop, balance: leastconn}}\n",
		"a listed group": least + "scaler: {kind: fixed, instances: [{id: a, address: '10.0.0.1:80'}]}\n" +
			"group: {min: 1, max: 1, initial: 1}\nprobe: {timeout: 1s, count: 8}\n",
		"commands": least + "balancer: {kind: command, command: [apply, '7']}\nscaler: {kind: command, start: [up], stop: [down], list: [ls]}\n",
	} {
		from, d, _ := drivers.parse("quell.yaml", []byte(text))
		if err := d.Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var b strings.Builder
		if err := drivers.Write(&b, from); err != nil {
			t.Fatal(err)
		}
		back, d, _ := drivers.parse("quell.yaml", []byte(b.String()))
		if err := d.Err(); err != nil {
			t.Errorf("%s: %v in\n%s", name, err, b.String())
			continue
		}
		if want, got := valuesOf(from), valuesOf(back); !maps.Equal(got, want) {
			t.Errorf("%s: got %v\nwant %v\nfrom\n%s", name, got, want, b.String())
		}
	}
}

// TestGivenKeysAreWritten checks that a key stays in the file if the user wrote it, even at its default. For example, the balancer warns of
// too few open files only if max_conns is in the file.
func TestGivenKeysAreWritten(t *testing.T) {
	const text = least + "balancer: {max_conns: 10000, health: {fall: 3}, drain: 30s}\npolicy: {name: prima}\nguard: {step: 50%}\n"
	from, err := drivers.Parse("quell.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := drivers.Write(&b, from); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"  max_conns: 10000\n", "    fall: 3\n", "  drain: 30s\n", "  name: prima\n", "  step: 50%\n"} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("%q is lost in\n%s", line, b.String())
		}
	}
	back, err := drivers.Parse("quell.yaml", []byte(b.String()))
	if err != nil || !back.Balancer.Settings.(*builtin.Settings).MaxConnsSet {
		t.Errorf("read back: %v, %+v", err, back)
	}
}

func valuesOf(f *File) map[string]string {
	values := map[string]string{}
	drivers.fileKeys(f).Currents("", values)
	return values
}

// TestServiceIsWrittenWhole checks that unusual values of a service and of its policy's settings are written exactly.
func TestServiceIsWrittenWhole(t *testing.T) {
	f := drivers.Defaults()
	s := &f.Service
	s.Name, s.SLO.Metric, s.SLO.Threshold, s.Sampling, s.Mode = "no", quell.P95, 75*time.Millisecond, 90*time.Second, quell.Advise
	settings := table.All.Whole(s.Policy).Settings.(prima.Settings)
	settings.Confirm, settings.Headroom, settings.Tolerance = 3, 1/1.3, 0.1234567890123
	s.Policy.Settings = settings
	s.Group.Min, s.Group.Max, s.Group.Initial, s.Group.Protected = 2, 5, 3, []string{"i1", "007"}
	s.Scheduling = quell.LeastConn
	s.Guard.SlowStart, s.Guard.Floor = 1500*time.Millisecond, 0.29
	instances := process.Kind.Defaults().(*process.Settings)
	instances.Command = []string{"web", "{port}"}
	f.Scaler = Scaler{Kind: process.Kind.Name, Settings: instances}
	var b strings.Builder
	if err := drivers.Write(&b, &f); err != nil {
		t.Fatal(err)
	}
	got, err := drivers.Parse("quell.yaml", []byte(b.String()))
	if err != nil || !reflect.DeepEqual(got.Service, f.Service) {
		t.Errorf("%v\ngot  %+v\nwant %+v\nfrom\n%s", err, got, f.Service, b.String())
	}
}

func TestOnlyWhatDiffersIsWritten(t *testing.T) {
	f := drivers.Defaults()
	f.Service.Name, f.Balancer.Drain = "video", 5*time.Second
	f.Scaler = Scaler{Kind: process.Kind.Name, Settings: process.Kind.Defaults()}
	var b strings.Builder
	if err := drivers.Write(&b, &f); err != nil || b.String() != "service: \"video\"\nbalancer:\n  drain: 5s\nscaler:\n  kind: process\n" {
		t.Errorf("%v, got\n%s", err, b.String())
	}
}
