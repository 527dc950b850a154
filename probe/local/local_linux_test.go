package local

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
)

// All probes work on this machine, and an agent's sensors report their results.
func TestProbesOfThisMachine(t *testing.T) {
	p, err := New(Options{
		Settings: Settings{Resources: Resources(), Folder: diskFolder(t)}, Period: 500 * time.Millisecond, Root: os.DirFS("/"), Operations: 2000,
		Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	set := sensor.NewSet(p.Sensors()...)
	set.Sample(time.Now())
	told := map[quell.Resource]quell.ProbeStats{}
	for end := time.Now().Add(30 * time.Second); len(told) < len(Resources()); time.Sleep(100 * time.Millisecond) {
		obs, failures := set.Sample(time.Now())
		for r, stats := range obs.Probe {
			told[r] = stats
		}
		if time.Now().After(end) {
			t.Fatalf("only these told anything: %v; the last failures: %v", told, failures) // on a busy machine a probe may fail now and then
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for r, stats := range told {
		t.Logf("%s: %+v by %+v", r, stats, *stats.By)
		if !(stats.MeanMS > 0) || !stats.By.Sound() || stats.By.From != "agent" {
			t.Errorf("%s: %+v by %+v", r, stats, stats.By)
		}
	}
}

// diskFolder returns a folder on a disk: one in the source tree, because temporary files may be in memory.
func diskFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := hasRoom(folder); err == nil {
		return folder
	}
	folder, err := os.MkdirTemp(".", "disk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := hasRoom(folder); err != nil {
		t.Skipf("no folder on a disk: %v", err)
	}
	return folder
}
