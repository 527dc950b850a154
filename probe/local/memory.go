package local

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/quellhq/quell"
)

var memoryKind = kind{
	resource:  quell.Memory,
	by:        func(o *Options) quell.Probing { return quell.Probing{Bytes: o.Buffer} },
	allowance: memoryAllowance,
	open:      openMemory,
}

const (
	// accesses is the number of accesses of one probe: 64 KiB of cache lines.
	accesses    = 1024
	guessedWalk = 150 * time.Microsecond // expected time of one probe
	lineBytes   = 64
	leastBuffer = 64 << 10
)

// memoryAllowance is the budget of memory probes. They also take processor time, and each displaces lines in the caches, so there are at
// most half as many as of other probes.
func memoryAllowance(o *Options) allowance {
	p := processorAllowance(o, guessedWalk)
	p.most /= 2
	return p
}

// line is a cache line that holds the index of the next one.
type line struct {
	next uint32
	_    [lineBytes/4 - 1]uint32
}

// memoryProbe follows a chain of cache lines through a buffer. The processor cannot guess the next line.
type memoryProbe struct {
	thread thread
	walk   func()        // a fixed number of accesses
	paid   time.Duration // the thread's processor time at the end of the last probe
}

func openMemory(o *Options) (prober, error) {
	t, err := openThread()
	if err != nil {
		return nil, err
	}
	lines, at := cycle(int(o.Buffer/lineBytes), rand.New(rand.NewPCG(o.Seed, uint64(o.Buffer)))), uint32(0)
	p := &memoryProbe{thread: t, walk: func() { at = chase(lines, at) }}
	first, err := p.probe(0)
	if err == nil {
		err = resolves(t.used, time.Duration(first.ms*float64(time.Millisecond)), "processor")
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return p, nil
}

// probe returns the processor time of the walk. It grows when neighbours use more of the shared caches or of the memory's bandwidth, but
// not when they use the processors.
func (p *memoryProbe) probe(time.Duration) (sample, error) {
	before := p.thread.used()
	p.walk()
	after := p.thread.used()
	s := sample{ms: milliseconds(after - before), cost: (after - p.paid).Seconds()}
	p.paid = after
	if s.ms <= 0 {
		return s, errors.New("the thread's clock stood still through a probe")
	}
	return s, nil
}

func (p *memoryProbe) close() error { return p.thread.close() }

// cycle returns lines that form one cycle through all of them, in random order (Sattolo, 1986).
func cycle(n int, rng *rand.Rand) []line {
	lines := make([]line, n)
	for i := range lines {
		lines[i].next = uint32(i)
	}
	for i := n - 1; i > 0; i-- {
		j := rng.IntN(i)
		lines[i].next, lines[j].next = lines[j].next, lines[i].next
	}
	return lines
}

// chase follows the cycle and returns the line that it reached.
//
//go:noinline
func chase(lines []line, at uint32) uint32 {
	for range accesses {
		at = lines[at].next
	}
	return at
}
