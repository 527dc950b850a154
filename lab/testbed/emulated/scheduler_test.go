package emulated

import (
	"math"
	"slices"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"
)

// megabyte is a scheduler on which a byte takes a microsecond, so that a time in microseconds equals a number of bytes.
func megabyte(piece int64) *scheduler { return &scheduler{bitsPerSecond: 8_000_000, piece: piece} }

func newFlow(owner Owner) *flow { return &flow{owner: owner, crossed: -1} }

func bytesOf(grants []grant, f *flow) (n int64) {
	for _, g := range grants {
		if g.flow == f {
			n += g.n
		}
	}
	return n
}

func TestTwoFlowsShareEqually(t *testing.T) {
	s := megabyte(100)
	a, b := newFlow(OwnInstance), newFlow(OwnNeighbours)
	s.add(0, a, 10_000)
	s.add(0, b, 2_000)
	grants := slices.Clone(s.advance(3900 * time.Microsecond))
	if x, y := bytesOf(grants, a), bytesOf(grants, b); x != 2000 || y != 1900 {
		t.Errorf("after 3.9 ms: %d and %d bytes, want 2000 and 1900: turn by turn", x, y)
	}
	grants = s.advance(12 * time.Millisecond)
	if x, y := bytesOf(grants, a), bytesOf(grants, b); x != 8000 || y != 100 {
		t.Errorf("then %d and %d bytes, want the rest: 8000 and 100", x, y)
	}
}

func TestLateLookGrantsWhatIsDueAtItsTime(t *testing.T) {
	s := megabyte(100)
	f := newFlow(OwnInstance)
	s.add(0, f, 1050)
	if n := bytesOf(s.advance(949*time.Microsecond), f); n != 900 {
		t.Errorf("%d bytes after 949 us, want 900", n)
	}
	if n := bytesOf(s.advance(time.Hour), f); n != 150 || s.idle != 1050*time.Microsecond {
		t.Errorf("%d bytes, idle since %v; want 150, since 1.05 ms", n, s.idle)
	}
}

func TestOddBandwidthLosesNoTime(t *testing.T) {
	s := &scheduler{bitsPerSecond: 30_000_007, piece: 333}
	s.add(0, newFlow(OwnInstance), 3_000_000)
	s.advance(time.Hour)
	if want := time.Duration(24_000_000 * int64(time.Second) / 30_000_007); (s.idle - want).Abs() > 1 {
		t.Errorf("24 Mbit in 9010 pieces took %v, want %v", s.idle, want)
	}
}

func TestCreditIsForTheFlowThatGoesOnAndBounded(t *testing.T) {
	const us = time.Microsecond
	for name, tc := range map[string]struct {
		again    bool // the same flow continues; otherwise another one begins
		at, want time.Duration
	}{
		"the writer woke a little late":   {true, 500 * us, 200 * us},
		"the writer paused":               {true, 9000 * us, 8100 * us},
		"another flow on the idle link":   {false, 500 * us, 600 * us},
		"another flow, long after it all": {false, 9000 * us, 9100 * us},
	} {
		t.Run(name, func(t *testing.T) {
			s := megabyte(100)
			f := newFlow(OwnInstance)
			s.add(0, f, 100)
			s.advance(tc.at) // it was delivered at 100 us
			if !tc.again {
				f = newFlow(OwnInstance)
			}
			s.add(tc.at, f, 100)
			s.advance(time.Hour)
			if s.idle != tc.want {
				t.Errorf("100 bytes added at %v had crossed at %v, want %v", tc.at, s.idle, tc.want)
			}
		})
	}
}

func TestCancelledBytesDoNotCross(t *testing.T) {
	s := megabyte(100)
	a, b := newFlow(OwnInstance), newFlow(OwnProbe)
	s.add(0, a, 1000)
	s.add(0, b, 1000)
	s.cancel(a) // its first piece is on its way
	s.cancel(b) // nothing of it is on its way
	s.advance(time.Hour)
	if s.crossed[OwnInstance] != 100 || s.crossed[OwnProbe] != 0 || s.idle != 100*time.Microsecond {
		t.Errorf("crossed %v, idle since %v", s.crossed, s.idle)
	}
	s.add(time.Hour, b, 50)
	s.advance(2 * time.Hour)
	if s.crossed[OwnProbe] != 50 {
		t.Errorf("a flow did not go on after being cancelled: %v", s.crossed)
	}
}

// For every sequence of calls: no byte is lost or invented; the link sends whenever a flow has data, and never faster than its bandwidth;
// flows that have data at the same time get equal parts, except for one piece; and wake never returns a time that is too late.
func TestSchedulerProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.Int64Range(1, 3000).Draw(t, "piece")
		s := megabyte(piece)
		flows := make([]*flow, rapid.IntRange(1, 6).Draw(t, "flows"))
		for i := range flows {
			flows[i] = newFlow(Owner(i % int(owners)))
			if i%2 == 0 {
				flows[i].waiter = newWaiter()
			}
		}
		added, got := make([]int64, len(flows)), make([]int64, len(flows))
		var now time.Duration
		look := func(at time.Duration) {
			before := slices.Clone(got)
			backlogged := slices.Collect(func(yield func(int) bool) {
				for i, f := range flows {
					if f.listed && !yield(i) {
						return
					}
				}
			})
			wake, waited := s.wake()
			busy, crossing := s.current != nil, s.bytes
			var sum int64
			for _, g := range s.advance(at) {
				i := slices.Index(flows, g.flow)
				got[i] += g.n
				sum += g.n
				if g.flow.waiter != nil && (!waited || at < wake) {
					t.Fatalf("flow %d had crossed before %v, the time to wake up", i, wake)
				}
			}
			if room := (at - now).Microseconds() + crossing + maxCredit.Microseconds() + 1; sum > room {
				t.Fatalf("%d bytes crossed in %v", sum, at-now)
			}
			if busy && s.current != nil && sum < (at-now).Microseconds()-piece {
				t.Fatalf("only %d bytes crossed in %v of work", sum, at-now)
			}
			for _, i := range backlogged {
				for _, j := range backlogged {
					if flows[i].listed && flows[j].listed && got[i]-before[i]-(got[j]-before[j]) > piece {
						t.Fatalf("of two backlogged flows one got %d bytes, one %d", got[i]-before[i], got[j]-before[j])
					}
				}
			}
			now = at
		}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			look(now + time.Duration(rapid.Int64Range(0, 5e6).Draw(t, "pause")))
			i := rapid.IntRange(0, len(flows)-1).Draw(t, "flow")
			if rapid.IntRange(0, 9).Draw(t, "cancel") == 0 {
				added[i] -= flows[i].pending
				s.cancel(flows[i])
			} else {
				n := rapid.Int64Range(0, 8000).Draw(t, "bytes")
				added[i] += n
				s.add(now, flows[i], n)
			}
			var waiting int64
			for _, n := range s.waiting {
				waiting += n
			}
			if (waiting > 0) != (s.current != nil) {
				t.Fatalf("%d bytes wait, crossing: %v", waiting, s.current != nil)
			}
		}
		look(now + time.Hour)
		if !slices.Equal(added, got) || s.waiters != 0 || s.waiting != [owners]int64{} {
			t.Fatalf("added %v, crossed %v, %d waiters, waiting %v", added, got, s.waiters, s.waiting)
		}
	})
}

// Results must not depend on how often the scheduler is called: all times depend only on the bytes sent.
func TestLookingSeldomChangesNothing(t *testing.T) {
	play := func(step time.Duration) ([owners]uint64, time.Duration) {
		s := megabyte(500)
		s.maxWaiting = math.MaxInt64
		n := newNeighbours(16<<10, 5)
		n.setRate(0, 20)
		s.source = n
		for now := time.Duration(0); now <= 100*time.Second; now += step {
			s.advance(now)
		}
		return s.crossed, s.finish
	}
	often, at := play(time.Millisecond)
	seldom, at2 := play(50 * time.Second)
	if often != seldom || at != at2 || often[OwnNeighbours] < 1e6 {
		t.Errorf("%v until %v by looking often, %v until %v by looking seldom", often, at, seldom, at2)
	}
}

func TestFifoKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q fifo
		var want []*flow
		for _, push := range rapid.SliceOfN(rapid.Bool(), 0, 1000).Draw(t, "pushes") {
			if push {
				f := &flow{}
				q.push(f)
				want = append(want, f)
			} else if f := q.pop(); len(want) > 0 {
				if f != want[0] {
					t.Fatal("out of order")
				}
				want = want[1:]
			} else if f != nil {
				t.Fatal("a flow from nowhere")
			}
			if q.len() != len(want) {
				t.Fatalf("length %d, want %d", q.len(), len(want))
			}
		}
	})
}

// responses plays n jobs of 50,000 bytes with Poisson arrivals at load rho, beside neighbours that use the given share. It returns the mean
// response time and the half width of its 99.9% interval (batch means), both relative to the time of a single job alone.
func responses(rho, use float64, n int) (mean, half float64) {
	const size = 50_000
	s := &scheduler{bitsPerSecond: 40_000_000, piece: 500, maxWaiting: math.MaxInt64}
	alone := time.Duration(size * 8 * 1e9 / s.bitsPerSecond)
	other := newNeighbours(16<<10, 11)
	other.setRate(0, use*float64(s.bitsPerSecond)/8/(16<<10))
	s.source = other
	jobs := newNeighbours(size, 12)
	jobs.setRate(0, rho/alone.Seconds())
	began := map[*flow]time.Duration{}
	var times []float64
	for len(times) < n {
		at, _ := jobs.next()
		jobs.take()
		for _, g := range s.advance(at) {
			if start, ok := began[g.flow]; ok && !g.flow.listed {
				times = append(times, float64(g.flow.crossed-start)/float64(alone))
				delete(began, g.flow)
			}
		}
		f := newFlow(OwnInstance)
		began[f] = at
		s.add(at, f, size)
	}
	var batches []float64
	for b := range slices.Chunk(times, n/40) {
		batches = append(batches, stat.Mean(b, nil))
	}
	m, sd := stat.MeanStdDev(batches, nil)
	return m, 3.6 * sd / math.Sqrt(float64(len(batches)))
}

// With processor sharing the mean response time is base/(1-rho) for every distribution of sizes; rho includes other flows on the link. The
// tolerance of 1% is needed because links send pieces of a hundredth of a job.
func TestResponsesFollowProcessorSharing(t *testing.T) {
	for _, tc := range []struct{ rho, use float64 }{{0.3, 0}, {0.6, 0}, {0.8, 0}, {0.3, 0.4}, {0.5, 0.2}} {
		mean, half := responses(tc.rho, tc.use, 10_000)
		want := 1 / (1 - tc.rho - tc.use)
		if math.Abs(mean-want) > half+0.02*want {
			t.Errorf("load %v with neighbours at %v: mean response %.3f x alone, want %.3f within %.3f", tc.rho, tc.use, mean, want, half+0.02*want)
		}
		if half > 0.25*want {
			t.Errorf("load %v: an interval of +-%.3f proves nothing", tc.rho, half)
		}
	}
}

// BenchmarkScheduler measures only the cost of sharing the link, for a megabyte from three flows.
func BenchmarkScheduler(b *testing.B) {
	s := &scheduler{bitsPerSecond: 40_000_000, piece: defaultPiece}
	flows := []*flow{newFlow(OwnInstance), newFlow(OwnInstance), newFlow(OwnNeighbours)}
	b.SetBytes(1_000_000)
	var now time.Duration
	for b.Loop() {
		for _, f := range flows {
			s.add(now, f, 1_000_000/3)
		}
		for s.current != nil {
			now += time.Millisecond
			s.advance(now)
		}
	}
}
