package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/connlimit"
	"github.com/quellhq/quell/internal/lockfile"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
)

// longestSocket is the longest path of a Unix socket that the kernel accepts, in bytes.
const longestSocket = 107

// Home is the folder of a host policy's journal, memory and socket. Only one agent at a time may use it. It stays open when the agent
// reloads its configuration.
type Home struct {
	dir     string
	release func() error
	journal *journal
	server  *http.Server
	shown   atomic.Pointer[Status]
}

// socketIn returns the path of the socket in a folder.
func socketIn(dir string) string { return filepath.Join(dir, "agent.sock") }

// Open locks a folder, creating it if it is missing, and answers on its socket. If another agent uses the folder, the error is a
// *quell.UserError.
func Open(dir string, log *slog.Logger) (*Home, error) {
	if path := socketIn(dir); len(path) > longestSocket {
		return nil, &quell.UserError{Err: fmt.Errorf("data: the path of the socket %s is longer than %d bytes: choose a shorter folder", path,
			longestSocket)}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of agent.policy: %w", err)
	}
	release, err := lockfile.Take(filepath.Join(dir, "lock"), 0o600)
	if errors.Is(err, lockfile.ErrHeld) {
		return nil, &quell.UserError{Err: fmt.Errorf("data: another agent runs a policy in %s: give each agent of a machine a folder of its own",
			dir)}
	}
	if err != nil {
		return nil, fmt.Errorf("taking the folder of agent.policy: %w", err)
	}
	h := &Home{dir: dir, release: release, journal: journalOf(dir)}
	if err := h.listen(log); err != nil {
		return nil, errors.Join(err, release())
	}
	return h, nil
}

// listen answers requests for the status. It removes an old socket file: this agent has the lock, so the file was left by an agent that was
// killed.
func (h *Home) listen(log *slog.Logger) error {
	path := socketIn(h.dir)
	if err := atomicfile.Remove(path); err != nil {
		return fmt.Errorf("removing the agent's old socket: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("opening the agent's socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		data, err := json.Marshal(h.Status())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data)
	})
	h.server = connlimit.Guard(&http.Server{Handler: mux, ErrorLog: outage.ErrorLog(log)})
	go func() {
		if err := connlimit.Serve(h.server, listener, log); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the agent's socket failed", "error", err)
		}
	}()
	return nil
}

// Close unlocks the folder. No loop may use it afterwards.
func (h *Home) Close() error {
	return errors.Join(h.server.Close(), h.journal.close(), h.release())
}

// Status returns the status that was published last.
func (h *Home) Status() Status {
	if s := h.shown.Load(); s != nil {
		return *s
	}
	return Status{}
}

// Clear removes the published status, because no policy runs.
func (h *Home) Clear() { h.shown.Store(nil) }

// Ask requests the status from the agent that uses a folder.
func Ask(ctx context.Context, dir string) (json.RawMessage, error) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socketIn(dir))
		}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/status", nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("the agent at %s did not answer within %v: it is stopped, or the machine is overloaded", socketIn(dir), patience)
	}
	if err != nil {
		return nil, fmt.Errorf("no agent with a policy answers at %s: start quell agent with agent.policy, or run this as the agent's user: %w",
			socketIn(dir), err)
	}
	defer answer.Body.Close()
	var body json.RawMessage
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil || answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking the agent at %s: status %d: %w", socketIn(dir), answer.StatusCode, err)
	}
	return body, nil
}

func (h *Home) memory() string { return filepath.Join(h.dir, "memory.json") }

// remember returns the stored memory. It is empty if there is none, and returned with an error if it cannot be read.
func (h *Home) remember() (st policy.State, err error) {
	data, err := os.ReadFile(h.memory())
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &st)
	}
	if err == nil {
		err = table.All.Restore(&st)
	}
	if err != nil {
		return policy.State{}, fmt.Errorf("the memory in %s cannot be read, and is begun anew: %w", h.memory(), err)
	}
	return st, nil
}

// keep replaces the stored memory in one step. It does not sync to disk: the memory survives a killed agent, but not a power failure.
func (h *Home) keep(st policy.State) error {
	data, err := json.Marshal(st)
	if err != nil {
		return err
	}
	tmp := h.memory() + ".tmp"
	if err = os.WriteFile(tmp, data, 0o600); err == nil {
		err = os.Rename(tmp, h.memory())
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("keeping the memory: %w", err), atomicfile.Remove(tmp))
	}
	return err
}
