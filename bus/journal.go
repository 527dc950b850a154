package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/pack"
	"github.com/quellhq/quell/bus/subjects"
)

// Kind says what an entry of the journal records.
type Kind string

// A plan entry holds a plan and its outcome; an event entry holds a text.
const (
	PlanEntry  Kind = "plan"
	EventEntry Kind = "event"
)

// Entry is one line of a service's journal.
type Entry struct {
	At      time.Time   `json:"at"`
	Seq     uint64      `json:"seq,omitempty"` // increases along the journal, with gaps; set by Read
	Kind    Kind        `json:"kind"`
	Plan    *quell.Plan `json:"plan,omitempty"`
	Applied bool        `json:"applied,omitempty"`
	Mode    quell.Mode  `json:"mode,omitempty"`
	Text    string      `json:"text,omitempty"`
	Changes []string    `json:"changes,omitempty"`
	Why     string      `json:"why,omitempty"`   // why a plan was not applied
	Would   []string    `json:"would,omitempty"` // what a plan that was not tried would have changed
}

func (e *Entry) check() error {
	switch {
	case e.At.IsZero():
		return errors.New("it has no time")
	case e.Kind != PlanEntry && e.Kind != EventEntry:
		return fmt.Errorf("unknown kind %q", e.Kind)
	case e.Kind == PlanEntry && e.Plan == nil:
		return errors.New("a plan entry without a plan")
	}
	return nil
}

// JournalOptions limit a journal.
type JournalOptions struct {
	Bytes          int64 // limit on disk: a quarter for entries, the rest for snapshots; at least 16 MiB, 0 means 64 MiB
	FlushSnapshots int   // number of snapshots written together; 0 means 30
}

const (
	defaultJournal   = 64 << 20
	leastJournal     = 16 << 20
	entryShare       = 4       // entries get one part in four,
	leastEntries     = 6 << 20 // and at least this
	defaultFlush     = 30
	flushBytes       = 4 << 20  // snapshots are written when they reach this size, uncompressed
	mostBuffered     = 16 << 20 // and discarded at this size, when writing keeps failing
	plansStream      = "quell_plans_"
	snapshotsStream  = "quell_snapshots_"
	snapshotTooLarge = pack.MaxValue - flushBytes
	appending        = "append to the journal" // in messages
	keepingSnapshots = "journal snapshots"
)

// Journal is the record of a service's controller. One process at a time may write; any number may read.
type Journal struct {
	service   string
	conn      *Conn
	entries   *recordLog
	snapshots *recordLog
	flushAt   int

	flush sync.Mutex // held by Flush, so that snapshots are written in order

	mu       sync.Mutex // guards what follows; never held while the store is asked, because the control loop waits for it
	waiting  unwritten
	flushing bool // Flush is writing earlier ones
}

// unwritten are snapshots in memory.
type unwritten struct {
	lines  []byte // as JSON
	number int
	newest time.Time
}

// Journal returns the journal of a service. The first Append or AppendSnapshot creates it.
func (c *Conn) Journal(service string, opts JournalOptions) (*Journal, error) {
	svc, err := subjects.Service(service)
	if err != nil {
		return nil, err
	}
	opts.Bytes = cmp.Or(opts.Bytes, defaultJournal)
	if opts.Bytes < leastJournal {
		return nil, userErrorf("bus.journal_bytes: %d is too small; at least %d", opts.Bytes, leastJournal)
	}
	if opts.FlushSnapshots <= 0 {
		opts.FlushSnapshots = defaultFlush
	}
	own := max(opts.Bytes/entryShare, leastEntries)
	return &Journal{
		service: service, conn: c, flushAt: opts.FlushSnapshots,
		entries: &recordLog{conn: c, name: plansStream + svc, subject: "quell." + svc + ".journal.plans", maxBytes: contentOf(own)},
		snapshots: &recordLog{conn: c, name: snapshotsStream + svc, subject: "quell." + svc + ".journal.snapshots",
			maxBytes: contentOf(opts.Bytes - own)},
	}, nil
}

// Services lists the services that have a journal, sorted.
func (c *Conn) Services(ctx context.Context) ([]string, error) {
	ctx, cancel, err := c.request(ctx)
	if err != nil {
		return nil, fmt.Errorf("list journals: %w", err)
	}
	defer cancel()
	names := c.js.StreamNames(ctx)
	services := []string{}
	for stream := range names.Name() {
		svc, ours := strings.CutPrefix(stream, plansStream)
		if name, err := subjects.Unescape(svc); ours && err == nil {
			services = append(services, name)
		}
	}
	if err := names.Err(); err != nil {
		return nil, c.explain("list journals", err)
	}
	slices.Sort(services)
	return services, nil
}

// Append writes an entry and returns when it is on disk. After an error the entry may nevertheless have been written.
func (j *Journal) Append(ctx context.Context, e Entry) error {
	record, err := j.encode(e)
	if err != nil {
		return err
	}
	return j.explain(appending, j.entries.append(ctx, record, e.At))
}

// encode checks an entry and returns its stored form.
func (j *Journal) encode(e Entry) ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("append to the journal of service %q: %w", j.service, err)
	}
	e.Seq = 0
	record, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("append to the journal of service %q: %w", j.service, err)
	}
	return record, nil
}

func (j *Journal) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	return j.conn.explain(fmt.Sprintf("%s of service %q", doing, j.service), err)
}

// Read calls fn with the entries that are not older than since, in the order in which they were appended, up to the present end. If fn
// returns an error, Read stops and returns it. If there is no journal, the error wraps quell.ErrNoData. Entries that cannot be decoded are
// skipped and reported after the last one.
func (j *Journal) Read(ctx context.Context, since time.Time, fn func(Entry) error) error {
	return j.read(ctx, since, wholeEntry, fn)
}

// ReadBrief is Read, but decodes only what reports use of an entry: its time, kind, mode and outcome, and of a plan its weights, group,
// severities, capacities, predictions, causes and reasons. That takes a third of the processor time.
func (j *Journal) ReadBrief(ctx context.Context, since time.Time, fn func(Entry) error) error {
	return j.read(ctx, since, newBriefs().entry, fn)
}

func (j *Journal) read(ctx context.Context, since time.Time, decode func([]byte, *Entry) error, fn func(Entry) error) error {
	var damaged []error
	err := j.entries.read(ctx, since, 0, func(seq uint64, record []byte) error {
		var e Entry
		if err := decode(record, &e); err != nil {
			damaged = append(damaged, fmt.Errorf("entry %d: %w", seq, err))
			return nil
		}
		e.Seq = seq
		return fn(e)
	})
	return j.explain("read the journal", errors.Join(err, errors.Join(damaged...)))
}

// AppendSnapshot keeps a snapshot in memory. When there are enough snapshots, they are written together. If the process dies, snapshots
// that were not yet written are lost. Flush writes them at once.
func (j *Journal) AppendSnapshot(ctx context.Context, s quell.Snapshot) error {
	full, err := j.add(s)
	if err != nil || !full || !j.flush.TryLock() { // a reader writes them just now: the control loop does not wait for it
		return err
	}
	defer j.flush.Unlock()
	return j.write(ctx)
}

// add keeps a snapshot in memory and returns whether the snapshots should be written now.
func (j *Journal) add(s quell.Snapshot) (full bool, err error) {
	doing := fmt.Sprintf("journal a snapshot of service %q", j.service)
	line, err := json.Marshal(s)
	if err != nil {
		return false, fmt.Errorf("%s: %w", doing, err)
	}
	if len(line) > snapshotTooLarge {
		return false, fmt.Errorf("%s: %d bytes; at most %d can be kept", doing, len(line), snapshotTooLarge)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting.add(unwritten{append(line, '\n'), 1, s.At})
	if j.flushing && len(j.waiting.lines) < flushBytes {
		return false, nil // those that are being written come first
	}
	return j.waiting.number >= j.flushAt || len(j.waiting.lines) >= flushBytes, nil
}

func (u *unwritten) add(later unwritten) {
	u.lines, u.number = append(u.lines, later.lines...), u.number+later.number
	if later.newest.After(u.newest) {
		u.newest = later.newest
	}
}

// Flush writes the snapshots in memory and returns when they are on disk. If writing fails, it keeps them for another attempt, unless they
// have become too many.
func (j *Journal) Flush(ctx context.Context) error {
	j.flush.Lock()
	defer j.flush.Unlock()
	return j.write(ctx)
}

// write is Flush for a caller that holds j.flush.
func (j *Journal) write(ctx context.Context) error {
	u := j.take(true)
	var err error
	if u.number > 0 {
		err = j.explain(keepingSnapshots, j.snapshots.append(ctx, u.lines, u.newest))
	}
	return j.flushed(u, err)
}

// flushed puts snapshots that could not be written back before those that were added meanwhile.
func (j *Journal) flushed(u unwritten, err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flushing = false
	if err == nil {
		return nil
	}
	u.add(j.waiting)
	j.waiting = u
	if len(u.lines) > mostBuffered {
		err = fmt.Errorf("%w; gave up %d snapshots", err, u.number)
		j.waiting = unwritten{}
	}
	return err
}

// take returns the snapshots in memory and forgets them. It does not keep their buffer, which may have grown large.
func (j *Journal) take(flushing bool) (u unwritten) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flushing = j.flushing || flushing
	u, j.waiting = j.waiting, u
	return u
}

// ReadSnapshots calls fn with the snapshots that are not older than since, oldest first, including those in this journal's memory. It
// returns the same errors as Read.
func (j *Journal) ReadSnapshots(ctx context.Context, since time.Time, fn func(quell.Snapshot) error) error {
	return j.readSnapshots(ctx, since, wholeSnapshot, fn)
}

// ReadBriefSnapshots is ReadSnapshots, but decodes only what reports use: time, turn and, of each instance, state, health, weights, hold,
// rates, response times and utilisation.
func (j *Journal) ReadBriefSnapshots(ctx context.Context, since time.Time, fn func(quell.Snapshot) error) error {
	return j.readSnapshots(ctx, since, newBriefs().snapshot, fn)
}

func (j *Journal) readSnapshots(
	ctx context.Context, since time.Time, decode func([]byte, *quell.Snapshot) error, fn func(quell.Snapshot) error,
) error {
	if err := j.Flush(ctx); err != nil {
		return err
	}
	var damaged []error
	err := j.snapshots.read(ctx, since, 0, func(seq uint64, record []byte) error {
		return eachSnapshot(seq, record, since, &damaged, decode, fn)
	})
	return j.explain("read the snapshots", errors.Join(err, errors.Join(damaged...)))
}
