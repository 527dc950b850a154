package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
)

// writerOn returns a writer of the service "shop", and a flag that sets whether the writer has the lease.
func writerOn(t *testing.T, c *Conn) (*Writer, *atomic.Bool) {
	t.Helper()
	j, err := c.Journal("shop", JournalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var holds atomic.Bool
	holds.Store(true)
	w := c.Writer(j, state(t, c), holds.Load)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = w.Close(ctx)
	})
	return w, &holds
}

// TestNobodyWaitsForAStoreThatIsAway stops all servers of a cluster for a while. Records that were written in that time are stored
// afterwards, in order and once.
func TestNobodyWaitsForAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
	var urls []string
	for _, n := range nodes {
		urls = append(urls, n.url())
	}
	conn, err := Connect(Options{URL: strings.Join(urls, ","), Ping: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w, _ := writerOn(t, conn)
	ctx, at := context.Background(), time.Now()
	write := func(n int) error {
		e := Entry{At: at.Add(time.Duration(n)), Kind: EventEntry, Text: fmt.Sprint(n)}
		return errors.Join(w.Append(ctx, e), w.Put(ctx, "memory", []byte(e.Text)))
	}
	within(t, 60*time.Second, "the stores", func() error { return write(0) })

	signal := func(s syscall.Signal) {
		for _, n := range nodes {
			if err := n.cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	signal(syscall.SIGSTOP) // takes effect when the servers next run
	within(t, 60*time.Second, "the servers to stop", func() error {
		if err := write(0); !errors.Is(err, ErrLater) {
			return fmt.Errorf("a write was answered: %v", err)
		}
		return nil
	})
	const written = 50
	for n := 1; n <= written; n++ {
		if err := write(n); !errors.Is(err, ErrLater) {
			t.Errorf("a write without a server: %v", err)
		}
	}
	if waits := len(w.queue); waits > written+3 {
		t.Errorf("%d writings wait: a value that waits was not replaced", waits)
	}
	signal(syscall.SIGCONT)
	within(t, 60*time.Second, "the writer to catch up", func() error { return write(written + 1) })

	var texts []string
	within(t, 60*time.Second, "the journal", func() error {
		texts = nil
		return w.journal.Read(ctx, time.Time{}, func(e Entry) error { texts = append(texts, e.Text); return nil })
	})
	texts = texts[max(0, slices.Index(texts, "1")):]
	for n := 1; n <= written; n++ {
		if n > len(texts) || texts[n-1] != fmt.Sprint(n) {
			t.Fatalf("the journal holds %v", texts)
		}
	}
	if got, err := w.Get(ctx, "memory"); err != nil || string(got) != fmt.Sprint(written+1) {
		t.Errorf("the memory is %q, %v", got, err)
	}
}

// away is a store that does not answer for a while.
type away struct {
	until time.Time
	kept  []int
}

func (s *away) write(n int) *writing {
	return &writing{what: "journal", size: 1, do: func(ctx context.Context) error {
		if pause(ctx, max(0, time.Until(s.until))); ctx.Err() != nil {
			return ctx.Err()
		}
		s.kept = append(s.kept, n)
		return nil
	}}
}

// TestDecisionsGoOnWhileTheStoreIsAway makes a decision every 300 ms for a minute in which the store does not answer. Each has a record
// and a value, which replaces the one that waits.
func TestDecisionsGoOnWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period, decisions = 300 * time.Millisecond, 190
		began := time.Now()
		store := &away{until: began.Add(time.Minute)}
		w := newWriter(&Writer{holds: func() bool { return false }})
		var want []int
		for n := range decisions {
			if err := w.hand(t.Context(), store.write(n)); !errors.Is(err, ErrLater) {
				t.Errorf("decision %d: %v", n, err)
			}
			if err := w.Put(t.Context(), "memory", []byte{byte(n)}); !errors.Is(err, ErrLater) {
				t.Errorf("value %d: %v", n, err)
			}
			want = append(want, n)
			time.Sleep(period)
		}
		if waited := time.Since(began) - decisions*period; waited > writerWait {
			t.Errorf("the decisions waited %s for the store", waited)
		}
		if err := w.Close(t.Context()); err != nil || !slices.Equal(store.kept, want) {
			t.Errorf("%v; kept %v", err, store.kept)
		}
	})
}

// TestCloseSaysWhatWasLost closes the writer while the store does not answer.
func TestCloseSaysWhatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &away{until: time.Now().Add(time.Minute)}
		w := newWriter(&Writer{holds: func() bool { return true }})
		for n := range 20 {
			if err := w.hand(t.Context(), store.write(n)); !errors.Is(err, ErrLater) {
				t.Errorf("decision %d: %v", n, err)
			}
		}
		if err := w.Put(t.Context(), "memory", []byte("value")); !errors.Is(err, ErrLater) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := w.Close(ctx)
		if err == nil || !strings.Contains(err.Error(), "not stored: 20") || !strings.Contains(err.Error(), "remembers") || len(store.kept) > 0 {
			t.Errorf("%v; kept %v", err, store.kept)
		}
	})
}

// TestOnlyTheLeaderWritesTheMemory checks that a controller's late write never replaces what its successor wrote, and that a write that
// nobody has replaced is not lost.
func TestOnlyTheLeaderWritesTheMemory(t *testing.T) {
	server := embedded(t)
	a, aLeads := writerOn(t, server)
	b, _ := writerOn(t, server)
	ctx := t.Context()
	put := func(w *Writer, text string, want error) {
		t.Helper()
		if err := w.Put(ctx, "memory", []byte(text)); !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", text, err, want)
		}
	}
	get := func(w *Writer, want string) {
		t.Helper()
		if got, err := w.Get(ctx, "memory"); err != nil || string(got) != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	if _, err := a.Get(ctx, "memory"); !errors.Is(err, quell.ErrNoData) {
		t.Fatal(err)
	}
	put(a, "a1", nil)
	aLeads.Store(false)
	put(a, "a2", ErrLater)
	get(b, "a1")
	get(a, "a2") // nobody else wrote, so the writer continues from its own value
	put(b, "b1", nil)
	put(a, "a3", ErrLater)
	get(a, "b1")
	aLeads.Store(true)
	put(a, "a4", nil)
	put(b, "b2", errOverwritten) // as a controller that was disconnected
	get(b, "a4")
}

// TestTooMuchThatWaitsIsGivenUp checks that the memory used for waiting records is limited.
func TestTooMuchThatWaitsIsGivenUp(t *testing.T) {
	w := &Writer{}
	size := mostWaiting / 4
	for range 10 {
		w.queue = append(w.queue, &writing{size: size, done: make(chan struct{})})
		w.bytes += size
		w.makeRoom()
	}
	if len(w.queue) != 4 || w.bytes != mostWaiting || w.lost != 6 {
		t.Errorf("%d wait, with %d bytes; %d were given up", len(w.queue), w.bytes, w.lost)
	}
}
