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

// ErrStoreClosed says that the embedded bus cannot write its store at present. It opens the store again by itself.
var ErrStoreClosed = errors.New("the store of the embedded bus cannot be written; it is opened again once its disk has space")

// reopenEvery is how often a store that failed is looked at.
const reopenEvery = time.Second

// storeHealth says whether the store of an embedded bus can be written. It fails as on a full disk: NATS then closes it. It is opened
// again once there is space, with what is on the disk.
type storeHealth struct {
	opening sync.Mutex // held while the store is opened anew

	mu     sync.Mutex      // guards what follows; NATS reports failures while it opens
	failed context.Context // ends when the store fails; a new one for each time that it was opened
	fail   context.CancelCauseFunc
	opens  bool // somebody looks after it
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

// storeFailed notes that the store cannot be written, and looks after it until it can.
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

// Failed is closed when the store can no longer be written, as on a full disk. Once it is open again there is another channel.
func (s *Server) Failed() <-chan struct{} { return s.store.now().Done() }

// Err says why the store cannot be written; nil while it can.
func (s *Server) Err() error { return context.Cause(s.store.now()) }

// Reopen closes the store and opens what is in its folder now, as after somebody emptied that. What was not yet written is lost; nil means
// that it is open.
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
		err := s.Reopen()
		if err == nil {
			s.log.Info("the store of the bus is open again", "store", s.dir)
			return
		}
		s.log.Debug("the store of the bus stays closed", "store", s.dir, "error", err)
	}
}

// openStore opens the store anew where its folder can be written; the caller holds the lock.
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
		return err
	}
	s.store.renew()
	return nil
}

// renew tries whether the folder can be written. One that was emptied gets a new lock.
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

// Reopen opens the store of the embedded bus anew, as after its folder was emptied; on an external bus there is nothing to do.
func (c *Conn) Reopen() error {
	if c.opts.Server == nil {
		return nil
	}
	return c.opts.Server.Reopen()
}
