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

// experiments are the pages that can be written, by name.
var experiments = map[string]func(ctx context.Context, dir string) error{
	"acs":       acsPage,
	"cluster":   clusterPage,
	"demo":      demoPage,
	"dial":      dialPage,
	"haproxy":   haproxyLab().play,
	"ice":       icePage,
	"learn":     learnPage,
	"mrburst":   mrburstPage,
	"outlier":   outlierPage,
	"plans":     plansPage,
	"prima":     primaLab().play,
	"probing":   probingPage,
	"training":  trainingPage,
	"resources": resourcesLab().play,
	"scale":     scalePage,
	"speed":     speedPage,
	"twin":      twinPage,
}

// labPagePart plays one part of a page again, for example prima:table-iii. The names prima:page, outlier:page, learn:page, dial:page
// and mrburst:page only write the page.
func labPagePart(page, part string) (write func(ctx context.Context, dir string) error, ok bool) {
	if page == "outlier" {
		return func(ctx context.Context, dir string) error { return outlierPagePart(ctx, dir, part) }, true
	}
	if page == "learn" {
		return func(ctx context.Context, dir string) error { return learnPagePart(ctx, dir, part) }, true
	}
	if page == "acs" {
		return func(ctx context.Context, dir string) error { return acsPagePart(ctx, dir, part) }, true
	}
	if page == "mrburst" {
		return func(ctx context.Context, dir string) error { return mrburstPagePart(ctx, dir, part) }, true
	}
	if page == "dial" {
		return func(ctx context.Context, dir string) error { return dialPagePart(ctx, dir, part) }, true
	}
	for _, lab := range []labPage{primaLab(), haproxyLab(), resourcesLab()} {
		if lab.name == page {
			return func(ctx context.Context, dir string) error { return lab.playPart(ctx, dir, part) }, true
		}
	}
	return nil, false
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
		write, ok := experiments[name]
		if page, part, found := strings.Cut(name, ":"); found {
			write, ok = labPagePart(page, part)
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
