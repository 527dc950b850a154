package local

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell/internal/tick"
)

// BusyOptions configure KeepBusy.
type BusyOptions struct {
	Processors int           // threads that compute
	Window     time.Duration // how often what they did is reported
	Budget     time.Duration // processor time that all threads together may use at most
}

// Work is what the threads did in one window.
type Work struct {
	Elapsed time.Duration // length of the window
	Used    time.Duration // processor time by the threads' own clocks
	Rounds  float64       // rounds of the computation
}

const (
	chunk     = 200 * time.Microsecond // how long a thread computes before it looks at its clock
	leastPart = 10 * time.Millisecond  // of the budget for each thread: it must suffice to find out how many rounds a chunk has
)

// worker is one thread that computes. Its counters are written by itself only.
type worker struct {
	used   atomic.Int64 // nanoseconds of processor time
	rounds atomic.Int64
}

// KeepBusy keeps processors computing, and reports each window, until more returns false, ctx ends, or the budget is used up. Each thread
// stops by itself before it has used more than its part of the budget. The unfinished last window is not reported. It needs Linux.
func KeepBusy(ctx context.Context, o BusyOptions, more func(Work) bool) error {
	if o.Processors < 1 || o.Window < time.Millisecond || o.Budget < time.Duration(o.Processors)*leastPart {
		return fmt.Errorf("%d processors, windows of %v and a budget of %v: too little to measure anything", o.Processors, o.Window, o.Budget)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	workers := make([]*worker, o.Processors)
	failed := make(chan error, o.Processors)
	var running sync.WaitGroup
	for i := range workers {
		w := &worker{}
		workers[i] = w
		running.Go(func() {
			defer stop() // the processors are no longer all busy
			if err := w.compute(ctx, o.Budget/time.Duration(o.Processors)); err != nil {
				failed <- err
			}
		})
	}
	watch(ctx, workers, o.Window, more)
	stop()
	running.Wait()
	close(failed)
	var errs []error
	for err := range failed {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// watch reports what the workers did in each window.
func watch(ctx context.Context, workers []*worker, window time.Duration, more func(Work) bool) {
	var last Work
	began := time.Now()
	for tick.Sleep(ctx, window) {
		var sum Work
		for _, w := range workers {
			sum.Used += time.Duration(w.used.Load())
			sum.Rounds += float64(w.rounds.Load())
		}
		sum.Elapsed = time.Since(began)
		if !more(Work{sum.Elapsed - last.Elapsed, sum.Used - last.Used, sum.Rounds - last.Rounds}) {
			return
		}
		last = sum
	}
}

// compute works until ctx ends or the next chunk would exceed the budget.
func (w *worker) compute(ctx context.Context, budget time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t, err := openThread()
	if err != nil {
		return err
	}
	began := t.used()
	rounds, x := calibrate(t, chunk), uint64(seed)
	for longest := chunk; ctx.Err() == nil; {
		before := t.used()
		if before-began+longest > budget {
			break
		}
		x = spin(x, rounds)
		after := t.used()
		longest = max(longest, after-before)
		w.rounds.Add(int64(rounds)) // before used: time that is reported has its rounds
		w.used.Store(int64(after - began))
	}
	return t.close()
}
