package interfere

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quellhq/quell/internal/tick"
)

// spinner uses processors: for arithmetic, or for reading memory. Each thread is busy for the same share of the time.
type spinner struct {
	cores float64
	count int
	use   float64             // of each thread's time
	chunk func(state *uint64) // some microseconds of work
	began time.Duration       // processor time of this process before the work
}

func newSpinner(o Options, chunk func(*uint64)) *spinner {
	count := int(math.Ceil(o.Cores))
	return &spinner{cores: o.Cores, count: count, use: o.Use * o.Cores / float64(count), chunk: chunk, began: processTime()}
}

func (s *spinner) threads() int { return s.count }

func (s *spinner) work(ctx context.Context, thread int, seed uint64) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := bursts{rng: rand.New(rand.NewPCG(seed, uint64(thread))), use: s.use}
	state := seed
	for ctx.Err() == nil {
		work, rest := b.next()
		for began := time.Now(); time.Since(began) < work && ctx.Err() == nil; {
			s.chunk(&state)
		}
		tick.Sleep(ctx, rest)
	}
	return nil
}

// used is the processor time of the whole process, over the machine's processors. For memory it stands in for the traffic, which no counter
// measures, as the agent's sensor of memory does.
func (s *spinner) used() (float64, error) { return (processTime() - s.began).Seconds() / s.cores, nil }

func (s *spinner) close() error { return nil }

// processTime is the processor time of this process. The system call fails for no process about itself.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(fmt.Sprintf("getrusage: %v", err))
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// calculate takes some microseconds of arithmetic.
func calculate(state *uint64) {
	x := *state
	for range 10_000 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	*state = x
}

const (
	walkBytes = 64 << 20 // more than most caches hold
	piece     = 64 << 10 // of it, read in one go
	cacheLine = 64
)

// newWalk returns work that reads memory past the caches. All threads read the same memory, each at its own place.
func newWalk() func(*uint64) {
	stock := make([]byte, walkBytes)
	for i := range stock { // pages that were never written are all one page of zeros, which stays in the cache
		stock[i] = byte(i)
	}
	var next atomic.Uint64
	return func(state *uint64) {
		at := next.Add(1) * piece % walkBytes
		var sum uint64
		for i := at; i < at+piece; i += cacheLine {
			sum += uint64(stock[i])
		}
		*state += sum
	}
}
