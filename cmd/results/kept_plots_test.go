package main

import (
	"bytes"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/figure"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// Plots are drawn from the tables that live.json keeps, without records of the lab, and those of the pages are drawn so: their size is the
// same. Exact pixels depend on the processor's floating point.
func TestPlotsFromLiveJSON(t *testing.T) {
	const docs = "../../docs/results"
	dir := filepath.Join(t.TempDir(), "results")
	for _, folder := range []string{"haproxy", "resources", "ice"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(docs, "live.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "live.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := drawKept(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"haproxy/tradeoff-weak-neighbours.png", "resources/tradeoff-changing-disk-p90.png",
		"ice/ice-table-medians.png", "ice/ice-table-compile-medians.png", "ice/streaming.png"} {
		if !slices.Contains(drawn, want) {
			t.Errorf("%s is not drawn", want)
		}
	}
	for _, path := range drawn {
		var sizes [2]any
		for i, folder := range []string{dir, docs} {
			data, err := os.ReadFile(filepath.Join(folder, path))
			if err != nil {
				t.Fatal(err)
			}
			config, err := png.DecodeConfig(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			sizes[i] = [2]int{config.Width, config.Height}
		}
		if sizes[0] != sizes[1] {
			t.Errorf("%s: %v here, %v in the docs: go run ./cmd/results plots", path, sizes[0], sizes[1])
		}
	}
}

func TestKeptTables(t *testing.T) {
	tables := tablesIn("x\n\n| run | seeds | violation | requests over the threshold | instance-seconds |\n|---|---|---|---|---|\n" +
		"| prima (share a)/leastconn | 3 | 10 s (0 to 40) | 12.5% | 443 |\n| static/roundrobin x4 | 1 | 0 s | 50.0% | 600 |\n| torn |\n\n" +
		"| weight | 2 workers |\n|---|---|\n| 90 | 356 (4% not sent) |\n")
	if len(tables) != 2 || len(tables[0].rows) != 2 {
		t.Fatalf("%d tables: %q", len(tables), tables)
	}
	points, err := keptTradeoff(tables[0])
	want := []tradeoffPoint{{"prima (share a)/leastconn", "prima leastconn", 10, 0.125, 443},
		{"static/roundrobin x4", "haproxy roundrobin", 0, 0.5, 600}}
	if err != nil || !slices.Equal(points, want) {
		t.Errorf("got %+v, %v", points, err)
	}
	s, err := keptStreams([]keptTable{tables[1], tables[1]})
	if err != nil || !slices.Equal(s.Counts, []int{2}) || s.Weights[0].At != 90 {
		t.Fatalf("got %+v, %v", s, err)
	}
	if ms := s.Weights[0].Cells[0].MS; !slices.Equal(ms, []float64{356}) {
		t.Errorf("delay %v", ms)
	}
	for text, fails := range map[string]string{
		"| run | violation |\n|---|---|\n| a | 3 |\n":                                                                  "no column",
		"| run | violation | requests over the threshold | instance-seconds |\n|---|---|---|---|\n| a | - | 3 | 4 |\n": "begins with no number",
	} {
		if _, err := keptTradeoff(tablesIn(text)[0]); err == nil || !strings.Contains(err.Error(), fails) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := drawKeptPlot("x", "streaming", nil); err == nil {
		t.Error("a text without tables is drawn")
	}
}

// A run of many instances has a line of the fullest, of the emptiest and of each neighbour, in the colours of the palette, and a title that
// says what was found.
func TestPlotOfARunWithManyInstances(t *testing.T) {
	r, threshold := &experiment.Record{}, 40*time.Millisecond
	for at := range 20 {
		m := experiment.Moment{AtS: float64(at - 2), LatencyMS: float64(30 + at), Disturbs: map[string]float64{"h1": 0.4, "h2": 0, "h10": 0.2}}
		for i := range 12 {
			use := float64(i) / 20
			m.Instances = append(m.Instances, experiment.SeenInstance{Utilization: &use})
		}
		r.Moments = append(r.Moments, m)
	}
	lines := uses(r)
	var names []string
	for _, line := range lines {
		names = append(names, line.Name)
		if len(line.Points) != 18 {
			t.Errorf("%s has %d points; those of the warm-up are left out", line.Name, len(line.Points))
		}
	}
	if got := strings.Join(names, ", "); got != "fullest instance, emptiest instance, neighbour h1, neighbour h2, neighbour h10" {
		t.Errorf("lines: %s", got)
	}
	if lines[0].Points[3].Y != 0.55 || lines[1].Points[3].Y != 0 || len(lines) > figure.MostSeries {
		t.Errorf("%d lines, of which the first two are at %v and %v", len(lines), lines[0].Points[3].Y, lines[1].Points[3].Y)
	}
	path := filepath.Join(t.TempDir(), "run.png")
	sc := &scenario.Scenario{Duration: 18 * time.Second, Hosts: []scenario.Host{{ID: "h1", Network: 1e8, Cores: 1, DiskIOPS: 100, Memory: 1}}}
	sc.Service.SLO = quell.SLO{Metric: quell.Mean, Threshold: threshold}
	if err := plotRun(path, "prima/leastconn", sc, r); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := figure.Policy("prima/leastconn")
	seen := map[color.NRGBA]bool{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			seen[color.NRGBAModel.Convert(picture.At(x, y)).(color.NRGBA)] = true
		}
	}
	if !seen[want] {
		t.Errorf("nothing has the colour of PRIMA, %v", want)
	}
}
