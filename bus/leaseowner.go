package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell/bus/subjects"
)

// An embedded bus keeps its leases in the memory of its process. The bus ends with the controller that runs it, and a full disk cannot
// cost anybody a lease. Other controllers that use such a bus ask its process over plain NATS. An external bus does not answer there;
// its leases are kept in its store.
//
//	quell.<service>.lease   a leaseRequest, answered by a leaseAnswer

type ownLeases struct {
	mu      sync.Mutex
	newest  uint64
	records map[string]storedLease // by service
}

type storedLease struct {
	value    []byte
	revision uint64
}

func newOwnLeases() *ownLeases { return &ownLeases{records: map[string]storedLease{}} }

func (m *ownLeases) read(_ context.Context, service string) (leaseRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, ok := m.records[service]
	if !ok {
		return leaseRecord{}, errLeaseFree
	}
	return decodeLease(service, stored)
}

func decodeLease(service string, s storedLease) (leaseRecord, error) {
	record := leaseRecord{revision: s.revision}
	if err := json.Unmarshal(s.value, &record.leaseValue); err != nil {
		return leaseRecord{}, fmt.Errorf("decode the lease of service %q: %w", service, err)
	}
	return record, nil
}

func (m *ownLeases) write(_ context.Context, service string, value []byte, revision uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records[service].revision != revision {
		return 0, errLeaseChanged
	}
	m.newest++
	m.records[service] = storedLease{value, m.newest}
	return m.newest, nil
}

func (m *ownLeases) remove(_ context.Context, service string, revision uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records[service].revision == revision {
		delete(m.records, service)
	}
	return nil
}

// leaseRequest asks for a lease. If it has a value, it writes the lease, provided that the revision matches. If Remove is set, it removes
// the lease.
type leaseRequest struct {
	Value    json.RawMessage `json:"value,omitempty"`
	Revision uint64          `json:"revision,omitempty"`
	Remove   bool            `json:"remove,omitempty"`
}

// leaseAnswer holds the present record, or the one just written. Revision is 0 if nobody holds the lease.
type leaseAnswer struct {
	Value    json.RawMessage `json:"value,omitempty"`
	Revision uint64          `json:"revision,omitempty"`
	Changed  bool            `json:"changed,omitempty"` // somebody else wrote it in between: nothing was done
	Error    string          `json:"error,omitempty"`
}

func leaseSubject(service string) (string, error) {
	s, err := subjects.Service(service)
	return "quell." + s + ".lease", err
}

// serveLeases answers other controllers until the connection ends.
func (c *Conn) serveLeases(leases *ownLeases) error {
	_, err := c.nc.QueueSubscribe("quell.*.lease", "leases", func(m *nats.Msg) {
		answer := answerLease(leases, m)
		data, err := json.Marshal(answer)
		if err == nil {
			err = m.Respond(data)
		}
		if err != nil {
			c.log.Warn("answer for a lease", "error", err)
		}
	})
	return err
}

func answerLease(leases *ownLeases, m *nats.Msg) leaseAnswer {
	const before, after = len("quell."), len(".lease")
	service, err := subjects.Unescape(m.Subject[before : len(m.Subject)-after])
	var asked leaseRequest
	if err == nil {
		err = json.Unmarshal(m.Data, &asked)
	}
	if err != nil {
		return leaseAnswer{Error: err.Error()}
	}
	ctx := context.Background()
	switch {
	case asked.Remove:
		_ = leases.remove(ctx, service, asked.Revision) // it cannot fail
		return leaseAnswer{}
	case asked.Value != nil:
		if err := new(leaseRecord).check(asked.Value); err != nil {
			return leaseAnswer{Error: err.Error()}
		}
		revision, err := leases.write(ctx, service, asked.Value, asked.Revision)
		return leaseAnswer{Revision: revision, Changed: errors.Is(err, errLeaseChanged)}
	}
	leases.mu.Lock()
	defer leases.mu.Unlock()
	stored := leases.records[service]
	return leaseAnswer{Value: stored.value, Revision: stored.revision}
}

// check returns what is wrong with a lease to be written.
func (r *leaseRecord) check(value []byte) error {
	if err := json.Unmarshal(value, &r.leaseValue); err != nil {
		return fmt.Errorf("a lease that cannot be decoded: %w", err)
	}
	if r.Holder == "" || r.ID == "" || r.TTL < shortestHold {
		return fmt.Errorf("a lease wants a holder, an id and at least %s", shortestHold)
	}
	return nil
}

// askedLeases are the leases of a bus that another controller runs, or of an external bus.
type askedLeases struct {
	c        *Conn
	external *kvLeases
}

// ask sends a request about a lease. On an external bus it fails with nats.ErrNoResponders.
func (s askedLeases) ask(ctx context.Context, service string, r leaseRequest) (a leaseAnswer, err error) {
	if !s.c.Connected() {
		return a, ErrNotConnected
	}
	subject, err := leaseSubject(service)
	if err != nil {
		return a, err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, attempt) // the server may not answer
	defer cancel()
	reply, err := s.c.nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		return a, fmt.Errorf("decode the answer for the lease of service %q: %w", service, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("the controller that runs the bus refuses: %s", a.Error)
	}
	return a, nil
}

func (s askedLeases) read(ctx context.Context, service string) (leaseRecord, error) {
	a, err := s.ask(ctx, service, leaseRequest{})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return s.external.read(ctx, service)
	case err != nil:
		return leaseRecord{}, err
	case a.Revision == 0:
		return leaseRecord{}, errLeaseFree
	}
	return decodeLease(service, storedLease{a.Value, a.Revision})
}

func (s askedLeases) write(ctx context.Context, service string, value []byte, revision uint64) (uint64, error) {
	a, err := s.ask(ctx, service, leaseRequest{Value: value, Revision: revision})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return s.external.write(ctx, service, value, revision)
	case err != nil:
		return 0, err
	case a.Changed:
		return 0, errLeaseChanged
	}
	return a.Revision, nil
}

func (s askedLeases) remove(ctx context.Context, service string, revision uint64) error {
	_, err := s.ask(ctx, service, leaseRequest{Revision: revision, Remove: true})
	if errors.Is(err, nats.ErrNoResponders) {
		return s.external.remove(ctx, service, revision)
	}
	return err
}

// leases returns where this connection's leases are kept.
func (c *Conn) leases() leaseStore {
	if c.opts.Server != nil {
		return c.opts.Server.leases
	}
	return askedLeases{c, &kvLeases{c: c}}
}
