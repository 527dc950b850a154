package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// speedPage runs the benchmarks that have a goal and keeps what they printed.
func speedPage(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "PRIMA|Throughput|AddedLatency|Report|Capacity|Readings|Append|Intake", "-benchtime", "2s", "-count", "3",
		"./policy", "./model", "./balancer/builtin", "./agent", "./bus", "./controller")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("running the benchmarks: %w\n%s", err, out)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Speed and size\n\nWritten by `go run ./cmd/results speed` (after `make build`) on %s.\n\n", machine())
	fmt.Fprintf(&b, "Goals: one PRIMA decision over 1,000 instances in at most 2 ms, over 10,000 in at most 25 ms; the built-in balancer at least 15,000 requests/s and at most 0.3 ms added; an agent in at most 15 MB and 0.5%% of a core; a binary of at most 45 MB.\n\n")
	if info, err := os.Stat(filepath.Join("bin", "quell")); err == nil {
		fmt.Fprintf(&b, "Binary: %.1f MB.\n\n", float64(info.Size())/1e6)
	}
	if text, err := agentCost(ctx); err == nil {
		fmt.Fprintf(&b, "%s\n\n", text)
	} else {
		fmt.Fprintf(&b, "The agent could not be measured: %v\n\n", err)
	}
	fmt.Fprintf(&b, "```\n%s```\n", out)
	return os.WriteFile(filepath.Join(dir, "speed.md"), b.Bytes(), 0o644)
}
