// Package interfere uses a share of one resource of this machine, as a neighbour would, while a training measures it. The interferer is a
// process of its own. It ends when its standard input is closed, which the kernel does when its parent ends in any way, and when its time
// is over.
package interfere

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/quellhq/quell"
)

// Options of an interferer. Use and Lasts are required.
type Options struct {
	Resource   quell.Resource // cpu, memory or disk
	Use        float64        // the share of the resource that it asks for, above 0 and up to 1
	Cores      float64        // cpu, memory: the processors of the machine; required
	Operations float64        // disk: the operations per second that the disk can carry out; required
	Folder     string         // disk: where its file is made; required
	Lasts      time.Duration  // it ends after this time, unless it is told to go on
	Seed       uint64
}

// Check returns what is wrong with the options, as a *quell.UserError; nil if an interferer can be made from them.
func (o Options) Check() error {
	why := ""
	switch {
	case !(o.Use > 0 && o.Use <= 1):
		why = fmt.Sprintf("a use of %v is not a share above 0 and up to 1", o.Use)
	case o.Lasts <= 0:
		why = fmt.Sprintf("%v is no time", o.Lasts)
	case o.Resource == quell.Disk:
		if !(o.Operations > 0) || math.IsInf(o.Operations, 0) {
			why = "set agent.capacity.disk: it is not known how many operations the disk can carry out"
		}
	case o.Resource != quell.CPU && o.Resource != quell.Memory:
		why = fmt.Sprintf("nothing on the machine itself interferes with its %s", o.Resource)
	case !(o.Cores > 0 && o.Cores <= mostCores):
		why = fmt.Sprintf("%v is no number of processors", o.Cores)
	}
	if why == "" {
		return nil
	}
	return &quell.UserError{Err: fmt.Errorf("interferer: %s", why)}
}

const mostCores = 4096

// worker is what the threads of an interferer do.
type worker interface {
	// threads is how many threads work at once.
	threads() int
	// work works until ctx ends. seed is another one for each thread.
	work(ctx context.Context, thread int, seed uint64) error
	// used returns what has been used so far, in seconds of the whole resource.
	used() (float64, error)
	close() error
}

// ready is the first line that an interferer writes. From then on it uses the resource.
const ready = "ready"

// Run interferes until ctx ends, in is closed, or its time is over. Each line of in says for how many seconds from now it goes on; the
// answer on out is what it has used so far, in seconds of the whole resource.
func Run(ctx context.Context, o Options, in io.Reader, out io.Writer) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	w, err := open(o)
	if err != nil {
		return fmt.Errorf("interfering with the %s: %w", o.Resource, err)
	}
	defer func() { _ = w.close() }() // its file has no name any more
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil) // before the wait, also if the first line cannot be written
	for i := range w.threads() {
		running.Go(func() {
			if err := w.work(ctx, i, o.Seed+uint64(i)); err != nil {
				stop(fmt.Errorf("interfering with the %s: %w", o.Resource, err))
			}
		})
	}
	end := time.AfterFunc(o.Lasts, func() { stop(nil) })
	defer end.Stop()
	if _, err := fmt.Fprintln(out, ready); err != nil {
		return err
	}
	go func() { stop(answer(in, out, w, func(d time.Duration) { end.Reset(d) })) }()
	<-ctx.Done()
	if cause := context.Cause(ctx); cause != context.Canceled {
		return cause
	}
	return nil
}

// answer answers each line until in is closed.
func answer(in io.Reader, out io.Writer, w worker, goOn func(time.Duration)) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		seconds, err := strconv.ParseFloat(lines.Text(), 64)
		if err != nil || !(seconds >= 0 && seconds <= longest.Seconds()) {
			return fmt.Errorf("%q is no time in seconds", lines.Text())
		}
		goOn(time.Duration(seconds * float64(time.Second)))
		used, err := w.used()
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, used); err != nil {
			return err
		}
	}
	return lines.Err()
}

// longest is the longest time for which an interferer may be told to go on.
const longest = time.Hour

// open prepares the worker of a resource.
func open(o Options) (worker, error) {
	switch o.Resource {
	case quell.Disk:
		return openDisk(o)
	case quell.Memory:
		return newSpinner(o, newWalk()), nil
	default:
		return newSpinner(o, calculate), nil
	}
}

// bursts alternate between work and rest at random, so that interference comes in no rhythm that a probe could miss.
type bursts struct {
	rng *rand.Rand
	use float64 // the share of the time that is work
}

// burst is the mean length of work: long enough for the scheduler to notice, short beside a window of measurement.
const burst = 5 * time.Millisecond

// next returns how long to work and then to rest. Both are exponential, with means in the proportion of use.
func (b *bursts) next() (work, rest time.Duration) {
	work = time.Duration(float64(burst) * b.rng.ExpFloat64())
	if b.use < 1 {
		rest = time.Duration(float64(burst) * (1 - b.use) / b.use * b.rng.ExpFloat64())
	}
	return work, rest
}
