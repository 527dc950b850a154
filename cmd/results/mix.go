package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/quellhq/quell/lab/experiment"
)

// mixFigures are what is kept of the hour with a mix.
type mixFigures struct {
	Machine string `json:"machine"`
	*experiment.MixRecord
}

// mixPage plays the hour, writes its figures, and then the page. What was measured before is kept, because it takes an hour.
func mixPage(ctx context.Context, dir string) error {
	if _, err := os.Stat(mixFile(dir)); err == nil {
		return mixPagePart(ctx, dir, "page")
	}
	return mixPagePart(ctx, dir, "hour")
}

func mixFile(dir string) string { return filepath.Join(dir, "mix.json") }

// mixPagePart plays the hour again; with page, it only writes the page.
func mixPagePart(ctx context.Context, dir, part string) error {
	f := mixFigures{Machine: here().Machine}
	switch part {
	case "hour":
		work, err := os.MkdirTemp("", "qm")
		if err != nil {
			return err
		}
		defer os.RemoveAll(work)
		if f.MixRecord, err = experiment.HourOfMix.Play(ctx, work); err != nil {
			return err
		}
		if err := writeJSON(mixFile(dir), f); err != nil {
			return err
		}
	case "page":
		if found, err := readJSON(mixFile(dir), &f); err != nil || !found {
			return fmt.Errorf("nothing was measured: go run ./cmd/results mix:hour: %w", err)
		}
	default:
		return fmt.Errorf("the mix page has no part %q", part)
	}
	return writePage(dir, "mix", f)
}
