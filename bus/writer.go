package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/quellhq/quell"
)

// ErrLater says that a value is in memory and will be stored when the bus stores again.
var ErrLater = errors.New("kept in memory until the bus stores again")

const (
	writerWait  = time.Second // how long a caller waits for the store
	mostWaiting = 64 << 20    // limit of bytes that wait for the store; beyond it the oldest are dropped
	retryPause  = time.Second // after the store refused a write
)

// Writer stores a service's journal and memory in an external bus, whose servers may take seconds to answer, for example while they elect a
// leader. It writes everything in order, each record once. A caller waits at most writerWait. If something is not stored by then, it stays
// in memory until it can be stored, and the caller gets an error that wraps ErrLater.
type Writer struct {
	journal *Journal
	state   *State
	holds   func() bool // returns whether this controller has the lease; without the lease, no memory is written
	log     *slog.Logger

	end  context.CancelFunc
	wake chan struct{} // holds one value when there is work
	done chan struct{}

	mu      sync.Mutex // guards what follows
	queue   []*writing // the first is being written
	bytes   int
	begun   time.Time          // when writing the first began
	late    time.Time          // since when the store lags behind
	refusal error              // the store's last answer, if it answered but did not store
	full    bool               // records have been dropped since the store began to lag
	lost    int                // records that were dropped or that cannot be stored
	values  map[string]*[]byte // the newest value of each key that is not stored yet
}

// writing is one record, or the newest value of a key.
type writing struct {
	what string
	size int
	do   func(ctx context.Context) error
	done chan struct{}
	err  error // set when done
}

// Writer returns a writer for a journal and a state; Close ends it. holds must return quickly.
func (c *Conn) Writer(j *Journal, s *State, holds func() bool) *Writer {
	s.sole = true
	return newWriter(&Writer{journal: j, state: s, holds: holds, log: c.log})
}

func newWriter(w *Writer) *Writer {
	ctx, end := context.WithCancel(patient(context.Background()))
	w.end, w.wake, w.done = end, make(chan struct{}, 1), make(chan struct{})
	w.values = map[string]*[]byte{}
	go w.run(ctx)
	return w
}

// Append writes an entry of the journal.
func (w *Writer) Append(ctx context.Context, e Entry) error {
	record, err := w.journal.encode(e)
	if err != nil {
		return err
	}
	return w.journal.explain(appending, w.store(ctx, w.journal.entries, record, e.At))
}

// AppendSnapshot keeps a snapshot in memory. Snapshots are written together when there are enough of them.
func (w *Writer) AppendSnapshot(ctx context.Context, s quell.Snapshot) error {
	full, err := w.journal.add(s)
	if err != nil || !full {
		return err
	}
	u := w.journal.take(false)
	if u.number == 0 {
		return nil // Flush was faster
	}
	return w.journal.explain(keepingSnapshots, w.store(ctx, w.journal.snapshots, u.lines, u.newest))
}

func (w *Writer) store(ctx context.Context, l *recordLog, record []byte, until time.Time) error {
	msgs, err := l.prepare(record, until)
	if err != nil {
		return err
	}
	return w.hand(ctx, &writing{what: l.name, size: int(space(msgs)), do: func(ctx context.Context) error { return l.store(ctx, msgs) }})
}

// Put stores a value. It replaces a value of the same key that still waits, because only the newest counts. As with records, it does not
// wait if the store already lags behind.
func (w *Writer) Put(ctx context.Context, key string, value []byte) error {
	w.mu.Lock()
	_, waits := w.values[key]
	w.values[key] = &value
	for i, x := range w.queue {
		if waits && i > 0 && x.what == "state "+key {
			behind := w.behind()
			w.mu.Unlock()
			if behind {
				return w.lags()
			}
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

// Get returns the value that was put last, by this controller or by another one that has led since.
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

// hand queues a write and waits until it is done. If the store already lags behind, it does not wait.
func (w *Writer) hand(ctx context.Context, x *writing) error {
	x.done = make(chan struct{})
	w.mu.Lock()
	behind := w.behind()
	if len(w.queue) == 0 {
		w.begun = time.Now()
	}
	w.queue = append(w.queue, x)
	w.bytes += x.size
	w.makeRoom()
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	if behind {
		return w.lags()
	}
	return w.await(ctx, x)
}

// behind returns whether the store lags behind. The caller holds w.mu.
func (w *Writer) behind() bool { return len(w.queue) > 0 && time.Since(w.begun) >= writerWait }

// makeRoom drops the oldest records when too many wait.
func (w *Writer) makeRoom() {
	for i := 1; i < len(w.queue) && w.bytes > mostWaiting; {
		if w.queue[i].size == 0 {
			i++
			continue
		}
		w.bytes -= w.queue[i].size
		w.lost, w.full = w.lost+1, true
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

// lags returns an error while the store lags behind. The error says since when and, if known, why. The error's text stays the same, so
// that the error is logged only once.
func (w *Writer) lags() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late.IsZero() {
		w.late = time.Now()
	}
	err := fmt.Errorf("%w; it has lagged since %s", ErrLater, w.late.UTC().Format(time.TimeOnly))
	if w.full {
		err = fmt.Errorf("%w, and older records had to be given up", err)
	}
	if w.refusal != nil {
		err = fmt.Errorf("%w: %w", err, w.refusal)
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
		for ctx.Err() == nil && w.again(x, err) {
			pause(ctx, retryPause)
			err = x.do(ctx)
		}
		if err != nil && ctx.Err() != nil {
			return
		}
		w.drop(x, err)
	}
}

// again returns whether a failed write must be tried again. If the store answered, it notes the store's reason. A value that the store
// refuses stays in the field values and is put again together with the next one.
func (w *Writer) again(x *writing, err error) bool {
	switch {
	case err == nil:
		return false
	case Unavailable(err):
		return true
	case x.size == 0 || unfit(err):
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusal = err
	return true
}

// unfit returns whether a record can never be stored, even by a healthy bus.
func unfit(err error) bool {
	const tooLarge = 10054
	var api *jetstream.APIError
	return errors.As(err, new(*quell.UserError)) || errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == tooLarge
}

func (w *Writer) first() *writing {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.late, w.full = time.Time{}, false
		return nil
	}
	w.begun = time.Now()
	return w.queue[0]
}

func (w *Writer) drop(x *writing, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = w.queue[1:]
	w.bytes -= x.size
	w.refusal = nil
	if err != nil && x.size > 0 {
		w.lost++
		w.log.Error("a record cannot be stored and is lost", "stream", x.what, "error", err)
	}
	x.finish(err)
}

// Close waits until everything is written or ctx ends, and ends the writer. The error says what was lost since the writer began. A
// record that was being written at the end may have been stored.
func (w *Writer) Close(ctx context.Context) error {
	last := &writing{what: "end", do: func(context.Context) error { return nil }}
	_ = w.hand(ctx, last) // it waits only for writerWait
	select {
	case <-last.done:
	case <-ctx.Done():
	}
	w.end()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	records := w.lost
	for _, x := range w.queue {
		if x.size > 0 {
			records++
		}
	}
	var lost []error
	if records > 0 {
		lost = append(lost, fmt.Errorf("records of the journal that were not stored: %d", records))
	}
	if len(w.values) > 0 && w.holds() {
		lost = append(lost, errors.New("what the controller remembers was not stored"))
	}
	return errors.Join(lost...)
}

type patientKey struct{}

// patient marks a context. A request with such a context is repeated until the store answers, however long that takes and even if the bus
// is not connected.
func patient(ctx context.Context) context.Context { return context.WithValue(ctx, patientKey{}, true) }

func isPatient(ctx context.Context) bool { return ctx.Value(patientKey{}) != nil }

// Unavailable returns whether an error means that the store could not be asked. Such an error says nothing about what the store holds.
func Unavailable(err error) bool {
	return silent(err) || errors.Is(err, ErrNotConnected) || errors.Is(err, ErrStoreClosed) || errors.Is(err, context.Canceled)
}
