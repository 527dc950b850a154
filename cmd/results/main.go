// Command results runs the experiments behind docs/results and writes their pages: `make results`. It is a tool of
// this repository, not part of the product.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// experiments are the pages that can be written, by name.
var experiments = map[string]func(ctx context.Context, dir string) error{
	"acs":       acsPage,
	"advice":    advicePage,
	"budget":    budgetPage,
	"cluster":   clusterPage,
	"demo":      demoPage,
	"dial":      dialPage,
	"door":      doorPage,
	"fleet":     fleetLab().play,
	"fronts":    frontsPage,
	"group":     groupPage,
	"haproxy":   haproxyLab().play,
	"ice":       icePage,
	"learn":     learnPage,
	"mix":       mixPage,
	"mrburst":   mrburstPage,
	"outlier":   outlierPage,
	"plans":     plansPage,
	"prima":     primaLab().play,
	"probing":   probingPage,
	"train-on":  trainOnPage,
	"training":  trainingPage,
	"resources": resourcesLab().play,
	"scale":     scalePage,
	"speed":     speedPage,
	"stranger":  strangerPage,
	"twin":      twinPage,
}

// pageParts are the functions that make one part of a page again. Each also takes the name page, which only writes the page.
var pageParts = map[string]func(ctx context.Context, dir, part string) error{
	"acs":       acsPagePart,
	"advice":    advicePagePart,
	"demo":      demoPagePart,
	"dial":      single(dialPagePart),
	"fleet":     fleetLab().playPart,
	"fronts":    frontsPagePart,
	"group":     groupPagePart,
	"haproxy":   haproxyLab().playPart,
	"ice":       icePagePart,
	"learn":     single(learnPagePart),
	"mix":       mixPagePart,
	"mrburst":   mrburstPagePart,
	"outlier":   single(outlierPagePart),
	"plans":     plansPagePart,
	"prima":     primaLab().playPart,
	"probing":   probingPagePart,
	"resources": resourcesLab().playPart,
	"stranger":  strangerPagePart,
	"train-on":  trainOnPagePart,
}

// single is a function of several parts for one part.
func single(f func(ctx context.Context, dir string, parts ...string) error) func(ctx context.Context, dir, part string) error {
	return func(ctx context.Context, dir, part string) error { return f(ctx, dir, part) }
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	play := run
	if role := os.Getenv(clusterRole); role != "" {
		play = func(_ context.Context, args []string) error { return playClusterRole(role, args) }
	}
	if err := play(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		stop()
		os.Exit(1)
	}
}

// usage says what can be measured. Nothing is measured unless it is named: some pages take an hour and need root.
func usage() string {
	return "usage: go run ./cmd/results all | stale | plots | PAGE[:PART]...\npages: " +
		strings.Join(slices.Sorted(maps.Keys(experiments)), " ") +
		"\npages with parts (PAGE:page only writes the page): " + strings.Join(slices.Sorted(maps.Keys(pageParts)), " ")
}

func run(ctx context.Context, names []string) error {
	dir := filepath.Join("docs", "results")
	switch {
	case len(names) == 0:
		fmt.Println(usage())
		return nil
	case len(names) == 1 && names[0] == "stale":
		return tellStale(ctx, dir)
	case len(names) == 1 && names[0] == "plots":
		drawn, err := drawKept(dir)
		for _, path := range drawn {
			fmt.Println("drawn from live.json:", path)
		}
		return err
	case len(names) == 1 && names[0] == "all":
		names = slices.Sorted(maps.Keys(experiments))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		write, ok := experiments[name]
		if page, part, found := strings.Cut(name, ":"); found {
			var again func(ctx context.Context, dir, part string) error
			if again, ok = pageParts[page]; ok {
				write = func(ctx context.Context, dir string) error { return again(ctx, dir, part) }
			}
		}
		if !ok {
			return fmt.Errorf("no experiment %q", name)
		}
		if err := write(ctx, dir); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
