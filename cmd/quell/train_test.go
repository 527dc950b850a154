package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/model/modelfile"
)

const resumedTraining = `service: web
slo: {metric: mean, threshold: 40ms}
train: {plan: custom, levels: [10%, 20%], interference: [0%, 30%], run: 1s, repeat: 1, max_repeat: 1, hosts: 1}
`

// TestTrainingSurvivesItsEnd kills or interrupts a training after its first row: the same command continues it, and
// each row is there once at the end.
func TestTrainingSurvivesItsEnd(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "quell.yaml"), []byte(resumedTraining), 0o644); err != nil {
				t.Fatal(err)
			}
			first, said := startTraining(t, dir)
			rows := filepath.Join(dir, "training.jsonl")
			deadline := time.Now().Add(30 * time.Second)
			for !holdsLine(rows) {
				if time.Now().After(deadline) {
					t.Fatalf("no row within 30 s; it said: %s", said)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if err := first.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := first.Wait(); err == nil {
				t.Fatal("the training was done already")
			}
			if signal == syscall.SIGINT && !strings.Contains(said.String(), "the same command goes on from here") {
				t.Errorf("interrupted, it said: %s", said)
			}
			second, said := startTraining(t, dir)
			if err := second.Wait(); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			if strings.Contains(said.String(), " 0 kept") || !strings.Contains(said.String(), "4 rows in training.jsonl") {
				t.Errorf("going on, it said: %s", said)
			}
			checkWhole(t, rows)
		})
	}
}

func startTraining(t *testing.T, dir string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd, said := exec.Command("quell", "train", "--config", "quell.yaml"), &bytes.Buffer{}
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, said
}

func holdsLine(path string) bool {
	data, err := os.ReadFile(path)
	return err == nil && bytes.Contains(data, []byte("\n"))
}

func checkWhole(t *testing.T, path string) {
	t.Helper()
	rows, err := modelfile.LoadTraining(path)
	if err != nil {
		t.Fatal(err)
	}
	seeds := map[uint64]bool{}
	for _, r := range rows {
		seeds[r.Seed] = true
	}
	if len(rows) != 4 || len(seeds) != 4 {
		t.Errorf("%d rows of %d runs, want 4", len(rows), len(seeds))
	}
}

// A first window that says nothing of the resource is read again; one that never does is told, not waited for.
func TestFirstReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for known, want := range map[int]int{1: 1, 2: 2, 4: 3} {
			reads := 0
			done, err := firstReading(t.Context(), quell.Disk, func() (bus.Trained, error) {
				if reads++; reads < known {
					return bus.Trained{Failures: []string{"disk: more than it can do"}}, nil
				}
				return bus.Trained{Own: map[quell.Resource]float64{quell.Disk: 0.5}}, nil
			})
			if err != nil || reads != want || (done.Own == nil) != (known > want) {
				t.Errorf("known at reading %d: %d readings, %+v, %v", known, reads, done, err)
			}
		}
	})
}
