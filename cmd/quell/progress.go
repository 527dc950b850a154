package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/quellhq/quell/train"
)

// progressBar shows how far a training is: one line redrawn on a terminal, a line now and then elsewhere.
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
	share := float64(p.CellsDone) / float64(max(1, p.Cells))
	text := fmt.Sprintf("%d of %d cells, %d runs, about %s left", p.CellsDone, p.Cells, p.Runs, p.Left.Round(time.Second))
	if b.terminal {
		full := int(share * barWidth)
		fmt.Fprintf(b.w, "\r\x1b[Ktraining [%s%s] %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), text)
		b.drawn = true
		return
	}
	if now := time.Now(); now.Sub(b.lastLine) >= lineEvery || p.CellsDone == p.Cells {
		b.lastLine = now
		fmt.Fprintf(b.w, "training: %s\n", text)
	}
}

func (b *progressBar) finish() {
	if b.drawn {
		fmt.Fprintln(b.w)
	}
}
