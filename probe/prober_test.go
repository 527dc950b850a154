package probe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
)

func TestProberPublishesEachPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, j := newNetwork(t), &journal{}
		in := n.add("a:1", func(download int) time.Duration {
			if download == 1 {
				return 90 * time.Millisecond // the time to open the connection must not count
			}
			return 20 * time.Millisecond
		})
		begin := time.Now()
		p := run(t, options(n, j, Target{"i1", "a:1"}))
		afterPeriods(2)
		got := j.take()
		if len(got) != 2 {
			t.Fatalf("%d readings after two periods", len(got))
		}
		for i, want := range []quell.ProbeStats{{MeanMS: 20, N: 7}, {MeanMS: 20, N: 8}} {
			r := got[i]
			if r.Service != "video" || r.Instance != "i1" || r.Source != quell.FromProber || r.Sender != "lb1" || r.Validate() != nil {
				t.Errorf("reading %+v, %v", r, r.Validate())
			}
			probe := r.Observation.Probe[quell.Network]
			if by := probe.By; by == nil || *by != p.Probing() {
				t.Errorf("reading %d was made by %+v, want %+v", i, by, p.Probing())
			}
			if probe.By = nil; probe != want {
				t.Errorf("reading %d: %+v, want %+v", i, r.Observation.Probe, want)
			}
			late := r.Observation.At.Sub(begin.Add(time.Duration(i+1) * time.Second))
			if over := r.Observation.WindowS - 1; late < 0 || late > overhang || over < -overhang.Seconds() || over > overhang.Seconds() {
				t.Errorf("reading %d, over %v s, came %v after the end of its period", i, r.Observation.WindowS, late)
			}
		}
		s := p.Stats()
		want := Stats{Measured: s.Measured, WarmUps: 1, Bytes: (s.Measured + 1) * (10_000 + headerBytes)}
		if s != want || s.Measured < 15 || n.dials != 1 || in.served.Load() < 16 {
			t.Errorf("%+v with %d connections and %d downloads, want %+v on one", s, n.dials, in.served.Load(), want)
		}
	})
}

func TestProberKeepsEverybodysPeriods(t *testing.T) {
	for _, c := range []struct {
		name          string
		begin, length time.Duration
		n             int // the first download on a connection does not count as a probe
	}{
		{"a target that comes early is probed for the rest of the period", 300 * time.Millisecond, 700 * time.Millisecond, 5},
		{"one that comes late until the next is over", 700 * time.Millisecond, 1300 * time.Millisecond, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, j := newNetwork(t), &journal{}
				n.add("a:1", func(int) time.Duration { return 0 })
				time.Sleep(c.begin)
				run(t, options(n, j, Target{"i1", "a:1"}))
				time.Sleep(c.length + time.Second + overhang)
				synctest.Wait()
				got := j.take()
				if len(got) != 2 {
					t.Fatalf("%d readings", len(got))
				}
				for i, want := range []struct {
					length time.Duration
					n      int
				}{{c.length, c.n}, {time.Second, 8}} {
					o := got[i].Observation
					if o.WindowS != want.length.Seconds() || o.Probe[quell.Network].N != want.n || !o.At.Equal(o.At.Truncate(time.Second)) {
						t.Errorf("reading %d: %d probes in %v s until %v, want %d in %v", i, o.Probe[quell.Network].N, o.WindowS, o.At, want.n, want.length)
					}
				}
			})
		})
	}
}

func TestProberMeasuresTheSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, j := newNetwork(t), &journal{}
		n.add("a:1", func(download int) time.Duration { return time.Duration(10+20*(download%2)) * time.Millisecond })
		run(t, options(n, j, Target{"i1", "a:1"}))
		afterPeriods(2)
		got := j.take()[1].Observation.Probe[quell.Network]
		if got.N != 8 || math.Abs(got.MeanMS-20) > 1e-6 || math.Abs(got.StddevMS-10*math.Sqrt(8./7)) > 1e-6 {
			t.Errorf("four times 10 and four times 30 ms give %+v", got)
		}
	})
}

func TestProbesStartAtRandomMomentsOfEveryPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, j := newNetwork(t), &journal{}
		var mu sync.Mutex
		starts := map[string][]time.Duration{}
		begin := time.Now()
		var targets []Target
		for _, id := range []string{"i1", "i2"} {
			n.add(id, func(int) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				starts[id] = append(starts[id], time.Since(begin))
				return 0
			})
			targets = append(targets, Target{id, id})
		}
		run(t, options(n, j, targets...))
		afterPeriods(1)
		mu.Lock()
		defer mu.Unlock()
		for id, at := range starts {
			if len(at) != 8 {
				t.Fatalf("%s was probed %d times in a period", id, len(at))
			}
			for k, d := range at {
				if part := int(d * 8 / time.Second); part != k {
					t.Errorf("%s: probe %d at %v is in part %d", id, k, d, part)
				}
			}
		}
		if slices.Equal(starts["i1"], starts["i2"]) {
			t.Error("two instances are probed at the same moments")
		}
	})
}

func TestSlowTargets(t *testing.T) {
	for _, c := range []struct {
		name    string
		took    time.Duration
		timeout time.Duration
		missed  bool
	}{
		{"slower than a part", 200 * time.Millisecond, 500 * time.Millisecond, true},
		{"never finishes", time.Hour, 100 * time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, j := newNetwork(t), &journal{}
				in := n.add("a:1", always(c.took))
				o := options(n, j, Target{"i1", "a:1"})
				o.Timeout = c.timeout
				p := run(t, o)
				afterPeriods(4)
				got := j.take()
				if len(got) == 0 {
					t.Fatal("nothing was published")
				}
				want := float64(min(c.took, c.timeout)) / float64(time.Millisecond)
				for _, r := range got {
					s := r.Observation.Probe[quell.Network]
					if s.MeanMS != want || s.StddevMS != 0 || s.N < 1 || s.N > 8 {
						t.Errorf("got %+v, want a mean of %v ms", s, want)
					}
				}
				s := p.Stats()
				if (s.Missed > 0) != c.missed || (s.Timeouts > 0) == (s.Measured > 0) || s.Refused != 0 {
					t.Errorf("%+v", s)
				}
				if c.missed && in.most.Load() != 1 {
					t.Errorf("%d downloads at once", in.most.Load())
				}
			})
		})
	}
}

func TestAProbeThatTimesOutOnceCountsAsTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, j := newNetwork(t), &journal{}
		n.add("a:1", func(download int) time.Duration {
			if download == 4 {
				return time.Hour
			}
			return 10 * time.Millisecond
		})
		p := run(t, options(n, j, Target{"i1", "a:1"}))
		afterPeriods(1)
		// Eight slots: one opens the connection, one takes 125 ms, one reopens the connection, five take 10 ms.
		got := j.take()[0].Observation.Probe[quell.Network]
		if got.N != 6 || math.Abs(got.MeanMS-(125+5*10)/6.) > 1e-6 {
			t.Errorf("got %+v", got)
		}
		if s := p.Stats(); s.Timeouts != 1 || s.WarmUps != 2 || s.Measured != 5 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestTargetsThatAreNotThere(t *testing.T) {
	for name, address := range map[string]string{"refused": "nobody:1", "never connected": "blackhole"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, j, log := newNetwork(t), &journal{}, &bytes.Buffer{}
				o := options(n, j, Target{"i1", address})
				o.Logger = slog.New(slog.NewTextHandler(log, nil))
				p := run(t, o)
				afterPeriods(2)
				if got := j.take(); len(got) != 0 {
					t.Errorf("published %+v of an instance that is not there", got)
				}
				if s := p.Stats(); s.Refused < 14 || s.Measured+s.Timeouts+s.WarmUps > 0 {
					t.Errorf("%+v", s)
				}
				if lines := strings.Count(log.String(), "\n"); lines != 1 {
					t.Errorf("%d log lines of one outage:\n%s", lines, log)
				}
			})
		})
	}
}

// A removed instance ends a moment before its prober learns that it was removed. The prober's failed downloads in that moment are not
// counted as failures or logged.
func TestATargetThatIsRemovedIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, j, log := newNetwork(t), &journal{}, &bytes.Buffer{}
		in := n.add("a:1", always(10*time.Millisecond))
		var gone atomic.Bool
		o := options(n, j)
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		o.Targets = func() []Target {
			if gone.Load() {
				return nil
			}
			return []Target{{"i1", "a:1"}}
		}
		p := run(t, o)
		time.Sleep(1400 * time.Millisecond)
		in.closes = true // from here on all probes fail
		time.Sleep(400 * time.Millisecond)
		gone.Store(true)
		afterPeriods(2)
		if s := p.Stats(); s.Refused == 0 || log.Len() > 0 {
			t.Errorf("%+v, logged %q", s, log)
		}
	})
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options, *instance)
		says   string
	}{
		{"the wrong token", func(o *Options, _ *instance) { o.Token = "wrong" }, "the same probe.token"},
		{"connections are not kept", func(_ *Options, in *instance) { in.closes = true }, "need it kept open"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, j, log := newNetwork(t), &journal{}, &bytes.Buffer{}
				in := n.add("a:1", always(time.Millisecond))
				o := options(n, j, Target{"i1", "a:1"})
				o.Logger = slog.New(slog.NewTextHandler(log, nil))
				c.change(&o, in)
				p := run(t, o)
				afterPeriods(1)
				if s := p.Stats(); s.Refused != 8 || s.Measured != 0 || len(j.take()) != 0 {
					t.Errorf("%+v", s)
				}
				if !strings.Contains(log.String(), c.says) {
					t.Errorf("log %q, want %q", log, c.says)
				}
			})
		})
	}
}

func TestProberReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, j := newNetwork(t), &journal{}
		n.idle = time.Nanosecond // every connection is closed before it is needed again
		n.add("a:1", always(time.Millisecond))
		p := run(t, options(n, j, Target{"i1", "a:1"}))
		afterPeriods(1)
		if s := p.Stats(); s.WarmUps != 8 || s.Refused != 0 {
			t.Errorf("%+v, want each slot to reconnect and warm up", s)
		}
		if got := j.take(); len(got) != 0 {
			t.Errorf("warm-ups were published: %+v", got)
		}
	})
}

func TestTargetsComeMoveAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, j := newNetwork(t), &journal{}
		for _, address := range []string{"a:1", "b:1", "c:1"} {
			n.add(address, always(time.Millisecond))
		}
		var targets atomic.Pointer[[]Target]
		o := options(n, j)
		o.Targets = func() []Target { return *targets.Load() }
		for i, c := range []struct {
			targets []Target
			served  string // number of answered probes, by the resource that is probed at that time
		}{
			{[]Target{{"i1", "a:1"}}, "a:1"},
			{[]Target{{"i1", "a:1"}, {"i2", "b:1"}}, "a:1 b:1"},
			{[]Target{{"i1", "c:1"}, {"i2", "b:1"}}, "b:1 c:1"},
			{[]Target{{"i2", "b:1"}}, "b:1"},
			{nil, ""},
		} {
			targets.Store(&c.targets)
			if i == 0 {
				run(t, o)
			}
			afterPeriods(2) // by then the change was seen, and earlier downloads have ended
			for _, in := range n.instances {
				in.served.Store(0)
			}
			j.take()
			afterPeriods(2)
			var served []string
			for address, in := range n.instances {
				if in.served.Load() > 0 {
					served = append(served, address)
				}
			}
			slices.Sort(served)
			if got := strings.Join(served, " "); got != c.served {
				t.Errorf("step %d probes %q, want %q", i, got, c.served)
			}
			if got := j.take(); len(got) != 2*len(c.targets) {
				t.Errorf("step %d: %d readings in two periods of %d targets", i, len(got), len(c.targets))
			}
		}
	})
}

func TestProberSurvivesPublishErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, j, log := newNetwork(t), &journal{fail: errors.New("bus is down")}, &bytes.Buffer{}
		n.add("a:1", always(time.Millisecond))
		o := options(n, j, Target{"i1", "a:1"})
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		p := run(t, o)
		afterPeriods(3)
		j.mu.Lock()
		j.fail = nil
		j.mu.Unlock()
		afterPeriods(3)
		if got := len(j.take()); got != 3 || p.Stats().PublishErrors != 3 {
			t.Errorf("%d published, %d errors; want 3 and 3", got, p.Stats().PublishErrors)
		}
		if strings.Count(log.String(), "\n") != 2 || !strings.Contains(log.String(), "bus is down") ||
			!strings.Contains(log.String(), "works again") {
			t.Errorf("want one line for the outage and one for its end:\n%s", log)
		}
	})
}

func TestAThousandTargetsTakeOneConnectionEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, j := newNetwork(t), &journal{}
		in := n.add("a:1", always(time.Millisecond))
		var targets []Target
		for i := range 1000 {
			targets = append(targets, Target{"i" + string(rune('A'+i%26)) + time.Duration(i).String(), "a:1"})
		}
		o := options(n, j, targets...)
		o.Size = 100
		run(t, o)
		afterPeriods(1)
		// For some instances the next period has already begun.
		if served := in.served.Load(); len(j.take()) != 1000 || n.dials != 1000 || served < 8000 || served > 9000 {
			t.Errorf("%d connections and %d downloads", n.dials, in.served.Load())
		}
	})
}

func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.add("a:1", always(5*time.Millisecond))
		p, err := NewProber(options(n, &journal{}))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		stats, singles, err := p.Collect(context.Background(), Target{"i1", "a:1"}, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if by := stats.By; by == nil || *by != p.Probing() {
			t.Errorf("made by %+v, want %+v", by, p.Probing())
		}
		stats.By = nil
		if want := (quell.ProbeStats{MeanMS: 5, N: 39}); stats != want || len(singles) != 39 {
			t.Errorf("got %+v and %d singles, want %+v", stats, len(singles), want)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if _, _, err := p.Collect(context.Background(), Target{"i2", "nobody:1"}, time.Second); !errors.Is(err, quell.ErrNoData) ||
			!errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nobody there: %v", err)
		}
		if _, _, err := p.Collect(context.Background(), Target{"i1", "a:1"}, 200*time.Millisecond); err == nil {
			t.Error("one probe was enough")
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, _, err := p.Collect(ctx, Target{"i1", "a:1"}, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cut off: %v", err)
		}
	})
}

// TestAgainstTheServer runs prober and server over real sockets.
func TestAgainstTheServer(t *testing.T) {
	s := NewServer(ServerOptions{Token: token})
	address := start(t, s)
	readings := make(chan quell.Reading, 100)
	p, err := NewProber(Options{
		Service: "video", Sender: "lb1", Targets: func() []Target { return []Target{{"i1", address}} },
		Period: 400 * time.Millisecond, Timeout: 400 * time.Millisecond, Size: 20_000, Token: token,
		Logger:  slog.New(slog.NewTextHandler(io.Discard, nil)),
		Publish: func(_ context.Context, r quell.Reading) error { readings <- r; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	r := <-readings
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := r.Observation.Probe[quell.Network]; got.N < 1 || got.N > 11 || !(got.MeanMS > 0) {
		t.Errorf("got %+v", got)
	}
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	if sent, received := s.BytesSent(), p.Stats().Bytes; sent < 40_000 || received < 40_000 {
		t.Errorf("%d bytes sent, %d received, for two probes at least", sent, received)
	}
}

func BenchmarkProbe(b *testing.B) {
	s := NewServer(ServerOptions{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Start(l); err != nil {
		b.Fatal(err)
	}
	defer s.Shutdown(context.Background())
	o := Options{Timeout: time.Second, Dial: new(net.Dialer).DialContext}
	session, err := newSession(o, Target{"i1", l.Addr().String()}, 50_000)
	if err != nil {
		b.Fatal(err)
	}
	defer session.close()
	b.ReportAllocs()
	for b.Loop() {
		if r := session.probe(context.Background()); r.err != nil {
			b.Fatal(r.err)
		}
	}
}
