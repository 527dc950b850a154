package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/quellhq/quell/lab/scenario"
)

// TestDemo runs the demo's scenario in five seconds, and one of a few machines with ready models: every run has results, and no process is
// left.
func TestDemo(t *testing.T) {
	t.Parallel()
	examples := filepath.Join(repository(t), "examples")
	ready, few := filepath.Join(examples, "golden", "models.json"), filepath.Join(examples, "scenarios", "noisy-neighbour.yaml")
	for name, c := range map[string]struct {
		runs        int
		flags, says []string
	}{
		"fleet": {4, nil, []string{"Nothing is trained", "prima/leastconn learning", "models: ", "learned", "To miss it as little:"}},
		"noisy-neighbour": {1, []string{"--scenario", few, "--policy", "prima", "--models", ready},
			[]string{"prima/leastconn ", "Models:   " + ready}},
	} {
		t.Run(name, func(t *testing.T) { testDemo(t, name, c.runs, c.flags, c.says) })
	}
}

func testDemo(t *testing.T, name string, runs int, flags, says []string) {
	work := t.TempDir()
	dir, results := filepath.Join(work, "demo"), filepath.Join(work, "results.json")
	args := append([]string{"demo", "--duration", "5s", "--seed", "7", "--dir", dir, "--json", results}, flags...)
	out, err := exec.CommandContext(t.Context(), "quell", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range append([]string{"RUN", "VIOLATION", "Try next"}, says...) {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	played := readResults(t, results)
	if len(played) != runs {
		t.Errorf("%d results, want one for each of %d runs", len(played), runs)
	}
	for _, r := range played {
		if r.Scenario != name || r.Seed != 7 || r.DurationS != 5 {
			t.Errorf("a result of %s, seed %d, %v s; want %s, 7, 5 s", r.Scenario, r.Seed, r.DurationS, name)
		}
		if r.Requests == 0 || r.InstanceSeconds <= 0 {
			t.Errorf("%s with %s: %d requests, %v instance-seconds", r.Policy, r.Scheduling, r.Requests, r.InstanceSeconds)
		}
	}
	if left := processesOf(t, dir); len(left) > 0 {
		t.Errorf("still running: %q", left)
	}
}

func readResults(t *testing.T, path string) []scenario.Result {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var results []scenario.Result
	if err := json.Unmarshal(data, &results); err != nil {
		t.Fatal(err)
	}
	return results
}

// processesOf lists command lines that contain the folder; none if the kernel does not show them.
func processesOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return nil
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Fatalf("no processes in /proc: %v", err)
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && bytes.Contains(line, []byte(dir)) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
