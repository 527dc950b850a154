package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

// someFronts has one front that can be asked and one that cannot.
func someFronts() frontsData {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	fleet := &strangerRecord{Settings: frontsSettings(), Machines: []string{"web-1", "web-2", "web-3"}, Began: began,
		Knows: at(4), Calm: at(60),
		Visits: []strangerVisit{{Instance: "web-2", Use: 0.5, True: 0.48, From: at(60), To: at(90)},
			{Instance: "web-3", From: at(110), To: at(140)}},
		Requests: 1000, Alone: strangerCost{Balancer: 0.05}, Beside: strangerCost{Balancer: 0.06, Controller: 0.03, Agent: 0.005}}
	for s := 5; s < 150; s++ {
		told := strangerTold{At: at(s), Use: map[string]float64{}, Shares: map[string]float64{"web-1": .3, "web-2": .3, "web-3": .4}}
		if s > 61 && s < 90 {
			told.Use["web-2"], told.Shares["web-2"] = 0.45, 0.2
		}
		fleet.Told = append(fleet.Told, told)
	}
	changes := []frontsChange{{0.6, 0.1, 0.62}, {0.2, 0.3, 0.2}, {0.5, -1, 0.45}}
	return frontsData{Measured: "a machine", Rows: map[string]frontsRow{
		"envoy":   frontsRow{}.with(&frontsRecord{Fleet: fleet, Changes: changes, Offered: 500}),
		"reports": frontsRow{}.with(&frontsRecord{Changes: []frontsChange{{0.6, -1, 0.58}}, Offered: 50, Failed: 1}),
	}, Pressed: map[string]frontsPressedRow{
		"envoy":       newFrontsPressedRow(pressedBy(true)),
		"envoy-least": newFrontsPressedRow(pressedBy(false)),
	}}
}

// pressedBy has a neighbour of six seconds, in which the third and fourth have a mean of 60 ms.
func pressedBy(quell bool) *frontsRivalry {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &frontsRivalry{fleet: strangerRecord{Settings: frontsPressed(), Requests: 12, Failed: 1,
		Visits: []strangerVisit{{Instance: "web-1", From: began, To: began.Add(7*time.Second + time.Millisecond)}}}}
	for i := range 7 {
		ms := 10.0
		if i == 2 || i == 3 {
			ms = 50
		}
		at := began.Add(time.Duration(i)*time.Second + time.Millisecond)
		r.samples = append(r.samples, frontsSample{At: at, MS: ms - 10}, frontsSample{At: at, MS: ms + 30})
		if quell {
			r.fleet.Told = append(r.fleet.Told, strangerTold{At: at.Add(-2 * time.Second), Shares: map[string]float64{"web-1": .4 - .05*float64(i)}})
		}
	}
	return r
}

func TestFrontsPressed(t *testing.T) {
	row := newFrontsPressedRow(pressedBy(true))
	if row.AboveS != 2 || row.Seconds != 7 || row.Failed != 1 || row.Over != 2.0/14 || row.P99MS != 80 {
		t.Errorf("%+v", row)
	}
	if o := row.Onsets[0]; o.HeldS != 4 || o.MovedS < 0 || o.MovedS > 0.1 {
		t.Errorf("%+v", o)
	}
	for _, c := range []struct {
		means []float64
		want  float64
	}{{nil, 0}, {[]float64{1, 30}, 0}, {[]float64{31, 1, 1, 31, 1, 1, 1}, 4}, {[]float64{1, 31, 1, 1}, -1}} {
		if got := heldAfter(c.means, 30); got != c.want {
			t.Errorf("%v is held after %v s, want %v", c.means, got, c.want)
		}
	}
}

// What a server without Quell reports is what nginx and its link counted.
func TestUseReports(t *testing.T) {
	at := time.Unix(0, 0)
	r := reportOf(useCounts{at, 100, 1e6}, useCounts{at.Add(2 * time.Second), 301, 11e6}, 100e6)
	if r.GetRpsFractional() != 100 || r.GetApplicationUtilization() != 0.4 {
		t.Errorf("%v", r)
	}
	const table = "Inter-| Receive | Transmit\n face |bytes packets\n    lo: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n" +
		"  eth0: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n"
	if n, err := sentBy(strings.NewReader(table), "eth0"); n != 8 || err != nil {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := sentBy(strings.NewReader(table), "eth1"); err == nil {
		t.Error("an interface that is not there")
	}
	found := served.FindStringSubmatch("Active connections: 2 \nserver accepts handled requests\n 11 12 345 \nReading: 0 Writing: 1\n")
	if len(found) != 2 || found[1] != "345" {
		t.Errorf("%q", found)
	}
}

// Envoy takes the configuration of each way that has one, and those without Quell do not name it.
func TestFrontsEnvoys(t *testing.T) {
	program := need.Envoy(t)
	if strings.Contains(envoyWithoutQuell, "access_log") || strings.Contains(envoyWithoutQuell, "load_stats") {
		t.Error("Envoy without Quell has its lines")
	}
	for name, text := range map[string]string{
		"endpoints": frontEnvoy + frontEnvoyEDS, "reports": frontEnvoy + frontEnvoyReports,
		"use": ejecting(envoyByUse), "least": ejecting(envoyLeast),
	} {
		text = strings.NewReplacer("EDGE", "127.0.0.1", "ENDPOINTS",
			"{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 80}}}}").Replace(text)
		path := filepath.Join(t.TempDir(), "envoy.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(program, "--mode", "validate", "-c", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// Envoy with outlier detection can eject a server of the fleet, for failures as for answers that are late.
func TestFrontsEnvoyCanEject(t *testing.T) {
	for name, text := range map[string]string{"use": ejecting(envoyByUse), "least": ejecting(envoyLeast)} {
		value := func(key string) int {
			found := regexp.MustCompile(`\b` + key + `: (\d+)`).FindStringSubmatch(text)
			if found == nil {
				t.Fatalf("%s has no %s", name, key)
			}
			return must[int](t)(strconv.Atoi(found[1]))
		}
		if most := value("max_ejection_percent"); most*strangerMachines < 100 {
			t.Errorf("%s: Envoy ejects none of %d servers if at most %d%% may be out", name, strangerMachines, most)
		}
		perSecond := frontsPressed().rate(strangerMachines, 0) / strangerMachines
		for _, rule := range []string{"success_rate", "failure_percentage"} {
			if n := value(rule + "_request_volume"); float64(n) > perSecond {
				t.Errorf("%s: a server has %.0f requests in an interval, and %s judges from %d on", name, perSecond, rule, n)
			}
			if n := value(rule + "_minimum_hosts"); n > strangerMachines {
				t.Errorf("%s: %s judges no fleet of %d servers", name, rule, strangerMachines)
			}
		}
		if value("enforcing_failure_percentage") != 100 || !strings.Contains(text, "timeout: 1s, retry_policy") {
			t.Errorf("%s: answers that are late are no failures", name)
		}
	}
}

// The page says why rows are missing until they are played.
func TestFrontsWithoutEjection(t *testing.T) {
	d := someFronts()
	if !newFrontsFigures(d).Unejected {
		t.Error("the page does not say that Envoy with outlier detection was not played")
	}
	d.Pressed["envoy-wrr-outlier"], d.Pressed["envoy-least-outlier"] = frontsPressedRow{}, frontsPressedRow{}
	if newFrontsFigures(d).Unejected {
		t.Error("the page says that Envoy with outlier detection was not played")
	}
}

func TestFrontsRow(t *testing.T) {
	row := someFronts().Rows["envoy"]
	if row.Changes != 3 || row.NotInTime != 1 || row.LargestS != 0.3 || row.ErrorShare < 0.019 || row.ErrorShare > 0.021 {
		t.Errorf("%+v", row)
	}
	if want := []float64{2, -1}; !slices.Equal(row.ReactionS, want) {
		t.Errorf("the share fell after %v s, want %v", row.ReactionS, want)
	}
	if part := partOf(map[string]int{"web-1": 5}, map[string]int{"web-1": 8, "web-2": 1}, "web-1"); part != 0.75 {
		t.Errorf("part %v", part)
	}
}

// What nginx has counts only once a worker has read it.
func TestNginxWeights(t *testing.T) {
	f := &strangerFleet{dir: t.TempDir()}
	servers := []frontServer{{"web-1", "10.0.0.1:80"}, {"web-2", "10.0.0.2:80"}, {"web-3", "10.0.0.3:80"}}
	text := "server 10.0.0.1:80 weight=3 max_fails=2;\n  server 10.0.0.2:80;\nserver 10.0.0.3:80 down;\n"
	if _, err := f.keep("app.conf", text); err != nil {
		t.Fatal(err)
	}
	if _, err := f.keep("front.pid", "1\n"); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-24 * 365 * time.Hour)
	if err := os.Chtimes(filepath.Join(f.dir, "app.conf"), long, long); err != nil {
		t.Fatal(err)
	}
	weights, err := parseNginx(f.include(), servers)
	if err != nil || weights["web-1"] != 0.75 || weights["web-2"] != 0.25 || weights["web-3"] != 0 {
		t.Errorf("%v, %v", weights, err)
	}
	if err := os.WriteFile(filepath.Join(f.dir, "front.pid"), []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := nginxWeights(t.Context(), f, servers); err == nil {
		t.Error("weights without a worker")
	}
}
