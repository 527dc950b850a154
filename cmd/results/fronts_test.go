package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// someFronts has one front that can be asked and one that cannot.
func someFronts() frontsData {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	fleet := &strangerRecord{Settings: frontsSettings(), Machines: []string{"web-1", "web-2", "web-3"}, Began: began,
		Knows: at(4), Calm: at(60),
		Visits: []strangerVisit{{Instance: "web-2", Use: 0.5, True: 0.48, From: at(60), To: at(90)},
			{Instance: "web-3", From: at(110), To: at(140)}},
		Requests: 1000, Alone: strangerCost{HAProxy: 0.05}, Beside: strangerCost{HAProxy: 0.06, Controller: 0.03, Agent: 0.005}}
	for s := 5; s < 150; s++ {
		told := strangerTold{At: at(s), Use: map[string]float64{}, Shares: map[string]float64{"web-1": .3, "web-2": .3, "web-3": .4}}
		if s > 61 && s < 90 {
			told.Use["web-2"], told.Shares["web-2"] = 0.45, 0.2
		}
		fleet.Told = append(fleet.Told, told)
	}
	changes := []frontsChange{{0.6, 0.1, 0.62}, {0.2, 0.3, 0.2}, {0.5, -1, 0.45}}
	return frontsData{Measured: "a machine", Rows: map[string]frontsRow{
		"envoy":   newFrontsRow(&frontsRecord{Fleet: fleet, Changes: changes, Offered: 500}),
		"reports": newFrontsRow(&frontsRecord{Changes: []frontsChange{{0.6, -1, 0.58}}, Offered: 50, Failed: 1}),
	}}
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
