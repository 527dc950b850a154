package main

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"text/template"
)

// The text of each page stands in NAME.md.tmpl; what several pages have, in tables.md.tmpl.
//
//go:embed *.md.tmpl
var templates embed.FS

var functions = template.FuncMap{
	"modes":    acsModeTitles,
	"unfair":   unfair,
	"live":     func(name string) string { return liveBegins + name + liveNamed },
	"goal":     goalIn,
	"inc":      func(i int) int { return i + 1 },
	"endlive":  func() string { return liveEnds },
	"change":   func(ratio float64) string { return fmt.Sprintf("%+.0f%%", 100*(ratio-1)) },
	"micro":    func(seconds float64) string { return fmt.Sprintf("%.1f µs", seconds*1e6) },
	"millions": func(v float64) float64 { return v / 1e6 },
	"percent":  percent,
	"ratio":    func(a, b float64) float64 { return a / b },
	"phase":    newPhase,
	"spread":   func(values []float64) string { return spreadOf(values, "%.1f") },
	"share":    func(digits int, v float64) string { return fmt.Sprintf("%.*f%%", digits, 100*v) },
}

// fill fills a page's template with its figures. The parts that were measured on machines are still marked (livePages).
func fill(name string, figures any) ([]byte, error) {
	file := name + ".md.tmpl"
	t, err := template.New("").Funcs(functions).ParseFS(templates, "tables.md.tmpl", file)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.ExecuteTemplate(&b, file, figures)
	return b.Bytes(), err
}

// writePage fills a page's template and writes the page into a folder. Parts that were measured elsewhere stay as they were.
func writePage(dir, name string, figures any) error {
	text, err := fill(name, figures)
	if err != nil {
		return err
	}
	if text, err = keepLive(dir, name, commitHere(), text); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".md"), text, 0o644)
}

// place is the machine on which figures were measured.
type place struct {
	Machine string // description of the machine
	Cores   int
}

func here() place {
	cores := runtime.NumCPU()
	return place{fmt.Sprintf("a virtual machine with %d cores%s, shared with other work", cores, processor()), cores}
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

// playAll calls play for each number below n, as many at once as there are processors. It returns the error of the lowest that fails.
func playAll(n int, play func(i int) error) error {
	errs := make([]error, n)
	queue := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range queue {
				errs[i] = play(i)
			}
		})
	}
	for i := range n {
		queue <- i
	}
	close(queue)
	workers.Wait()
	return cmp.Or(errs...)
}
