// Command results runs the experiments behind docs/results and writes their pages: `make results`. It is a tool of
// this repository, not part of the product.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// experiments are the pages that can be written, by name; prima:PART plays one part of that page again, and prima:page
// only writes it.
var experiments = map[string]func(ctx context.Context, dir string) error{
	"demo":     demoPage,
	"plans":    plansPage,
	"prima":    primaPage,
	"probing":  probingPage,
	"training": trainingPage,
	"scale":    scalePage,
	"speed":    speedPage,
	"twin":     twinPage,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	if len(names) == 0 {
		for name := range experiments {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	dir := filepath.Join("docs", "results")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if part, ok := strings.CutPrefix(name, "prima:"); ok {
			if err := primaPart(ctx, dir, part); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		write, ok := experiments[name]
		if !ok {
			return fmt.Errorf("no experiment %q", name)
		}
		if err := write(ctx, dir); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// machine describes where figures were taken, in words.
func machine() string {
	return fmt.Sprintf("a virtual machine with %d cores%s, shared with other work", cores(), processor())
}

func processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return " of " + strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return ""
}
