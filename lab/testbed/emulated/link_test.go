package emulated

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell/lab/testbed/demand"
)

// over returns a connection on the link. Everything that its other end receives is added to received.
func over(l *Link, owner Owner) (c net.Conn, received func() []byte) {
	near, far := net.Pipe()
	var all []byte
	var reading sync.WaitGroup
	reading.Go(func() { all, _ = io.ReadAll(far) })
	return l.Conn(near, owner), func() []byte { reading.Wait(); return all }
}

func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = demand.Byte(int64(i))
	}
	return b
}

// In the tests' virtual time timers are exact, so the measured times must be exact as well.
func TestSaturatedLinkRunsAtItsBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, 40_000_000)
		c, received := over(l, OwnInstance)
		start, sent := time.Now(), content(5_000_000)
		for rest := sent; len(rest) > 0; {
			n, err := c.Write(rest[:min(len(rest), 32_111)])
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if took := time.Since(start); (took - time.Second).Abs() > 5*time.Millisecond {
			t.Errorf("5 MB over 40 Mbit/s took %v, want 1 s", took)
		}
		c.Close()
		if !bytes.Equal(received(), sent) {
			t.Error("what arrived is not what was sent")
		}
		if got := l.Counters(); got != (Counters{Instance: 5_000_000}) {
			t.Errorf("counters %+v", got)
		}
	})
}

func TestConnectionsShareTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, 8_000_000)
		start := time.Now()
		var writers sync.WaitGroup
		var took [3]time.Duration
		for i, size := range []int{100_000, 100_000, 50_000} {
			c, _ := over(l, Owner(i%2))
			writers.Go(func() {
				defer c.Close()
				c.Write(make([]byte, size))
				took[i] = time.Since(start)
			})
		}
		writers.Wait()
		// Each of three transfers gets a third of the link until the small one ends at 150 ms; then the other two get half each, until 250 ms.
		for i, want := range []time.Duration{250 * time.Millisecond, 250 * time.Millisecond, 150 * time.Millisecond} {
			if (took[i] - want).Abs() > 7*time.Millisecond {
				t.Errorf("connection %d took %v, want %v", i, took[i], want)
			}
		}
		if got := l.Counters(); got.Instance != 150_000 || got.Probe != 100_000 {
			t.Errorf("counters %+v", got)
		}
	})
}

// A connection that always has data to send gets the part of the link that the neighbours leave free.
func TestNeighboursTakeTheirShareFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, 40_000_000)
		i := newInterferer(t, InterfererOptions{Link: l, Seed: 4})
		if err := i.SetUse(0.4); err != nil {
			t.Fatal(err)
		}
		c, _ := over(l, OwnInstance)
		block := make([]byte, 500_000)
		start := time.Now()
		for time.Since(start) < 15*time.Second {
			c.Write(block)
		}
		share := float64(l.Counters().Instance) * 8 / 40e6 / time.Since(start).Seconds()
		if math.Abs(share-0.6) > 0.03 {
			t.Errorf("a busy connection got %.3f of the link beside neighbours at 0.4, want 0.6", share)
		}
		c.Close()
	})
}

func TestClientThatDoesNotReadHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, 8_000_000)
		near, far := net.Pipe() // nobody reads from the far end
		stuck, done := l.Conn(near, OwnInstance), make(chan error)
		go func() {
			_, err := stuck.Write(make([]byte, 10_000))
			done <- err
		}()
		c, received := over(l, OwnInstance)
		if n, err := c.Write(make([]byte, 50_000)); n != 50_000 || err != nil {
			t.Errorf("wrote %d: %v", n, err)
		}
		c.Close()
		if n := len(received()); n != 50_000 {
			t.Errorf("%d bytes arrived", n)
		}
		far.Close()
		if err := <-done; err == nil {
			t.Error("writing to a client that has gone succeeded")
		}
		if _, err := stuck.Write([]byte("x")); err == nil {
			t.Error("writing went on after an error that lost bytes")
		}
	})
}

func TestClosingEndsWaitingWrites(t *testing.T) {
	for name, end := range map[string]func(*Link, net.Conn){
		"the connection": func(_ *Link, c net.Conn) { c.Close(); c.Close() },
		"the link":       func(l *Link, _ net.Conn) { l.Close(); l.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLink(t, 8000)
				c, _ := over(l, OwnInstance)
				done := make(chan error)
				go func() {
					_, err := c.Write(make([]byte, 100_000)) // 100 s
					done <- err
				}()
				time.Sleep(5 * time.Second)
				start := time.Now()
				end(l, c)
				if err := <-done; !errors.Is(err, net.ErrClosed) || time.Since(start) > 0 {
					t.Errorf("the write ended after %v with %v", time.Since(start), err)
				}
				if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a later write: %v", err)
				}
				c.Close()
			})
		})
	}
}

// recorder notes when how many bytes are written to it.
type recorder struct {
	net.Conn
	start  time.Time
	writes []string
}

func (r *recorder) Write(p []byte) (int, error) {
	r.writes = append(r.writes, fmt.Sprint(len(p), " at ", time.Since(r.start)))
	return len(p), nil
}

// Bytes reach the real connection in lots of 10 ms, and the last of a write at the moment at which it has crossed; a second flow, which
// makes both slower, does not change that.
func TestBytesAreHandedOnInLots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, 8_000_000)
		one, two := &recorder{start: time.Now()}, &recorder{start: time.Now()}
		var both sync.WaitGroup
		l.Conn(one, OwnInstance).Write(content(25_000))
		for _, r := range []*recorder{one, two} {
			both.Go(func() { l.Conn(r, OwnInstance).Write(content(4_096)) })
			synctest.Wait()
		}
		both.Wait()
		if got, want := one.writes, []string{
			"10240 at 10.24ms", "10240 at 20.48ms", "4520 at 25ms", "4096 at 31.144ms",
		}; !slices.Equal(got, want) {
			t.Errorf("one: %q, want %q", got, want)
		}
		if got, want := two.writes, []string{"4096 at 33.192ms"}; !slices.Equal(got, want) {
			t.Errorf("two: %q, want %q", got, want)
		}
	})
}

func TestWriteDeadlineIsSeenAtTheNextPiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := over(newLink(t, 8000), OwnInstance) // a piece takes 2.048 s
		c.SetWriteDeadline(time.Now().Add(3 * time.Second))
		n, err := c.Write(make([]byte, 100_000))
		if !errors.Is(err, os.ErrDeadlineExceeded) || n != defaultPiece {
			t.Errorf("wrote %d: %v", n, err)
		}
		c.Close()
	})
}

func TestIdleLinkSetsNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, 8_000_000)
		i := newInterferer(t, InterfererOptions{Link: l})
		armed := func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.armed >= 0 }
		c, _ := over(l, OwnInstance)
		c.Write(make([]byte, 5000))
		synctest.Wait()
		if armed() {
			t.Error("a timer runs although nothing waits")
		}
		i.SetUse(0.5)
		if !armed() {
			t.Error("nobody would play the neighbours' flows forward")
		}
		i.SetUse(0)
		time.Sleep(10 * time.Second)
		if armed() {
			t.Error("a timer runs although the neighbours have gone")
		}
		c.Close()
	})
}

func TestLinkMistakes(t *testing.T) {
	for name, o := range map[string]LinkOptions{
		"no bandwidth":   {},
		"too slow":       {BitsPerSecond: 7999},
		"negative piece": {BitsPerSecond: 8000, Piece: -1},
		"huge piece":     {BitsPerSecond: 8000, Piece: 1<<20 + 1},
	} {
		if _, err := NewLink(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
