package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// speedFigures are the results of the benchmarks that have a goal, the size of the program and the cost of an agent.
type speedFigures struct {
	place
	BinaryBytes float64 // 0: not built
	Agent       *agentUse
	AgentError  error // why the agent could not be measured
	Benchmarks  string
}

// AgentGoal says whether an agent reaches its goals of memory and processor time.
func (f speedFigures) AgentGoal() string {
	var kB float64
	if f.Agent == nil {
		return "not measured"
	}
	if _, err := fmt.Sscanf(f.Agent.Memory, "%f kB", &kB); err != nil {
		return "not measured"
	}
	return goalText(kB/1000, " MB", kB <= 15_000) + "; " + goalText(100*f.Agent.Core, "%", f.Agent.Core <= 0.005)
}

// BinaryGoal says whether the program is as small as it is to be.
func (f speedFigures) BinaryGoal() string {
	if f.BinaryBytes == 0 {
		return "not measured"
	}
	return goalText(f.BinaryBytes/1e6, " MB", f.BinaryBytes <= 45e6)
}

// measured are the benchmarks that have a goal, and the packages that contain them.
var measured = []string{
	"-bench", "PRIMA|Throughput|AddedLatency|Report|Capacity|Readings|Append|Intake", "-benchtime", "2s", "-count", "3",
	"./policy", "./model", "./balancer/builtin", "./agent", "./bus", "./controller",
}

// speedPage runs these benchmarks and writes their results to the page.
func speedPage(ctx context.Context, dir string) error {
	out, err := benchmark(ctx, measured)
	if err != nil {
		return err
	}
	f := speedFigures{place: here(), Benchmarks: string(out)}
	if info, err := os.Stat(filepath.Join("bin", "quell")); err == nil {
		f.BinaryBytes = float64(info.Size())
	}
	f.Agent, f.AgentError = agentCost(ctx, time.Second, "off")
	return writePage(dir, "speed", f)
}

// benchmark runs benchmarks, and returns what they print. args are further arguments of go test.
func benchmark(ctx context.Context, args []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-run", "^$"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running the benchmarks: %w\n%s", err, out)
	}
	return out, nil
}
