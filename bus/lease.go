package bus

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/quellhq/quell/bus/subjects"
)

// ErrLeaseLost says that a lease expired or was taken over: its holder must stop acting.
var ErrLeaseLost = errors.New("the lease was lost")

// HeldError says that another controller holds a service.
type HeldError struct {
	Service string
	Holder  string
	RetryIn time.Duration // when the lease can be taken over if its holder does not renew it
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("service %q is held by the controller %s; stop that one, or try again in %s", e.Service, e.Holder,
		e.RetryIn.Round(time.Second))
}

const (
	leaseBucket  = "quell_lease"
	renewals     = 3 // number within one time to live
	releaseWait  = 2 * time.Second
	shortestHold = time.Second
)

var (
	errLeaseFree    = errors.New("nobody holds it")
	errLeaseChanged = errors.New("somebody else wrote it")
)

// leaseStore keeps one record per service. write succeeds only if the stored revision is the one given; 0 means that
// there is no record.
type leaseStore interface {
	read(ctx context.Context, service string) (leaseRecord, error)
	write(ctx context.Context, service string, value []byte, revision uint64) (uint64, error)
	remove(ctx context.Context, service string, revision uint64) error
}

type leaseRecord struct {
	leaseValue
	revision uint64
}

type leaseValue struct {
	Holder string        `json:"holder"`
	ID     string        `json:"id"` // chosen when the lease is taken, so that a holder recognises its own
	TTL    time.Duration `json:"ttl_ns"`
}

// leaseSighting is a revision of a lease and when this process first saw that revision. If the revision has not changed for the lease's
// time to live, the lease has expired. The watching process measures that time with its own clock, so clocks need not agree.
type leaseSighting struct {
	revision uint64
	at       time.Time
}

// Lease is the right to control a service. It must be renewed, usually by Keep.
type Lease struct {
	store   leaseStore
	now     func() time.Time
	service string
	value   leaseValue

	renewing sync.Mutex // one exchange at a time
	mu       sync.Mutex // guards what follows
	revision uint64
	expires  time.Time // zero once lost or released
}

// Lease takes the lease of a service, or returns a *HeldError. The lease of a dead controller can be taken when it has been seen unchanged
// for its time to live, so a waiting controller must call Lease repeatedly. The same holder takes its own lease back at once, so holder
// must be unique to the installation or the process.
func (c *Conn) Lease(ctx context.Context, service, holder string, ttl time.Duration) (*Lease, error) {
	if _, err := subjects.Service(service); err != nil {
		return nil, err
	}
	if holder == "" || ttl < shortestHold {
		return nil, fmt.Errorf("lease of service %q: want a holder and at least %s", service, shortestHold)
	}
	ctx, cancel, err := c.bounded(ctx)
	if err != nil {
		return nil, fmt.Errorf("take the lease of service %q: %w", service, err)
	}
	defer cancel()
	l := &Lease{store: c.leases(), now: c.opts.Now, service: service, value: leaseValue{holder, rand.Text(), ttl}}
	err = l.take(ctx, c.sight)
	if held := new(HeldError); err != nil && !errors.As(err, &held) {
		err = c.explain(fmt.Sprintf("take the lease of service %q", service), err)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// sight returns when a revision was first seen.
func (c *Conn) sight(service string, revision uint64) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if seen, known := c.sightings[service]; known && seen.revision == revision {
		return seen.at
	}
	now := c.opts.Now()
	c.sightings[service] = leaseSighting{revision, now}
	return now
}

func (l *Lease) take(ctx context.Context, sight func(service string, revision uint64) time.Time) error {
	record, err := l.store.read(ctx, l.service)
	if err != nil && !errors.Is(err, errLeaseFree) {
		return err
	}
	if err == nil && record.Holder != l.value.Holder {
		left := record.TTL - l.now().Sub(sight(l.service, record.revision))
		if left > 0 {
			return &HeldError{Service: l.service, Holder: record.Holder, RetryIn: left}
		}
	}
	if err := l.write(ctx, record.revision); !errors.Is(err, errLeaseChanged) {
		return err
	}
	if record, err = l.store.read(ctx, l.service); err != nil {
		return err
	}
	sight(l.service, record.revision)
	return &HeldError{Service: l.service, Holder: record.Holder, RetryIn: record.TTL}
}

// write renews the time to live. The holder counts that time from before it sends the request, so that it stops before another controller
// may start.
func (l *Lease) write(ctx context.Context, revision uint64) error {
	value, err := json.Marshal(l.value)
	if err != nil {
		return err
	}
	asked := l.now()
	if revision, err = l.store.write(ctx, l.service, value, revision); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision, l.expires = revision, asked.Add(l.value.TTL)
	return nil
}

// Valid says whether the lease is held now.
func (l *Lease) Valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now().Before(l.expires)
}

// Renew extends the lease by its time to live. An error that wraps ErrLeaseLost is final. After any other error the lease
// is still held while Valid returns true.
func (l *Lease) Renew(ctx context.Context) error {
	l.renewing.Lock()
	defer l.renewing.Unlock()
	if !l.Valid() {
		return fmt.Errorf("renew service %q: %w", l.service, ErrLeaseLost)
	}
	ctx, cancel := context.WithTimeout(ctx, l.value.TTL/renewals)
	defer cancel()
	err := l.renew(ctx)
	if errors.Is(err, ErrLeaseLost) {
		l.end()
	}
	if err != nil {
		return fmt.Errorf("renew service %q: %w", l.service, err)
	}
	return nil
}

func (l *Lease) renew(ctx context.Context) error {
	err := l.write(ctx, l.held())
	if !errors.Is(err, errLeaseChanged) {
		return err
	}
	// An earlier renewal may have been written although its answer was lost.
	record, err := l.store.read(ctx, l.service)
	switch {
	case errors.Is(err, errLeaseFree):
		return l.claimed(l.write(ctx, 0))
	case err != nil:
		return err
	case record.ID != l.value.ID:
		return fmt.Errorf("%w to the controller %s", ErrLeaseLost, record.Holder)
	}
	return l.claimed(l.write(ctx, record.revision))
}

func (l *Lease) claimed(err error) error {
	if errors.Is(err, errLeaseChanged) {
		return fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	return err
}

func (l *Lease) held() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision
}

func (l *Lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expires = time.Time{}
}

// Release gives the lease up, so that another controller need not wait. Further calls do nothing.
func (l *Lease) Release(ctx context.Context) error {
	l.renewing.Lock()
	defer l.renewing.Unlock()
	if !l.Valid() {
		return nil
	}
	l.end()
	if err := l.store.remove(ctx, l.service, l.held()); err != nil {
		return fmt.Errorf("release service %q: %w", l.service, err)
	}
	return nil
}

// Keep renews the lease until ctx ends, then releases it and returns nil. If the lease is lost before that, it returns an
// error that wraps ErrLeaseLost.
func (l *Lease) Keep(ctx context.Context) error {
	tick := time.NewTicker(l.value.TTL / renewals / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
			defer cancel()
			return l.Release(ctx)
		case <-tick.C:
		}
		if err := l.Renew(ctx); errors.Is(err, ErrLeaseLost) {
			return err
		}
	}
}

// kvLeases keeps leases in the bus.
type kvLeases struct {
	c      *Conn
	kv     jetstream.KeyValue
	upkeep upkeep
}

func (s *kvLeases) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	if !s.c.Connected() {
		return nil, ErrNotConnected
	}
	if s.kv != nil && !s.upkeep.due(s.c.opts.Now()) {
		return s.kv, nil
	}
	err := s.c.replicate(ctx, &s.upkeep, func(ctx context.Context, replicas int) (err error) {
		s.kv, err = s.c.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: leaseBucket, Description: "which controller holds which service of Quell", History: 1,
			Storage: jetstream.FileStorage, Replicas: replicas,
		})
		return err
	})
	return s.kv, err
}

func (s *kvLeases) read(ctx context.Context, service string) (leaseRecord, error) {
	kv, err := s.bucket(ctx)
	if err != nil {
		return leaseRecord{}, err
	}
	var entry jetstream.KeyValueEntry
	err = s.c.insist(ctx, func(ctx context.Context) (err error) {
		entry, err = kv.Get(ctx, subjects.Escape(service))
		return err
	})
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return leaseRecord{}, errLeaseFree
	}
	if err != nil {
		return leaseRecord{}, err
	}
	record := leaseRecord{revision: entry.Revision()}
	if err := json.Unmarshal(entry.Value(), &record.leaseValue); err != nil {
		return leaseRecord{}, fmt.Errorf("decode the lease of service %q: %w", service, err)
	}
	return record, nil
}

func (s *kvLeases) write(ctx context.Context, service string, value []byte, revision uint64) (uint64, error) {
	kv, err := s.bucket(ctx)
	if err != nil {
		return 0, err
	}
	var written uint64
	lost := false // an answer was lost: the write may have been done
	err = s.c.insist(ctx, func(ctx context.Context) (err error) {
		if revision == 0 {
			written, err = kv.Create(ctx, subjects.Escape(service), value)
		} else {
			written, err = kv.Update(ctx, subjects.Escape(service), value, revision)
		}
		lost = lost || errors.Is(err, context.DeadlineExceeded)
		return err
	})
	if !changed(err) {
		return written, err
	}
	if lost {
		if entry, err := kv.Get(ctx, subjects.Escape(service)); err == nil && bytes.Equal(entry.Value(), value) {
			return entry.Revision(), nil
		}
	}
	return 0, errLeaseChanged
}

func (s *kvLeases) remove(ctx context.Context, service string, revision uint64) error {
	kv, err := s.bucket(ctx)
	if err != nil {
		return err
	}
	err = s.c.insist(ctx, func(ctx context.Context) error {
		return kv.Delete(ctx, subjects.Escape(service), jetstream.LastRevision(revision))
	})
	if changed(err) {
		return nil
	}
	return err
}

// changed returns whether a write failed because the stored revision was not the expected one.
func changed(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) || errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
