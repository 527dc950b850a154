package haproxy

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/quellhq/quell"
)

// BenchmarkApply100Weights measures one plan that changes the weights of 100 servers of a real HAProxy, from the call
// until the last change is acknowledged. In the variant with a state file, that file is written afterwards and not
// measured.
func BenchmarkApply100Weights(b *testing.B) {
	b.Run("weights", func(b *testing.B) { benchmarkApply(b, false) })
	b.Run("weights and state file", func(b *testing.B) { benchmarkApply(b, true) })
}

func benchmarkApply(b *testing.B, stateFile bool) {
	l := newLab(b, "")
	l.start()
	d := l.driver(func(o *Options) {
		o.Server = ""
		if stateFile {
			o.StateFile = filepath.Join(l.dir, "state")
		}
	})
	plans := [2][]quell.Backend{}
	for k := range plans {
		for i := range 100 {
			weight := float64(1 + (i*7+k*31)%97)
			plans[k] = append(plans[k], quell.Backend{ID: fmt.Sprintf("i%d", i), Address: fmt.Sprintf("127.0.0.1:%d", 20000+i), Weight: weight})
		}
	}
	apply(b, d, plans[0]...)
	if _, err := d.State(context.Background()); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		apply(b, d, plans[n%2]...)
		if stateFile {
			b.StopTimer()
			if _, err := d.State(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
}

// BenchmarkState100 reads 100 servers back.
func BenchmarkState100(b *testing.B) {
	l := newLab(b, "")
	l.start()
	d := l.driver(func(o *Options) { o.Server = "" })
	var plan []quell.Backend
	for i := range 100 {
		plan = append(plan, quell.Backend{ID: fmt.Sprintf("i%d", i), Address: fmt.Sprintf("127.0.0.1:%d", 20000+i), Weight: 0.01})
	}
	apply(b, d, plan...)
	for b.Loop() {
		if _, err := d.State(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseLog(b *testing.B) {
	line := []byte(head +
		`127.0.0.1:35062 [21/Nov/2026:23:29:59.521] f b/s1 3/0/2/10/25 200 549 - - ---- 1/1/0/0/0 0/0 {foo|bar} "GET / HTTP/1.1"`)
	for b.Loop() {
		if _, err := parseLog(line); err != nil {
			b.Fatal(err)
		}
	}
}
