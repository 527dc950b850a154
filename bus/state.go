package bus

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/pack"
	"github.com/quellhq/quell/bus/subjects"
)

// A value that fits in one message is stored whole under its key. A larger value is stored as chunks in one of two slots, which are used in
// turn, and the key names the slot. So a reader gets either the old value or the new one. If a writer dies half way, the old value stays in
// force.
const slots = 2

// readAttempts is how often Get starts again when a writer replaces the value meanwhile.
const readAttempts = 5

var errOvertaken = errors.New("the value changed while it was read")

// State keeps values of one service, such as its policy's memory. One process at a time may write.
type State struct {
	conn    *Conn
	service string
	bucket  string

	mu     sync.Mutex // held by Put
	kv     jetstream.KeyValue
	upkeep upkeep
	sole   bool // refuse to replace a value that another writer has put since this one read it

	cached sync.Mutex // guards heads
	heads  map[string]stateHead
}

// errOverwritten says that another writer replaced the value since this one wrote or read it.
var errOverwritten = errors.New("another controller has written it since")

// last returns what this process last read or wrote under a key.
func (s *State) last(name string) (stateHead, bool) {
	s.cached.Lock()
	defer s.cached.Unlock()
	head, ok := s.heads[name]
	return head, ok
}

func (s *State) lastID(key string) string {
	head, _ := s.last(subjects.Escape(key))
	return head.ID
}

func (s *State) remember(name string, head stateHead) {
	head.whole = nil
	s.cached.Lock()
	defer s.cached.Unlock()
	s.heads[name] = head
}

func (s *State) forget(name string) {
	s.cached.Lock()
	defer s.cached.Unlock()
	delete(s.heads, name)
}

// State returns the store of a service's values. The first Put creates it.
func (c *Conn) State(service string) (*State, error) {
	svc, err := subjects.Service(service)
	if err != nil {
		return nil, err
	}
	return &State{conn: c, service: service, bucket: "quell_state_" + svc, heads: map[string]stateHead{}}, nil
}

// stateHead is the first line stored under a key. A value without chunks follows it.
type stateHead struct {
	ID     string `json:"id"` // prefix of every chunk's name
	Slot   int    `json:"slot"`
	Chunks int    `json:"chunks"`

	whole    []byte // the value that follows
	revision uint64
}

// Put stores a value of at most 64 MiB and returns when it is on disk.
func (s *State) Put(ctx context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	doing := fmt.Sprintf("keep state %q of service %q", key, s.service)
	name, err := subjects.Token("state key", key, subjects.MaxInstance)
	if err != nil {
		return err
	}
	packed, err := s.conn.packer.Pack(value)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	ctx, cancel, err := s.conn.request(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	defer cancel()
	err = s.put(ctx, name, packed)
	for i := 1; i < readAttempts && errors.Is(err, errOverwritten) && !s.sole; i++ {
		err = s.put(ctx, name, packed)
	}
	if err != nil {
		s.kv = nil
		return s.conn.explain(doing, err)
	}
	return nil
}

func (s *State) put(ctx context.Context, name string, packed []byte) error {
	kv, err := s.create(ctx)
	if err != nil {
		return err
	}
	old, known := s.last(name)
	if !known {
		if old, err = s.readHead(ctx, kv, name); err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
			return err
		}
	}
	head := stateHead{ID: rand.Text(), Slot: (old.Slot + 1) % slots}
	if len(packed) <= s.conn.chunkSize() {
		head.Slot = old.Slot
		return s.writeHead(ctx, kv, name, head, packed, old.revision)
	}
	chunks := pack.Split(packed, s.conn.chunkSize())
	for i, chunk := range chunks {
		if err := s.write(ctx, kv, chunkKey(name, head.Slot, i), append([]byte(head.ID), chunk...)); err != nil {
			return err
		}
	}
	head.Chunks = len(chunks)
	return s.writeHead(ctx, kv, name, head, nil, old.revision)
}

func (s *State) create(ctx context.Context) (jetstream.KeyValue, error) {
	if s.kv != nil && !s.upkeep.due(s.conn.opts.Now()) {
		return s.kv, nil
	}
	err := s.conn.replicate(ctx, &s.upkeep, func(ctx context.Context, replicas int) (err error) {
		s.kv, err = s.conn.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: s.bucket, Description: "what Quell remembers of service " + s.service,
			History: 1, Storage: jetstream.FileStorage, Replicas: replicas,
		})
		return err
	})
	return s.kv, err
}

func (s *State) writeHead(ctx context.Context, kv jetstream.KeyValue, name string, head stateHead, whole []byte, revision uint64) error {
	line, err := json.Marshal(head)
	if err != nil {
		return err
	}
	return s.replaceHead(ctx, kv, name, head, append(append(line, '\n'), whole...), revision)
}

// replaceHead writes under a key only if nobody else has written there since revision was read. Otherwise a delayed request of a controller
// that lost its lease could overwrite its successor's value.
func (s *State) replaceHead(ctx context.Context, kv jetstream.KeyValue, name string, head stateHead, value []byte, revision uint64) error {
	err := s.conn.insist(ctx, func(ctx context.Context) (err error) {
		if revision == 0 {
			head.revision, err = kv.Create(ctx, name, value)
		} else {
			head.revision, err = kv.Update(ctx, name, value, revision)
		}
		return err
	})
	if changed(err) {
		found, readErr := s.readHead(ctx, kv, name)
		switch {
		case readErr == nil && found.ID == head.ID: // the answer was lost, but the value was written
			head, err = found, nil
		case readErr == nil || errors.Is(readErr, jetstream.ErrKeyNotFound):
			err = errOverwritten
		}
	}
	if err != nil {
		s.forget(name)
		return err
	}
	s.remember(name, head)
	return nil
}

func (s *State) write(ctx context.Context, kv jetstream.KeyValue, name string, value []byte) error {
	return s.conn.insist(ctx, func(ctx context.Context) error {
		_, err := kv.Put(ctx, name, value)
		return err
	})
}

func (s *State) readHead(ctx context.Context, kv jetstream.KeyValue, name string) (head stateHead, err error) {
	entry, err := s.entry(ctx, kv, name)
	if err != nil {
		return head, err
	}
	line, whole, _ := bytes.Cut(entry.Value(), []byte{'\n'})
	if err := json.Unmarshal(line, &head); err != nil {
		return head, fmt.Errorf("read what is kept under %s: %w", name, err)
	}
	head.whole, head.revision = whole, entry.Revision()
	return head, nil
}

func (s *State) entry(ctx context.Context, kv jetstream.KeyValue, name string) (entry jetstream.KeyValueEntry, err error) {
	err = s.conn.insist(ctx, func(ctx context.Context) (err error) {
		entry, err = kv.Get(ctx, name)
		return err
	})
	return entry, err
}

func chunkKey(name string, slot, index int) string {
	return name + "." + strconv.Itoa(slot) + "." + strconv.Itoa(index)
}

// Get returns the value that was put last under key. If there is none, the error wraps quell.ErrNoData.
func (s *State) Get(ctx context.Context, key string) ([]byte, error) {
	value, _, err := s.fetch(ctx, key)
	return value, err
}

// fetch also returns the id of the Put that wrote the value.
func (s *State) fetch(ctx context.Context, key string) (value []byte, id string, err error) {
	doing := fmt.Sprintf("read state %q of service %q", key, s.service)
	name, err := subjects.Token("state key", key, subjects.MaxInstance)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel, err := s.conn.request(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", doing, err)
	}
	defer cancel()
	packed, id, err := s.get(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, "", fmt.Errorf("%s: %w", doing, quell.ErrNoData)
	}
	if err != nil {
		return nil, "", s.conn.explain(doing, err)
	}
	if value, err = s.conn.packer.Unpack(packed); err != nil {
		return nil, "", fmt.Errorf("%s: %w", doing, err)
	}
	return value, id, nil
}

func (s *State) get(ctx context.Context, name string) (packed []byte, id string, err error) {
	var kv jetstream.KeyValue
	err = s.conn.insist(ctx, func(ctx context.Context) (err error) {
		kv, err = s.conn.js.KeyValue(ctx, s.bucket)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	for range readAttempts {
		if packed, id, err = s.readValue(ctx, kv, name); !errors.Is(err, errOvertaken) {
			return packed, id, err
		}
	}
	return nil, "", err
}

func (s *State) readValue(ctx context.Context, kv jetstream.KeyValue, name string) (packed []byte, id string, err error) {
	head, err := s.readHead(ctx, kv, name)
	if err != nil {
		return nil, "", err
	}
	packed = head.whole
	for i := range head.Chunks {
		entry, err := s.entry(ctx, kv, chunkKey(name, head.Slot, i))
		if err != nil {
			return nil, "", fmt.Errorf("chunk %d of %d: %w", i+1, head.Chunks, noKey(err))
		}
		chunk, ours := bytes.CutPrefix(entry.Value(), []byte(head.ID))
		if !ours {
			return nil, "", errOvertaken
		}
		packed = append(packed, chunk...)
	}
	s.remember(name, head)
	return packed, head.ID, nil
}

// noKey translates an error of reading a chunk. "Not found" would mean that no value was ever put, but a missing chunk means damage, so
// noKey returns another error.
func noKey(err error) error {
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return errors.New("it is missing")
	}
	return err
}
