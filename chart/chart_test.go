package chart

import (
	"errors"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/figure"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/stats"
)

// trained is models of a link that behaves like processor sharing.
func trained(t *testing.T, levels, interferences []float64) *model.Models {
	t.Helper()
	var rows []model.TrainingRow
	for _, u := range levels {
		for _, interfering := range interferences {
			if u+interfering > 0.95 {
				continue
			}
			stretch := 1 / (1 - u - interfering)
			ms := 10 * stretch
			rows = append(rows, model.TrainingRow{
				Resource: quell.Network, Level: u, Utilization: u, Interfering: interfering, InterferingLevel: &interfering, RequestRate: 100 * u,
				LatencyMS: quell.Latency{Mean: &ms, N: 100}, ProbeMS: model.ProbeRun{Mean: 2 * stretch, Stddev: stretch, N: 50},
			})
		}
	}
	m, _, err := model.Fit(rows, model.FitOptions{Metric: quell.Mean})
	if err != nil {
		t.Fatal(err)
	}
	return &model.Models{Trained: m.Trained, Sections: []model.Section{m.Prima()}} // other sections have pictures of their own
}

func TestModelsAreDrawn(t *testing.T) {
	levels, interferences := []float64{0.1, 0.3, 0.5, 0.7, 0.9}, []float64{0, 0.1, 0.3, 0.5}
	whole := trained(t, levels, interferences)
	noRTM, onlyAlone := trained(t, levels, interferences), trained(t, levels, []float64{0})
	noRTM.Prima().ResponseTime = nil
	for name, tc := range map[string]struct {
		models  *model.Models
		options model.ShowOptions
		want    int
	}{
		"all":                   {whole, model.ShowOptions{}, 6},
		"with a threshold":      {whole, model.ShowOptions{ThresholdsMS: []float64{40}}, 6},
		"threshold out of view": {whole, model.ShowOptions{ThresholdsMS: []float64{1e6, 1e-3}}, 6},
		"no response times":     {noRTM, model.ShowOptions{}, 1},
		"isolation only":        {onlyAlone, model.ShowOptions{}, 1},
		"one level, one cell":   {trained(t, []float64{0.3}, []float64{0, 0.2}), model.ShowOptions{}, 6},
		"nothing interfered":    {trained(t, []float64{0.3}, []float64{0, 0.0001}), model.ShowOptions{}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			names, err := Models(filepath.Join(t.TempDir(), "new", "folder"), tc.models, tc.options)
			if err != nil {
				t.Fatal(err)
			}
			if len(names) != tc.want {
				t.Errorf("pictures %v, want %d", names, tc.want)
			}
			for _, name := range names {
				checkPicture(t, name)
			}
		})
	}
}

// The section of DIAL has a picture of its tree and one of its response times.
func TestDialIsDrawn(t *testing.T) {
	leaf := func(class string, count, errors int) *stats.Tree {
		return &stats.Tree{Class: class, Count: count, Errors: errors}
	}
	m := &model.Models{Sections: []model.Section{&model.Dial{
		Classifier: &stats.Tree{Feature: "connect_ms_p90", Threshold: 3, Above: leaf("network", 50, 1),
			Below: &stats.Tree{Feature: "cpu_user_ratio", Threshold: 1.2, Above: leaf("memory", 40, 0),
				Below: &stats.Tree{Feature: "iowait", Threshold: 0.1, Above: leaf("disk", 30, 2), Below: leaf("none", 80, 0)}}},
		Queueing: map[quell.Resource]model.Queueing{quell.Network: {2, 4, 0.6}, quell.CPU: {4, 2, 0.3}},
	}}}
	names, err := Models(t.TempDir(), m, model.ShowOptions{})
	if err != nil || len(names) != 2 {
		t.Fatalf("pictures %v, %v", names, err)
	}
	for _, name := range names {
		checkPicture(t, name)
	}
}

func checkPicture(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := png.DecodeConfig(f); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

func TestNothingToDraw(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for dir, m := range map[string]*model.Models{t.TempDir(): {}, file: trained(t, []float64{0.1, 0.3}, []float64{0, 0.3})} {
		var user *quell.UserError
		if _, err := Models(dir, m, model.ShowOptions{}); !errors.As(err, &user) {
			t.Errorf("got %v, want a mistake of the user", err)
		}
	}
}

// A picture that cannot be written leaves nothing half done.
func TestUnwritablePicture(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "network-isolation.png"), 0o755); err != nil {
		t.Fatal(err)
	}
	if names, err := Models(dir, trained(t, []float64{0.1, 0.3}, []float64{0, 0.3}), model.ShowOptions{}); err == nil {
		t.Errorf("drew %v", names)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v", entries, err)
	}
}

// TestRoundTicks checks that every axis has three to nine ticks within its range, and no label twice.
func TestRoundTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.Float64Range(-100, 100).Draw(t, "low")
		high := low + math.Pow(10, rapid.Float64Range(-2, 5).Draw(t, "length"))
		labels := map[string]bool{}
		for _, tick := range figure.RoundTicks(low, high) {
			if tick.Value < low || tick.Value > high {
				t.Fatalf("%g is outside", tick.Value)
			}
			labels[tick.Label] = true
		}
		if n := len(figure.RoundTicks(low, high)); n < 3 || n > 9 || len(labels) != n {
			t.Fatalf("%d ticks, labelled %v", n, labels)
		}
	})
	var labels []string
	for _, tick := range figure.RoundTicks(0, 28) {
		labels = append(labels, tick.Label)
	}
	if !slices.Equal(labels, []string{"0", "5", "10", "15", "20", "25"}) {
		t.Errorf("from 0 to 28: %v", labels)
	}
}
