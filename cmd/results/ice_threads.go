package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
)

// iceThreadRuns is how often each row of the streaming server's table is played.
const iceThreadRuns = 3

// playICEThreads plays a streaming server whose number of threads ICE changes, and fixed numbers beside it, on the lab's machines.
func playICEThreads(ctx context.Context) (plays [][]experiment.ThreadResult, err error) {
	dir, err := os.MkdirTemp("", "quell-ice-threads")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program, err := filepath.Abs(filepath.Join("bin", "quell"))
	if err != nil {
		return nil, err
	}
	for play := range iceThreadRuns {
		out := filepath.Join(dir, strconv.Itoa(play))
		cmd := exec.CommandContext(ctx, program, "lab", "streaming", "streaming", "--threads", "--workers", "2,10", "--out", out)
		if said, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, said)
		}
		var results []experiment.ThreadResult
		if _, err := readJSON(filepath.Join(out, "streaming", "threads.json"), &results); err != nil {
			return nil, err
		}
		plays = append(plays, results)
	}
	return plays, nil
}

// threadRow has the mean frame delays of all plays of one kind, in ms.
type threadRow struct {
	Title                      string
	Before, Early, Late, After string
	Unsent                     string
	Counts                     string
}

// ThreadRows are the rows of the page, ICE first.
func (f *iceFigures) ThreadRows() (rows []threadRow) {
	if len(f.Threads) == 0 {
		return nil
	}
	for i, first := range f.Threads[0] {
		row := threadRow{Title: fmt.Sprintf("%d workers", first.Workers)}
		if first.ICE {
			row.Title = fmt.Sprintf("ICE, from %d workers", first.Workers)
		}
		all := func(of func(*experiment.ThreadResult) string) string {
			var texts []string
			for _, play := range f.Threads {
				texts = append(texts, of(&play[i]))
			}
			return strings.Join(texts, ", ")
		}
		row.Before = all(func(r *experiment.ThreadResult) string { return meanDelay(&r.Before) })
		row.Early = all(func(r *experiment.ThreadResult) string { return meanDelay(&r.Early) })
		row.Late = all(func(r *experiment.ThreadResult) string { return meanDelay(&r.Late) })
		row.After = all(func(r *experiment.ThreadResult) string { return meanDelay(&r.After) })
		row.Unsent = all(func(r *experiment.ThreadResult) string { return percent(r.Unsent) })
		if first.ICE {
			row.Counts = all(func(r *experiment.ThreadResult) string {
				var changes []string
				for _, c := range r.Counts[1:] {
					changes = append(changes, fmt.Sprintf("%d at %.0f s", c.Workers, c.AtS))
				}
				return strings.Join(changes, " and ")
			})
		}
		rows = append(rows, row)
	}
	return rows
}

func meanDelay(l *quell.Latency) string {
	ms, _ := l.Of(quell.Mean)
	return fmt.Sprintf("%.0f", ms)
}
