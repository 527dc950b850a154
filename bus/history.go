package bus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/bus/subjects"
	"github.com/quellhq/quell/internal/strictjson"
)

// Users read a journal by asking the controller for pages of it, because only controllers can reach the streams.

// History is a journal as users read it.
type History struct {
	conn    *Conn
	service string
}

// History returns the journal of a service, to be read through its controller.
func (c *Conn) History(service string) *History { return &History{c, service} }

type historyQuery struct {
	Since     time.Time `json:"since"`
	After     uint64    `json:"after"` // the last record that the reader has
	Snapshots bool      `json:"snapshots,omitempty"`
}

type historyPage struct {
	Records []historyRecord `json:"records"`
	More    bool            `json:"more,omitempty"`
	None    bool            `json:"none,omitempty"`    // there is no journal
	Damaged string          `json:"damaged,omitempty"` // the part that could not be read
}

type historyRecord struct {
	Seq  uint64 `json:"seq"`
	Data []byte `json:"data"`
}

// pageBytes is the approximate size of a page.
const pageBytes = 4 << 20

var errPageFull = errors.New("the page is full")

func historySubject(service string) (string, error) {
	s, err := subjects.Service(service)
	return "quell." + s + ".history", err
}

// ServeHistory answers those who read the journal, until stop.
func (c *Conn) ServeHistory(j *Journal) (stop func(), err error) {
	subject, err := historySubject(j.service)
	if err != nil {
		return nil, err
	}
	reply := func(ctx context.Context, m *nats.Msg) Reply { return historyReply(ctx, j, m.Data) }
	return serveRoles(c, "a reader of the journal", reply, subject)
}

func historyReply(ctx context.Context, j *Journal, data []byte) Reply {
	var q historyQuery
	if len(data) > maxCommand {
		return Reply{Error: "the question is too long"}
	}
	if err := strictjson.Decode(data, &q); err != nil {
		return Reply{Error: err.Error()}
	}
	page, err := j.page(ctx, q)
	if err != nil {
		return Reply{Error: err.Error()}
	}
	body, err := json.Marshal(page)
	if err != nil {
		return Reply{Error: err.Error()}
	}
	return Reply{Body: body}
}

// page reads as many whole records as fit in a page, but at least one.
func (j *Journal) page(ctx context.Context, q historyQuery) (page historyPage, err error) {
	records := j.entries
	if q.Snapshots {
		records = j.snapshots
		if err := j.Flush(ctx); err != nil {
			return page, err
		}
	}
	size := 0
	err = records.read(ctx, q.Since, q.After, func(seq uint64, record []byte) error {
		if size > 0 && size+len(record) > pageBytes {
			return errPageFull
		}
		size += len(record)
		page.Records = append(page.Records, historyRecord{seq, record})
		return nil
	})
	switch {
	case errors.Is(err, errPageFull):
		page.More = true
	case errors.Is(err, quell.ErrNoData):
		page.None = true
	case err != nil && len(page.Records) == 0:
		return page, j.explain("read the journal", err)
	case err != nil:
		page.Damaged = err.Error()
	}
	return page, nil
}

// Read calls fn with the entries that are not older than since; see Journal.Read.
func (h *History) Read(ctx context.Context, since time.Time, fn func(Entry) error) error {
	return h.read(ctx, since, wholeEntry, fn)
}

// ReadBrief is Read of what reports use; see Journal.ReadBrief.
func (h *History) ReadBrief(ctx context.Context, since time.Time, fn func(Entry) error) error {
	return h.read(ctx, since, newBriefs().entry, fn)
}

func (h *History) read(ctx context.Context, since time.Time, decode func([]byte, *Entry) error, fn func(Entry) error) error {
	var damaged []error
	err := h.pages(ctx, historyQuery{Since: since}, func(r historyRecord) error {
		var e Entry
		if err := decode(r.Data, &e); err != nil {
			damaged = append(damaged, fmt.Errorf("entry %d: %w", r.Seq, err))
			return nil
		}
		e.Seq = r.Seq
		return fn(e)
	})
	if h.direct(err) {
		return h.journal(func(j *Journal) error { return j.read(ctx, since, decode, fn) })
	}
	return errors.Join(err, errors.Join(damaged...))
}

// ReadSnapshots calls fn with the snapshots that are not older than since; see Journal.ReadSnapshots.
func (h *History) ReadSnapshots(ctx context.Context, since time.Time, fn func(quell.Snapshot) error) error {
	return h.readSnapshots(ctx, since, wholeSnapshot, fn)
}

// ReadBriefSnapshots is ReadSnapshots of what reports use; see Journal.ReadBrief.
func (h *History) ReadBriefSnapshots(ctx context.Context, since time.Time, fn func(quell.Snapshot) error) error {
	return h.readSnapshots(ctx, since, newBriefs().snapshot, fn)
}

func (h *History) readSnapshots(
	ctx context.Context, since time.Time, decode func([]byte, *quell.Snapshot) error, fn func(quell.Snapshot) error,
) error {
	var damaged []error
	err := h.pages(ctx, historyQuery{Since: since, Snapshots: true}, func(r historyRecord) error {
		return eachSnapshot(r.Seq, r.Data, since, &damaged, decode, fn)
	})
	if h.direct(err) {
		return h.journal(func(j *Journal) error { return j.readSnapshots(ctx, since, decode, fn) })
	}
	return errors.Join(err, errors.Join(damaged...))
}

// direct returns whether a journal can be read even if no controller answers. It can only be read so on an external bus, with a
// credential that allows it.
func (h *History) direct(err error) bool {
	role := h.conn.grant().Role
	return errors.Is(err, errNoController) && h.conn.Connected() && (role == "" || role == auth.Controller)
}

func (h *History) journal(read func(*Journal) error) error {
	j, err := h.conn.Journal(h.service, JournalOptions{})
	if err != nil {
		return err
	}
	return read(j)
}

func (h *History) pages(ctx context.Context, q historyQuery, fn func(historyRecord) error) error {
	var damaged error
	for {
		page, err := h.ask(ctx, q)
		if err != nil {
			return err
		}
		if page.None {
			return fmt.Errorf("read the journal of service %q: %w", h.service, quell.ErrNoData)
		}
		for _, r := range page.Records {
			if err := fn(r); err != nil {
				return err
			}
			q.After = r.Seq
		}
		if page.Damaged != "" {
			damaged = errors.New(page.Damaged)
		}
		if !page.More {
			return damaged
		}
	}
}

func (h *History) ask(ctx context.Context, q historyQuery) (page historyPage, err error) {
	subject, err := historySubject(h.service)
	if err != nil {
		return page, err
	}
	if subject, err = h.conn.ownSubject(subject, h.service, "the journal"); err != nil {
		return page, err
	}
	data, err := json.Marshal(q)
	if err != nil {
		return page, err
	}
	reply, err := h.conn.put(ctx, h.service, subject, data)
	if err == nil && reply.Error != "" {
		err = errors.New(reply.Error)
	}
	if err != nil {
		return page, fmt.Errorf("read the journal of service %q: %w", h.service, err)
	}
	if err := json.Unmarshal(reply.Body, &page); err != nil {
		return page, fmt.Errorf("decode a page of the journal: %w", err)
	}
	return page, nil
}

// eachSnapshot calls fn with the snapshots of a record. They are decoded side by side, because decoding takes most of the time.
func eachSnapshot(
	seq uint64, record []byte, since time.Time, damaged *[]error, decode func([]byte, *quell.Snapshot) error, fn func(quell.Snapshot) error,
) error {
	lines := slices.Collect(bytes.Lines(record))
	snapshots, errs := make([]quell.Snapshot, len(lines)), make([]error, len(lines))
	workers := min(runtime.GOMAXPROCS(0), len(lines))
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < len(lines); i += workers {
				errs[i] = decode(lines[i], &snapshots[i])
			}
		})
	}
	all.Wait()
	for i := range snapshots {
		if errs[i] != nil {
			*damaged = append(*damaged, fmt.Errorf("snapshot in record %d: %w", seq, errs[i]))
			continue
		}
		if snapshots[i].At.Before(since) {
			continue
		}
		if err := fn(snapshots[i]); err != nil {
			return err
		}
	}
	return nil
}
