package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/tick"
)

// mixFleet is HAProxy, the instances, and the scaler that starts and stops them.
type mixFleet struct {
	mix       Mix
	dir       string
	config    string // of Quell
	socket    string // of HAProxy
	traffic   string
	logs, bus string
	haproxy   *exec.Cmd
	instances []*mixInstance // those that may run; the first ones are declared in HAProxy's configuration
	scaler    net.Listener
	server    *http.Server

	mu    sync.Mutex
	holds map[string]string // instances that are out now, and by which act
	ended []MixEnd
	begun int
}

const (
	mixDeclared = 6 // instances in HAProxy's configuration
	mixTracked  = 3 // of them, those that track a server of another backend
	mixMost     = 9
	mixLame     = mixDeclared // the number of the instance that refuses connections for moments
)

func newMixFleet(m Mix, dir string) (f *mixFleet, err error) {
	f = &mixFleet{mix: m, dir: dir, socket: filepath.Join(dir, "s"), holds: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	places, err := freePorts(4 + mixMost)
	if err != nil {
		return nil, err
	}
	f.traffic, f.logs, f.bus = places[0], places[1], places[2]
	for n := range mixMost {
		f.instances = append(f.instances, newMixInstance(fmt.Sprintf("web-%d", n+1), places[4+n]))
	}
	f.instances[mixLame-1].lame = true
	for _, in := range f.instances[:mixDeclared] {
		if err := in.start(); err != nil {
			return nil, err
		}
	}
	if err := f.serveScaler(); err != nil {
		return nil, err
	}
	if err := f.startHAProxy(); err != nil {
		return nil, err
	}
	return f, f.settle(m.Sampling)
}

// freePorts returns loopback addresses that are free now. No other program is given their ports by chance: the kernel chooses higher ones.
func freePorts(n int) (addresses []string, err error) {
	const first, ports = 5000, 5000
	for range ports {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(ports)))
		if err != nil {
			continue // it is in use
		}
		defer ln.Close()
		if addresses = append(addresses, ln.Addr().String()); len(addresses) == n {
			return addresses, nil
		}
	}
	return nil, fmt.Errorf("%d ports of 127.0.0.1 from %d to %d are not free", n, first, first+ports-1)
}

func (f *mixFleet) close() error {
	var errs []error
	if f.haproxy != nil {
		_ = f.haproxy.Process.Kill()
		_ = f.haproxy.Wait()
	}
	for _, in := range f.instances {
		in.stop()
	}
	if f.server != nil {
		errs = append(errs, f.server.Close())
	}
	return errors.Join(errs...)
}

const mixHAProxy = `global
  stats socket %s mode 600 level admin
  log %s local0
  maxconn 2000

defaults
  mode http
  log global
  option httplog
  option redispatch
  retries 3
  timeout connect 1s
  timeout client 60s
  timeout server 60s

frontend web
  bind %s
  capture response header Content-Type len 40
  default_backend app

backend app
  balance leastconn
  cookie SRV insert indirect nocache
  option httpchk GET /healthz
  http-check disable-on-404
%s
backend infra
  option httpchk GET /healthz
  http-check disable-on-404
%s`

// startHAProxy starts HAProxy and waits until it answers.
func (f *mixFleet) startHAProxy() error {
	var app, infra strings.Builder
	for n, in := range f.instances[:mixDeclared] {
		checks := "check inter 2s fall 3 rise 1"
		if n < mixTracked {
			fmt.Fprintf(&infra, "  server %s %s %s\n", in.id, in.address, checks)
			checks = "track infra/" + in.id
		}
		fmt.Fprintf(&app, "  server %s %s cookie %s %s\n", in.id, in.address, in.id, checks)
	}
	path := filepath.Join(f.dir, "haproxy.cfg")
	text := fmt.Sprintf(mixHAProxy, f.socket, f.logs, f.traffic, app.String(), infra.String())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(f.dir, "haproxy.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("haproxy", "-db", "-f", path)
	cmd.Stdout, cmd.Stderr = log, log
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	f.haproxy = cmd
	for range 200 {
		if _, err = f.ask("show info"); err == nil {
			return nil
		}
		time.Sleep(25 * time.Millisecond)
	}
	return fmt.Errorf("HAProxy does not answer: %w", err)
}

// ask sends one command to HAProxy's runtime API.
func (f *mixFleet) ask(command string) (string, error) {
	conn, err := net.DialTimeout("unix", f.socket, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return "", err
	}
	return readAll(conn)
}

// serveScaler answers the three commands of the scaler.
func (f *mixFleet) serveScaler() (err error) {
	if f.scaler, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/list", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(f.members()) })
	mux.HandleFunc("/start", func(w http.ResponseWriter, r *http.Request) {
		var order struct{ Count int }
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(f.launch(order.Count))
	})
	mux.HandleFunc("/stop", func(_ http.ResponseWriter, r *http.Request) {
		var order struct{ IDs []string }
		if json.NewDecoder(r.Body).Decode(&order) == nil {
			f.end(order.IDs)
		}
	})
	f.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = f.server.Serve(f.scaler) }()
	return nil
}

func (f *mixFleet) members() []quell.Member {
	members := []quell.Member{}
	for _, in := range f.instances {
		if in.runs() {
			members = append(members, quell.Member{ID: in.id, Address: in.address, State: quell.Ready, Started: in.began()})
		}
	}
	return members
}

// launch starts so many further instances, as far as there are any.
func (f *mixFleet) launch(count int) []string {
	ids := []string{}
	for _, in := range f.instances {
		if len(ids) < count && !in.runs() && in.start() == nil {
			ids = append(ids, in.id)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun += len(ids)
	return ids
}

func (f *mixFleet) end(ids []string) {
	for _, in := range f.instances {
		if !slices.Contains(ids, in.id) {
			continue
		}
		f.mu.Lock()
		f.ended = append(f.ended, MixEnd{At: time.Now(), Instance: in.id, Held: f.holds[in.id]})
		f.mu.Unlock()
		in.stop()
	}
}

func (f *mixFleet) stops() []MixEnd {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ended)
}

func (f *mixFleet) starts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}

// hold notes that an act takes an instance out, or that it ends.
func (f *mixFleet) hold(id, act string, begins bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if begins {
		f.holds[id] = act
	} else {
		delete(f.holds, id)
	}
}

// every calls a function at equal times until ctx ends.
func every(ctx context.Context, period time.Duration, do func(now time.Time)) {
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			do(now)
		}
	}
}

// pause waits, and returns the context's error if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	if !tick.Sleep(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
