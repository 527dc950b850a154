package bus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ErrStoreClosed says that the embedded bus cannot write its store at present. The bus reopens the store by itself.
var ErrStoreClosed = errors.New("the store of the embedded bus cannot be written; it is opened again once its disk has space")

// reopenEvery is how often a failed store is checked.
const reopenEvery = time.Second

// storeHealth tracks whether the store of an embedded bus can be written. When the disk is full, NATS closes the store. When there is space
// again, the store is reopened with the data on the disk.
type storeHealth struct {
	opening sync.Mutex // held while the store is reopened

	mu     sync.Mutex      // guards what follows; NATS may report failures while it opens the store
	failed context.Context // ends when the store fails; a new one after each reopening
	fail   context.CancelCauseFunc
	opens  bool // a goroutine is trying to reopen it
}

func (h *storeHealth) renew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed, h.fail = context.WithCancelCause(context.Background())
	h.opens = false
}

func (h *storeHealth) now() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// storeFailed marks the store as failed and tries to reopen it until that works.
func (s *Server) storeFailed(err error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.fail(fmt.Errorf("%w: %w", ErrStoreClosed, err))
	if s.store.opens || s.ended.Err() != nil {
		return
	}
	s.store.opens = true
	s.log.Error("the bus goes on without its store: nothing new survives a restart", "store", s.dir, "error", err)
	s.work.Go(s.reopen)
}

// Failed returns a channel that is closed when the store can no longer be written, for example because the disk is full. When the store has
// been reopened, Failed returns a new channel.
func (s *Server) Failed() <-chan struct{} { return s.store.now().Done() }

// Err returns why the store cannot be written; nil if it can.
func (s *Server) Err() error { return context.Cause(s.store.now()) }

// Reopen closes the store and opens what is in its folder now, for example after somebody emptied the folder. Data that was not yet written
// is lost. If it returns nil, the store is open.
func (s *Server) Reopen() error {
	s.store.opening.Lock()
	defer s.store.opening.Unlock()
	return s.openStore()
}

func (s *Server) reopen() {
	for {
		select {
		case <-s.ended.Done():
			return
		case <-time.After(reopenEvery):
		}
		s.store.opening.Lock()
		err := s.Err()
		if err != nil { // nobody has opened it meanwhile
			err = s.openStore()
		}
		s.store.opening.Unlock()
		if err == nil {
			s.log.Info("the store of the bus is open again", "store", s.dir)
			return
		}
		s.log.Debug("the store of the bus stays closed", "store", s.dir, "error", err)
	}
}

// openStore reopens the store if its folder can be written. The caller holds the lock.
func (s *Server) openStore() error {
	if s.ended.Err() != nil {
		return errors.New("the bus has ended")
	}
	if err := s.lock.renew(s.dir); err != nil {
		return err
	}
	if err := s.nats.ShutdownJetStream(); err != nil {
		return err
	}
	if err := s.nats.EnableJetStream(&server.JetStreamConfig{
		StoreDir: s.dir, SyncAlways: true, Strict: true, MaxMemory: maxMemory, MaxStore: maxStore, CompressOK: true,
	}); err != nil {
		s.storeFailed(err) // it is shut now, and nobody else may open it again
		return err
	}
	s.store.renew()
	return nil
}

// renew checks whether the folder can be written. If the folder was emptied, it makes a new lock file.
func (l *dirLock) renew(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the bus store %s: %w", dir, err)
	}
	mine, err := l.file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(l.file.Name())
	if err == nil && os.SameFile(mine, there) {
		return tryWrite(l.file)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next, err := lockDir(dir)
	if err != nil {
		return err
	}
	old := l.file
	l.file = next.file
	return old.Close()
}

// Reopen reopens the store of the embedded bus, for example after its folder was emptied. It does nothing on an external bus.
func (c *Conn) Reopen() error {
	if c.opts.Server == nil {
		return nil
	}
	return c.opts.Server.Reopen()
}
