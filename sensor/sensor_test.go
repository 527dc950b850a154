package sensor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/golden"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// machine is a file system that can be swapped between two samples.
type machine struct{ fs.FS }

func TestGolden(t *testing.T) {
	m := &machine{os.DirFS("testdata/before")}
	var probe uint64 = 1_000_000
	set, err := New(Options{Root: m, Exclude: func() uint64 { return probe }})
	if err != nil {
		t.Fatal(err)
	}
	first, failures := set.Sample(start)
	mustNotFail(t, failures)
	compare(t, "first.json", first)

	m.FS = os.DirFS("testdata/after")
	probe += 2_500_000
	second, failures := set.Sample(start.Add(10 * time.Second))
	mustNotFail(t, failures)
	compare(t, "second.json", second)
}

func compare(t *testing.T, name string, obs quell.Observation) {
	t.Helper()
	got, err := json.MarshalIndent(obs, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	golden.Compare(t, filepath.Join("testdata", name), got)
}

func mustNotFail(t *testing.T, failures []Failure) {
	t.Helper()
	for _, f := range failures {
		t.Fatalf("%s: %v", f.Sensor, f.Err)
	}
}

// tree builds a machine with one interface. Each change replaces a file; if the change is empty, the file is removed.
func tree(rx, tx uint64, changes map[string]string) fs.FS {
	files := map[string]string{
		"proc/net/dev":             netDev("eth0", rx, tx),
		"proc/net/route":           "Iface Destination ...\neth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0\n",
		"sys/class/net/eth0/speed": "1000\n",
	}
	maps.Copy(files, changes)
	out := fstest.MapFS{}
	for name, text := range files {
		if text != "" {
			out[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return out
}

func netDev(iface string, rx, tx uint64) string {
	return fmt.Sprintf("Inter-| Receive | Transmit\n face |bytes |bytes\n %s: %d 0 0 0 0 0 0 0 %d 0 0 0 0 0 0 0\n", iface, rx, tx)
}

// A driver's made-up speed does not replace a figure that a person configured, and figures that contradict each other are named.
func TestDoubtfulCapacity(t *testing.T) {
	const second = 125_000_000 // bytes of 1 Gbit/s
	medium := Link{Type: "t3.medium", Baseline: 256e6, Burst: 5e9}
	speed := func(mbits string) map[string]string { return map[string]string{"sys/class/net/eth0/speed": mbits} }
	configured := map[quell.Resource]float64{quell.Network: 1e9}
	for _, c := range []struct {
		name  string
		speed string
		opts  Options
		use   float64 // at 1 Gbit/s
		doubt string
	}{
		{"made up", "10000\n", Options{Capacity: configured, Link: medium}, 1, "eth0 has 1000 Mbit/s as configured, and the kernel says " +
			"10000 Mbit/s; t3.medium has a baseline of 256 Mbit/s and a burst of 5000 Mbit/s: the configured figure is used"},
		{"the type is not known", "10000\n", Options{Capacity: configured}, 1,
			"eth0 has 1000 Mbit/s as configured, and the kernel says 10000 Mbit/s: the configured figure is used"},
		{"they agree", "2000\n", Options{Capacity: configured, Link: medium}, 1, ""},
		{"the kernel says nothing", "-1\n", Options{Capacity: configured}, 1, ""},
		{"nothing is configured, and the type has half", "25000\n", Options{Link: medium}, 0.04, "eth0 has 25000 Mbit/s as the kernel says; " +
			"t3.medium has a baseline of 256 Mbit/s and a burst of 5000 Mbit/s: set agent.capacity.network"},
		{"no burst is published", "1000\n", Options{Link: Link{Type: "t2.micro", Baseline: 61e6}}, 1,
			"eth0 has 1000 Mbit/s as the kernel says; t2.micro has a baseline of 61 Mbit/s: set agent.capacity.network"},
		{"only the kernel says anything", "10000\n", Options{}, 0.1, ""},
	} {
		obs, n, err := sampleNetwork(c.opts, tree(0, 0, speed(c.speed)), tree(0, second, speed(c.speed)))
		if err != nil || obs.Utilization[quell.Network] != c.use || n.Doubt() != c.doubt {
			t.Errorf("%s: use %v, %v; doubt %q", c.name, obs.Utilization, err, n.Doubt())
		}
	}
}

// sampleNetwork samples the network twice, a second apart.
func sampleNetwork(o Options, before, after fs.FS) (obs quell.Observation, n *Network, err error) {
	m := &machine{before}
	o.Root = m
	if n, err = NewNetwork(o); err != nil {
		return obs, nil, err
	}
	if err = n.Sample(start, &obs); err != nil {
		return obs, n, err
	}
	m.FS = after
	return obs, n, n.Sample(start.Add(time.Second), &obs)
}

func TestNetworkUtilization(t *testing.T) {
	const second = 125_000_000 // bytes of 1 Gbit/s
	capacity := map[quell.Resource]float64{quell.Network: 500e6}
	virtual := map[string]string{"sys/class/net/eth0/speed": "-1\n"}
	for _, c := range []struct {
		name          string
		before, after fs.FS
		opts          Options
		probe         uint64 // bytes sent by the probe server in the window
		want          float64
	}{
		{"sending decides", tree(0, 0, nil), tree(second/10, second/2, nil), Options{}, 0, 0.5},
		{"receiving decides", tree(0, 0, nil), tree(second/2, second/10, nil), Options{}, 0, 0.5},
		{"counters start anywhere", tree(1<<62, 1<<62, nil), tree(1<<62, 1<<62+second/4, nil), Options{}, 0, 0.25},
		{"the probe is no use", tree(0, 0, nil), tree(0, second/2, nil), Options{}, second / 10, 0.4},
		{"the probe is not yet on the wire", tree(0, 0, nil), tree(second/10, 1000, nil), Options{}, 2000, 0.1},
		{"configured capacity wins", tree(0, 0, nil), tree(0, second/4, nil), Options{Capacity: capacity}, 0, 0.5},
		{"a virtual interface needs it", tree(0, 0, virtual), tree(0, second/4, virtual), Options{Capacity: capacity}, 0, 0.5},
		{"idle is zero, not absent", tree(7, 7, nil), tree(7, 7, nil), Options{}, 0, 0},
		{"a burst passes 1", tree(0, 0, nil), tree(0, second*11/10, nil), Options{}, 0, 1.1},
		{"interface by name", tree(0, 0, map[string]string{"proc/net/route": ""}),
			tree(0, second/2, map[string]string{"proc/net/route": ""}), Options{Interface: "eth0"}, 0, 0.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			obs, failures := sampleTwice(t, c.opts, c.before, c.after, c.probe)
			mustNotFail(t, failures)
			got, ok := obs.Utilization[quell.Network]
			if !ok || math.Abs(got-c.want) > 1e-9 {
				t.Errorf("utilization %v (present: %t), want %v", got, ok, c.want)
			}
			if obs.WindowS != 1 {
				t.Errorf("window %v s, want 1", obs.WindowS)
			}
		})
	}
}

// sampleTwice samples the network, one second apart.
func sampleTwice(t *testing.T, o Options, before, after fs.FS, probe uint64) (quell.Observation, []Failure) {
	t.Helper()
	m := &machine{before}
	sent := uint64(50)
	o.Root, o.Exclude = m, func() uint64 { return sent }
	network, err := NewNetwork(o)
	if err != nil {
		t.Fatal(err)
	}
	set := NewSet(network)
	if obs, _ := set.Sample(start); obs.Utilization != nil || obs.Counters != nil || obs.WindowS != 0 {
		t.Fatalf("the first sample is a reading: %+v", obs)
	}
	m.FS, sent = after, sent+probe
	return set.Sample(start.Add(time.Second))
}

func TestNetworkFailures(t *testing.T) {
	good := tree(100, 100, nil)
	for _, c := range []struct {
		name      string
		after     fs.FS
		opts      Options
		want      string
		usersCase bool
	}{
		{"counter reset", tree(100, 5, nil), Options{}, "counters of eth0 went back", false},
		{"no counters", tree(0, 0, map[string]string{"proc/net/dev": ""}), Options{}, "reading network counters", false},
		{"broken counters", tree(0, 0, map[string]string{"proc/net/dev": "eth0 1 2"}), Options{}, "/proc/net/dev: line 1", false},
		{"no speed", tree(0, 0, map[string]string{"sys/class/net/eth0/speed": ""}), Options{}, "agent.capacity.network", true},
		{"speed unknown", tree(0, 0, map[string]string{"sys/class/net/eth0/speed": "-1\n"}), Options{}, "agent.capacity.network", true},
		{"misspelt interface", good, Options{Interface: "eht0"}, `no network interface "eht0" (there are: eth0)`, true},
		{"no default route", tree(0, 0, map[string]string{"proc/net/route": "Iface\n"}), Options{}, "set agent.interface", false},
		{"capacity far too low", tree(100, 1e6, nil), Options{Capacity: map[quell.Resource]float64{quell.Network: 1e6}}, "set the true capacity",
			true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.opts.Interface == "eht0" {
				c.opts.Capacity = map[quell.Resource]float64{quell.Network: 1e9}
			}
			obs, failures := sampleTwice(t, c.opts, good, c.after, 0)
			if _, ok := obs.Utilization[quell.Network]; ok {
				t.Errorf("a failed reading is there: %v", obs.Utilization)
			}
			if len(failures) != 1 || failures[0].Sensor != "network" || !strings.Contains(failures[0].Err.Error(), c.want) {
				t.Fatalf("failures %v, want one that says %q", failures, c.want)
			}
			var user *quell.UserError
			if errors.As(failures[0].Err, &user) != c.usersCase {
				t.Errorf("%v: a user's mistake: %t, want %t", failures[0].Err, !c.usersCase, c.usersCase)
			}
		})
	}
}

func TestTheInterfaceIsTold(t *testing.T) {
	m := &machine{fstest.MapFS{}}
	set, err := New(Options{Root: m, Capacity: map[quell.Resource]float64{quell.Network: 5e8}})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		root     fs.FS
		name     string
		capacity float64
	}{{fstest.MapFS{}, "", 0}, {tree(0, 0, nil), "eth0", 5e8}, {fstest.MapFS{}, "", 0}} {
		m.FS = c.root
		set.Sample(time.Unix(int64(100+i), 0))
		if name, capacity := set.Interface(); name != c.name || capacity != c.capacity {
			t.Errorf("reading %d: %q with %v bit/s, want %q with %v", i, name, capacity, c.name, c.capacity)
		}
	}
	if name, _ := NewSet().Interface(); name != "" {
		t.Errorf("without a sensor: %q", name)
	}
}

func TestNetworkPrimesAgainAfterAFailure(t *testing.T) {
	m := &machine{}
	network, err := NewNetwork(Options{Root: m})
	if err != nil {
		t.Fatal(err)
	}
	set := NewSet(network)
	var got []string
	for i, tree := range []fs.FS{tree(0, 0, nil), fstest.MapFS{}, tree(0, 1000, nil), tree(0, 2000, nil)} {
		m.FS = tree
		obs, failures := set.Sample(start.Add(time.Duration(i) * time.Second))
		got = append(got, fmt.Sprintf("%d failed, %d read", len(failures), len(obs.Utilization)))
	}
	want := []string{"0 failed, 0 read", "1 failed, 0 read", "0 failed, 0 read", "0 failed, 1 read"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNetworkFollowsTheDefaultRoute(t *testing.T) {
	moved := tree(0, 0, map[string]string{
		"proc/net/route":            "Iface\nwlan0 00000000 010200C0 0003 0 0 0 00000000 0 0 0\n",
		"proc/net/dev":              netDev("wlan0", 1e9, 1e9),
		"sys/class/net/wlan0/speed": "1000\n",
	})
	_, failures := sampleTwice(t, Options{}, tree(0, 0, nil), moved, 0)
	if len(failures) != 1 || !strings.Contains(failures[0].Err.Error(), "moved from eth0 to wlan0") {
		t.Errorf("failures %v, want the move to be told", failures)
	}
}

func TestUtilizationNeverExceedsTheTraffic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Uint64Range(0, 1e9)
		before := networkReading{at: start, traffic: traffic{rx: bytes.Draw(t, "rx"), tx: bytes.Draw(t, "tx")}, probe: bytes.Draw(t, "probe")}
		window := time.Duration(rapid.Int64Range(1e6, 1e11).Draw(t, "window"))
		sent, received, probe := bytes.Draw(t, "sent"), bytes.Draw(t, "received"), bytes.Draw(t, "probed")
		after := before
		after.at = start.Add(window)
		after.traffic.tx += sent
		after.traffic.rx += received
		after.probe += probe
		tx, rx, err := before.rates(&after)
		if err != nil {
			t.Fatal(err)
		}
		wantTX := math.Max(0, float64(sent)-float64(probe)) * 8 / window.Seconds()
		wantRX := float64(received) * 8 / window.Seconds()
		if math.Abs(tx-wantTX) > 1e-6*wantTX || math.Abs(rx-wantRX) > 1e-6*wantRX {
			t.Fatalf("%v and %v bit/s, want %v and %v", tx, rx, wantTX, wantRX)
		}
	})
}

func stat(user, system, idle, iowait, steal uint64) string {
	return fmt.Sprintf("cpu %d 0 %d %d %d 0 0 %d 0 0\ncpu0 0\ncpu1 0\nctxt 1\n", user, system, idle, iowait, steal)
}

func TestCPU(t *testing.T) {
	for _, c := range []struct {
		name   string
		before string
		after  string
		cores  float64 // 0: all cores of the machine
		want   quell.CPUTime
		use    float64
		fails  string
	}{
		{name: "half busy", before: stat(0, 0, 0, 0, 0), after: stat(30, 20, 50, 0, 0), want: quell.CPUTime{User: 0.3, System: 0.2}, use: 0.5},
		{name: "one of two cores is ours", before: stat(0, 0, 0, 0, 0), after: stat(30, 10, 60, 0, 0), cores: 1,
			want: quell.CPUTime{User: 0.3, System: 0.1}, use: 0.8},
		{name: "steal is no use", before: stat(5, 5, 5, 5, 5), after: stat(15, 5, 65, 15, 25),
			want: quell.CPUTime{User: 0.1, IOWait: new(0.1), Steal: 0.2}, use: 0.1},
		{name: "idle and iowait may go back", before: stat(0, 0, 10, 10, 0), after: stat(10, 0, 9, 9, 0), want: quell.CPUTime{User: 1}, use: 1},
		{name: "user went back", before: stat(10, 0, 0, 0, 0), after: stat(9, 0, 10, 0, 0), fails: "went back"},
		{name: "no tick", before: stat(1, 1, 1, 1, 1), after: stat(1, 1, 1, 1, 1), fails: "no processor time passed"},
		{name: "far more cores than configured", before: stat(0, 0, 0, 0, 0), after: stat(10, 0, 0, 0, 0), cores: 0.5,
			want: quell.CPUTime{User: 1}, fails: "agent.capacity.cpu"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &machine{fstest.MapFS{"proc/stat": {Data: []byte(c.before)}}}
			o := Options{Root: m}
			if c.cores > 0 {
				o.Capacity = map[quell.Resource]float64{quell.CPU: c.cores}
			}
			cpu, err := NewCPU(o)
			if err != nil {
				t.Fatal(err)
			}
			var obs quell.Observation
			if err := cpu.Sample(start, &obs); err != nil || obs.CPU != nil {
				t.Fatalf("priming: %v, %v", obs.CPU, err)
			}
			m.FS = fstest.MapFS{"proc/stat": {Data: []byte(c.after)}}
			err = cpu.Sample(start.Add(time.Second), &obs)
			use, ok := obs.Utilization[quell.CPU]
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || ok {
					t.Fatalf("error %v, use present: %t; want an error that says %q", err, ok, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.want.IOWait == nil {
				c.want.IOWait = new(0.0)
			}
			if !reflect.DeepEqual(*obs.CPU, c.want) || math.Abs(use-c.use) > 1e-9 {
				t.Errorf("got %+v, use %v; want %+v, %v", *obs.CPU, use, c.want, c.use)
			}
		})
	}
}

// unsupported is a kernel that has the pressure files but refuses to read them.
type unsupported struct{}

func (unsupported) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTSUP}
}

func TestPressure(t *testing.T) {
	for _, c := range []struct {
		name  string
		root  fs.FS
		want  map[string]float64
		fails string
	}{
		{"a kernel without it", fstest.MapFS{}, nil, ""},
		{"switched off at boot", unsupported{}, nil, ""},
		{"some of it", fstest.MapFS{"proc/pressure/io": {Data: []byte("some avg10=2.50 avg60=0 avg300=0 total=1\n")}},
			map[string]float64{"io": 0.025}, ""},
		{"one file is broken", fstest.MapFS{
			"proc/pressure/cpu":    {Data: []byte("some avg10=NaN avg60=0\n")},
			"proc/pressure/memory": {Data: []byte("some avg10=100.00 avg60=0\n")},
		}, map[string]float64{"memory": 1}, "/proc/pressure/cpu"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var obs quell.Observation
			err := NewPressure(Options{Root: c.root}).Sample(start, &obs)
			if !maps.Equal(obs.Pressure, c.want) {
				t.Errorf("got %v, want %v", obs.Pressure, c.want)
			}
			if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("error %v, want one that says %q", err, c.fails)
			}
		})
	}
}

func TestSensorsFailAlone(t *testing.T) {
	m := &machine{os.DirFS("testdata/before")}
	set, err := New(Options{Root: m, Interface: "nothere"})
	if err != nil {
		t.Fatal(err)
	}
	set.Sample(start)
	m.FS = os.DirFS("testdata/after")
	obs, failures := set.Sample(start.Add(time.Second))
	if len(failures) != 1 || failures[0].Sensor != "network" {
		t.Errorf("failures %v, want the network alone", failures)
	}
	if obs.CPU == nil || obs.Pressure == nil {
		t.Errorf("the other sensors read nothing: %+v", obs)
	}
}

func TestCapacityMustBeANumber(t *testing.T) {
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		for _, r := range []quell.Resource{quell.Network, quell.CPU} {
			_, err := New(Options{Root: fstest.MapFS{}, Capacity: map[quell.Resource]float64{r: bad}})
			var user *quell.UserError
			if !errors.As(err, &user) || !strings.Contains(err.Error(), "agent.capacity."+string(r)) {
				t.Errorf("capacity %v of %s: error %v", bad, r, err)
			}
		}
	}
}
