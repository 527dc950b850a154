package probe

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
)

const token = "secret"

// network is a set of instances that are reached through pipes. It is used inside a synctest bubble.
type network struct {
	mu        sync.Mutex
	instances map[string]*instance
	dials     int
	idle      time.Duration // idle time after which instances close a connection; 0: never
}

// instance is a probe server whose answers take some time.
type instance struct {
	took   func(download int) time.Duration
	served atomic.Int64
	open   atomic.Int64 // downloads in progress
	most   atomic.Int64 // most downloads in progress at the same time
	conns  chan net.Conn
	server *http.Server
	closes bool         // closes the connection after every answer
	beats  func() int64 // if not nil, what answers tell
}

func newNetwork(t *testing.T) *network {
	n := &network{instances: map[string]*instance{}}
	t.Cleanup(func() {
		for _, in := range n.instances {
			in.server.Close()
		}
		time.Sleep(2 * time.Hour) // closed to let every handler end
	})
	return n
}

// add starts an instance. took returns how long a download takes; the first download is number 1.
func (n *network) add(address string, took func(download int) time.Duration) *instance {
	in := &instance{took: took, conns: make(chan net.Conn)}
	answer := NewServer(ServerOptions{Token: token})
	in.server = &http.Server{IdleTimeout: n.idle, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.most.Store(max(in.most.Load(), in.open.Add(1)))
		defer in.open.Add(-1)
		if in.closes {
			w.Header().Set("Connection", "close")
		}
		time.Sleep(in.took(int(in.served.Add(1))))
		if in.beats != nil {
			answer.pulse.beats.Store(in.beats())
		}
		answer.ServeHTTP(w, r)
	})}
	go in.server.Serve(&pipeListener{conns: in.conns, done: make(chan struct{})})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.instances[address] = in
	return in
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dials++
	in := n.instances[address]
	n.mu.Unlock()
	if address == "blackhole" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if in == nil {
		return nil, syscall.ECONNREFUSED
	}
	here, there := net.Pipe()
	in.conns <- there
	return here, nil
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// journal collects what a prober publishes.
type journal struct {
	mu       sync.Mutex
	readings []quell.Reading
	fail     error
}

func (j *journal) publish(_ context.Context, r quell.Reading) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fail != nil {
		return j.fail
	}
	j.readings = append(j.readings, r)
	return nil
}

func (j *journal) take() []quell.Reading {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := j.readings
	j.readings = nil
	return out
}

func options(n *network, j *journal, targets ...Target) Options {
	return Options{
		Service: "video", Sender: "lb1", Targets: func() []Target { return targets }, Period: time.Second, Size: 10_000,
		Token: token, Publish: j.publish, Seed: 1, Dial: n.dial,
	}
}

// run starts a prober that ends with the test's bubble.
func run(t *testing.T, o Options) *Prober {
	t.Helper()
	p, err := NewProber(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

// overhang is the time for a probe that started at the very end of its period.
const overhang = 20 * time.Millisecond

// afterPeriods sleeps until just after the end of the given number of one-second periods.
func afterPeriods(n int) {
	time.Sleep(time.Duration(n)*time.Second + overhang)
	synctest.Wait()
}
