package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quellhq/quell"
)

// ErrLater says that what was to be kept is in memory, and is written once the bus stores it.
var ErrLater = errors.New("kept in memory until the bus stores again")

const (
	writerWait  = time.Second // how long a caller waits for the store
	mostWaiting = 64 << 20    // bytes that wait for the store; beyond, the oldest are given up
	retryPause  = time.Second // after a refusal
)

// Writer keeps a service's journal and memory in an external bus, whose servers may take seconds to answer, as while they elect a
// leader. It writes everything in order, each record once, and lets its caller wait for a moment only: what is not stored by then
// stays in memory until it can be, and the caller gets an error that wraps ErrLater.
type Writer struct {
	journal *Journal
	state   *State
	holds   func() bool // whether this controller has the lease: without it no memory is written
	now     func() time.Time

	end  context.CancelFunc
	wake chan struct{} // holds one value when there is work
	done chan struct{}

	mu     sync.Mutex // guards what follows
	queue  []*writing // the first is under way
	bytes  int
	begun  time.Time          // when the first was
	late   time.Time          // since when the store lags behind
	lost   int                // records given up since then
	values map[string]*[]byte // newest of each key that is not stored
}

// writing is one record, or the newest value of a key.
type writing struct {
	what string
	size int
	do   func(ctx context.Context) error
	done chan struct{}
	err  error // once done
}

// Writer returns one for a journal and a state; Close ends it. holds must be quick.
func (c *Conn) Writer(j *Journal, s *State, holds func() bool) *Writer {
	ctx, end := context.WithCancel(patient(context.Background()))
	w := &Writer{
		journal: j, state: s, holds: holds, now: time.Now, end: end, wake: make(chan struct{}, 1), done: make(chan struct{}),
		values: map[string]*[]byte{},
	}
	s.sole = true
	go w.run(ctx)
	return w
}

// Append writes an entry of the journal.
func (w *Writer) Append(ctx context.Context, e Entry) error {
	record, err := w.journal.encode(e)
	if err != nil {
		return err
	}
	return w.hand(ctx, &writing{what: "journal", size: len(record), do: func(ctx context.Context) error {
		return w.journal.write(ctx, record, e.At)
	}})
}

// AppendSnapshot keeps a snapshot in memory, and writes those kept once they are many or large.
func (w *Writer) AppendSnapshot(ctx context.Context, s quell.Snapshot) error {
	full, err := w.journal.add(s)
	if err != nil || !full {
		return err
	}
	record, newest := w.journal.take()
	return w.hand(ctx, &writing{what: "snapshots", size: len(record), do: func(ctx context.Context) error {
		return w.journal.writeSnapshots(ctx, record, newest)
	}})
}

// Put keeps a value. One that waits already is replaced: only the newest counts.
func (w *Writer) Put(ctx context.Context, key string, value []byte) error {
	w.mu.Lock()
	_, waits := w.values[key]
	w.values[key] = &value
	for i, x := range w.queue {
		if waits && i > 0 && x.what == "state "+key {
			w.mu.Unlock()
			return w.await(ctx, x)
		}
	}
	w.mu.Unlock()
	return w.hand(ctx, &writing{what: "state " + key, do: func(ctx context.Context) error { return w.putNewest(ctx, key) }})
}

func (w *Writer) putNewest(ctx context.Context, key string) error {
	w.mu.Lock()
	value, waits := w.values[key]
	w.mu.Unlock()
	if !waits {
		return nil
	}
	if !w.holds() {
		return fmt.Errorf("%w: this controller does not hold the lease", ErrLater)
	}
	err := w.state.Put(ctx, key, *value)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.values[key] == value && (err == nil || errors.Is(err, errOverwritten) && !w.holds()) {
		delete(w.values, key)
	}
	return err
}

// Get returns the value that was put last, by this controller or by another that has led since.
func (w *Writer) Get(ctx context.Context, key string) ([]byte, error) {
	before := w.state.lastID(key)
	value, id, err := w.state.fetch(ctx, key)
	if err != nil && !errors.Is(err, quell.ErrNoData) {
		return value, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if waiting, ok := w.values[key]; ok && id == before {
		return *waiting, nil // nobody wrote since
	}
	delete(w.values, key)
	return value, err
}

// hand queues a writing, and waits for it unless the store lags behind already.
func (w *Writer) hand(ctx context.Context, x *writing) error {
	x.done = make(chan struct{})
	w.mu.Lock()
	lags := len(w.queue) > 0 && w.now().Sub(w.begun) >= writerWait
	if len(w.queue) == 0 {
		w.begun = w.now()
	}
	w.queue = append(w.queue, x)
	w.bytes += x.size
	w.makeRoom()
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	if lags {
		return w.lags()
	}
	return w.await(ctx, x)
}

// makeRoom gives up the oldest records when too many wait.
func (w *Writer) makeRoom() {
	for i := 1; i < len(w.queue) && w.bytes > mostWaiting; {
		if w.queue[i].size == 0 {
			i++
			continue
		}
		w.bytes -= w.queue[i].size
		w.lost++
		w.queue[i].finish(errors.New("given up: too much waits for the bus"))
		w.queue = append(w.queue[:i], w.queue[i+1:]...)
	}
}

func (w *Writer) await(ctx context.Context, x *writing) error {
	select {
	case <-x.done:
		return x.err
	case <-time.After(writerWait):
	case <-ctx.Done():
	}
	return w.lags()
}

// lags says since when; the same every time, so that it is logged once.
func (w *Writer) lags() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late.IsZero() {
		w.late = w.now()
	}
	err := fmt.Errorf("%w; it has lagged since %s", ErrLater, w.late.UTC().Format(time.TimeOnly))
	if w.lost > 0 {
		err = fmt.Errorf("%w, and older records had to be given up", err)
	}
	return err
}

func (x *writing) finish(err error) {
	x.err = err
	close(x.done)
}

func (w *Writer) run(ctx context.Context) {
	defer close(w.done)
	for {
		x := w.first()
		if x == nil {
			select {
			case <-ctx.Done():
				return
			case <-w.wake:
			}
			continue
		}
		err := x.do(ctx)
		for Unavailable(err) && ctx.Err() == nil {
			pause(ctx, retryPause)
			err = x.do(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		w.drop(x, err)
	}
}

func (w *Writer) first() *writing {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.late, w.lost = time.Time{}, 0
		return nil
	}
	w.begun = w.now()
	return w.queue[0]
}

func (w *Writer) drop(x *writing, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = w.queue[1:]
	w.bytes -= x.size
	x.finish(err)
}

// Close waits until everything is written, as long as ctx lasts, and ends the writer.
func (w *Writer) Close(ctx context.Context) error {
	last := &writing{what: "end", do: func(context.Context) error { return nil }}
	_ = w.hand(ctx, last) // it waits for a moment only
	select {
	case <-last.done:
	case <-ctx.Done():
	}
	w.end()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 {
		return fmt.Errorf("%d records were not stored before the end: the bus did not answer", len(w.queue))
	}
	return nil
}

type patientKey struct{}

// patient marks a context in which the store is asked until it answers, however long that takes and whether or not the bus is there.
func patient(ctx context.Context) context.Context { return context.WithValue(ctx, patientKey{}, true) }

func isPatient(ctx context.Context) bool { return ctx.Value(patientKey{}) != nil }

// Unavailable says that the store could not be asked at present, which says nothing of what it holds.
func Unavailable(err error) bool {
	return silent(err) || errors.Is(err, ErrNotConnected) || errors.Is(err, ErrStoreClosed) || errors.Is(err, context.Canceled)
}
