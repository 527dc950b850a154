package daemon_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
)

// cloud starts and stops machines for the scaler's commands, and can report a wrong list.
type cloud struct {
	*httptest.Server
	s *soak

	mu       sync.Mutex
	next     int
	machines map[string]*machine
	untruth  string
}

type machine struct {
	id, address, probe string
	proc               *proc
	started            time.Time
}

func newCloud(s *soak) *cloud {
	c := &cloud{s: s, machines: map[string]*machine{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/start", c.start)
	mux.HandleFunc("/stop", c.stop)
	mux.HandleFunc("/list", c.list)
	c.Server = httptest.NewServer(mux)
	s.t.Cleanup(c.Close)
	return c
}

func (c *cloud) start(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Count int `json:"count"`
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := []string{}
	for range ask.Count {
		c.next++
		m := &machine{id: fmt.Sprintf("m%03d", c.next), address: need.FreeAddress(c.s.t), probe: need.FreeAddress(c.s.t), started: time.Now()}
		if err := m.boot(c.s); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		c.machines[m.id] = m
		ids = append(ids, m.id)
	}
	_ = json.NewEncoder(w).Encode(ids)
}

func (m *machine) boot(s *soak) error {
	config, err := s.beyondTheWire("sensor", m.id)
	if err != nil {
		return err
	}
	m.proc, err = s.tryLaunch(m.id, exec.Command(quellProgram, "host", "--config", config, "--id", m.id, "--instance", m.id,
		"--listen", m.address, "--probe-listen", m.probe, "--file-size", "20000"))
	return err
}

func (c *cloud) stop(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		IDs []string `json:"ids"`
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, id := range ask.IDs {
		c.terminate(id)
	}
	fmt.Fprintln(w, "{}")
}

func (c *cloud) list(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	members := []quell.Member{}
	for _, m := range c.machines {
		if !m.proc.ended() {
			members = append(members, quell.Member{ID: m.id, Address: m.address, Probe: m.probe, State: quell.Ready, Started: m.started})
		}
	}
	slices.SortFunc(members, func(a, b quell.Member) int { return strings.Compare(a.ID, b.ID) })
	switch c.untruth {
	case "":
	case "short":
		members = members[:len(members)/2]
	default:
		_, _ = io.WriteString(w, c.untruth)
		return
	}
	_ = json.NewEncoder(w).Encode(members)
}

func (p *proc) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// lie sets the list that the cloud reports; "" means the true list.
func (c *cloud) lie(untruth string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.untruth = untruth
}

// alive lists the running machines, in order.
func (c *cloud) alive() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, m := range c.machines {
		if !m.proc.ended() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (c *cloud) pid(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machines[id].proc.cmd.Process.Pid
}

func (c *cloud) kill(id string) {
	c.mu.Lock()
	m := c.machines[id]
	c.mu.Unlock()
	_ = m.proc.cmd.Process.Kill() // it may already have ended
	<-m.proc.done
}

// terminate asks a machine to end, and returns when it has.
func (c *cloud) terminate(id string) {
	c.mu.Lock()
	m := c.machines[id]
	c.mu.Unlock()
	if m == nil {
		return
	}
	_ = m.proc.cmd.Process.Signal(syscall.SIGTERM) // it may already have ended
	select {
	case <-m.proc.done:
	case <-time.After(4 * time.Second):
		_ = m.proc.cmd.Process.Kill()
		<-m.proc.done
	}
}
