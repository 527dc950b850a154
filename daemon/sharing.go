package daemon

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/share"
)

// shareEvery is how often what services cost is stored.
const shareEvery = time.Minute

// sharing divides the use of machines among the services of one controller. What was learned is kept in a file over restarts; if it is
// lost, learning begins again.
type sharing struct {
	mu     sync.Mutex
	ledger *share.Ledger
	path   string
	saved  time.Time
	log    *slog.Logger
}

func openSharing(data string, log *slog.Logger) *sharing {
	s := &sharing{ledger: &share.Ledger{}, path: filepath.Join(data, "shared.json"), saved: time.Now(), log: log}
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s
	}
	var known *share.Ledger
	if err == nil {
		known, err = share.Decode(text)
	}
	if err != nil {
		log.Warn("what requests of each service cost is lost, and is learned again", "file", s.path, "error", err)
		return s
	}
	s.ledger = known
	return s
}

// Enter implements controller.Shared.
func (s *sharing) Enter(snapshot *quell.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.Enter(snapshot)
	if time.Since(s.saved) >= shareEvery {
		s.save()
	}
}

// forget drops a service that no longer runs here.
func (s *sharing) forget(service string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.Forget(service)
}

// close stores what was learned.
func (s *sharing) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.save()
	return nil
}

// save stores what was learned. If that fails, only a restart notices.
func (s *sharing) save() {
	s.saved = time.Now()
	text, err := s.ledger.Encode()
	if err == nil {
		err = atomicfile.Write(s.path, text, 0o600)
	}
	if err != nil {
		s.log.Warn("storing what requests of each service cost failed", "error", err)
	}
}
