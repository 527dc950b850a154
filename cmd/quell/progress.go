package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/quellhq/quell/lab/arena"
	"github.com/quellhq/quell/train"
)

// progressBar shows the progress of long work: on a terminal it redraws one line; elsewhere it prints a line from time to time.
type progressBar struct {
	w        io.Writer
	terminal bool
	lastLine time.Time
	drawn    bool
}

func newProgressBar(w io.Writer) *progressBar { return &progressBar{w: w, terminal: isTerminal(w)} }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

const (
	barWidth  = 30
	lineEvery = 10 * time.Second
)

func (b *progressBar) show(p train.Progress) {
	b.draw("training", p.CellsDone, p.Cells, fmt.Sprintf("%d of %d cells, %d runs", p.CellsDone, p.Cells, p.Runs)+left(p.Left))
}

func (b *progressBar) showArena(p arena.Progress) {
	b.draw("arena", p.Done, p.Known, fmt.Sprintf("%d of %d runs", p.Done, p.Known)+left(p.Left)+": "+p.Doing)
}

// left is a text of how long work will still take; empty if that is less than a second.
func left(d time.Duration) string {
	if d = d.Round(time.Second); d <= 0 {
		return ""
	}
	return fmt.Sprintf(", about %s left", d)
}

func (b *progressBar) draw(work string, done, all int, text string) {
	if b.terminal {
		full := done * barWidth / max(1, all)
		line := fmt.Sprintf("%s [%s%s] %s", work, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), text)
		fmt.Fprintf(b.w, "\r\x1b[K%s", strings.TrimSuffix(fitScreen(b.w, line+"\n"), "\n"))
		b.drawn = true
		return
	}
	if now := time.Now(); now.Sub(b.lastLine) >= lineEvery || done == all {
		b.lastLine = now
		fmt.Fprintf(b.w, "%s: %s\n", work, text)
	}
}

func (b *progressBar) finish() {
	if b.drawn {
		fmt.Fprintln(b.w)
	}
}
