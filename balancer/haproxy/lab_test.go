package haproxy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
)

const patience = time.Minute

// lab is a real HAProxy in front of web servers of this process. Every HAProxy that it starts is stopped through its
// own handle.
type lab struct {
	t       testing.TB
	dir     string
	program string
	socket  string
	traffic string
	config  string
	running *exec.Cmd
	ended   chan struct{}
	said    *sayings
}

// newLab prepares a HAProxy whose backend `app` has these lines.
func newLab(t testing.TB, backend string) *lab {
	t.Helper()
	l := &lab{t: t, program: need.Program(t, "haproxy"), traffic: need.FreeAddress(t), said: &sayings{}}
	var err error
	if l.dir, err = os.MkdirTemp("", "qh"); err != nil { // the length of a socket's path is limited
		t.Fatal(err)
	}
	l.socket, l.config = filepath.Join(l.dir, "s"), filepath.Join(l.dir, "haproxy.cfg")
	t.Cleanup(func() { l.stop(); os.RemoveAll(l.dir) })
	l.configure(backend, "")
	return l
}

// configure writes the configuration; global contains further lines of its global section.
func (l *lab) configure(backend, global string) {
	l.t.Helper()
	text := fmt.Sprintf(`global
  stats socket %s mode 600 level admin expose-fd listeners
  hard-stop-after 10s
  nbthread 2
  maxconn 1000
%s
defaults
  mode http
  timeout connect 1s
  timeout client 20s
  timeout server 20s
  log global
  load-server-state-from-file global
frontend web
  bind %s
  capture request header X-Class len 20
  option httplog
  default_backend app
backend app
  balance leastconn
  option redispatch
  http-response set-header X-Quell-Instance %%[srv_name]
%s
`, l.socket, indent(global), l.traffic, indent(backend))
	if err := os.WriteFile(l.config, []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

func indent(lines string) string { return "  " + strings.ReplaceAll(lines, "\n", "\n  ") }

// start runs HAProxy and waits until it answers.
func (l *lab) start(args ...string) {
	l.t.Helper()
	l.run(append([]string{"-db"}, args...))
	l.answers(func(pid int64) bool { return pid == int64(l.running.Process.Pid) })
}

// startMaster runs HAProxy as a master with the given socket, and a worker, which ends with the master.
func (l *lab) startMaster(socket string) {
	l.t.Helper()
	l.run([]string{"-W", "-S", socket})
	master, ended := l.running, l.ended
	l.t.Cleanup(func() { // ends the master before it would be killed, because a killed master leaves its worker running
		_ = master.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	l.answers(func(pid int64) bool { return pid != int64(master.Process.Pid) })
}

func (l *lab) run(args []string) {
	l.t.Helper()
	log, err := os.OpenFile(filepath.Join(l.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		l.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(l.program, append(args, "-f", l.config)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	l.running, l.ended = cmd, ended
}

// answers waits until the expected process answers.
func (l *lab) answers(is func(pid int64) bool) {
	l.t.Helper()
	await(l.t, "HAProxy to answer", func() (bool, any) {
		s := newSocket(l.socket)
		defer s.close()
		answers, err := s.exec(context.Background(), "show info")
		if err != nil {
			return false, err
		}
		i, err := parseInfo(answers[0])
		return err == nil && is(i.pid), i
	})
}

// reload starts a second HAProxy that takes over from the first, including listening sockets.
func (l *lab) reload() {
	l.t.Helper()
	old, ended := l.running, l.ended
	l.t.Cleanup(func() {
		_ = old.Process.Kill() // it may already have ended
		<-ended
	})
	l.start("-x", l.socket, "-sf", fmt.Sprint(old.Process.Pid))
}

// kill kills HAProxy.
func (l *lab) kill() {
	_ = l.running.Process.Kill()
	<-l.ended
}

func (l *lab) stop() {
	if l.running != nil {
		l.kill()
	}
	if l.t.Failed() {
		said, _ := os.ReadFile(filepath.Join(l.dir, "log"))
		l.t.Logf("HAProxy said\n%s\nthe driver said\n%s", said, l.said)
	}
}

// driver makes a driver for the lab.
func (l *lab) driver(change func(*Options)) *Driver {
	l.t.Helper()
	o := Options{
		Sockets: []string{l.socket}, Backend: "app", Server: "check inter 200ms fall 2 rise 1", Drain: 2 * time.Second,
		Logger: slog.New(slog.NewTextHandler(l.said, nil)),
	}
	if change != nil {
		change(&o)
	}
	d, err := New(o)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(d.Close)
	return d
}

// ask runs commands on another connection than the driver's.
func (l *lab) ask(commands ...string) []string {
	l.t.Helper()
	s := newSocket(l.socket)
	defer s.close()
	answers, err := s.exec(context.Background(), commands...)
	if err != nil {
		l.t.Fatal(err)
	}
	return answers
}

// servers reads the backend.
func (l *lab) servers() map[string]server {
	l.t.Helper()
	list, _, err := parseState(l.ask("show servers state app")[0])
	if err != nil {
		l.t.Fatal(err)
	}
	found := map[string]server{}
	for _, s := range list {
		found[s.name] = s
	}
	return found
}

// weights returns the weights of the servers in service.
func (l *lab) weights() map[string]int {
	found := map[string]int{}
	for name, s := range l.servers() {
		if !s.inMaint() && !s.isDraining() {
			found[name] = s.weight
		}
	}
	return found
}

// sayings collects a log.
type sayings struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *sayings) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *sayings) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *sayings) count(words string) int { return strings.Count(s.String(), words) }

// await polls until a condition holds.
func await(t testing.TB, what string, is func() (bool, any)) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		ok, state := is()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s; now: %+v", what, state)
		}
	}
}

// instance is a web server that counts requests.
type instance struct {
	*httptest.Server
	served atomic.Int64
	open   atomic.Int64
}

func (i *instance) address() string { return i.Listener.Addr().String() }

// newInstance returns an instance that answers after a delay. For /slow the delay is 300 ms.
func newInstance(t testing.TB, takes time.Duration) *instance {
	i := &instance{}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.open.Add(1)
		defer i.open.Add(-1)
		wait := takes
		if r.URL.Path == "/slow" {
			wait = 300 * time.Millisecond
		}
		time.Sleep(wait)
		i.served.Add(1)
		_, _ = io.WriteString(w, "served\n")
	}))
	t.Cleanup(i.Close)
	return i
}

// flow is a number of clients that each send one request after the other.
type flow struct {
	t      testing.TB
	stop   chan struct{}
	all    sync.WaitGroup
	mu     sync.Mutex
	done   int
	failed []string
	began  []time.Time // start times of the failed requests
}

func (l *lab) flow(clients int, path string) *flow {
	f := &flow{t: l.t, stop: make(chan struct{})}
	for i := range clients {
		f.all.Go(func() { f.client("http://"+l.traffic+path, i%2 == 0) })
	}
	l.t.Cleanup(f.end)
	f.more(20)
	return f
}

// client sends requests over one connection or, if keeps is false, over a new connection for each request. On a new connection, net/http
// does not repeat a request that was cut off.
func (f *flow) client(url string, keeps bool) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: !keeps}, Timeout: patience}
	defer client.CloseIdleConnections()
	for {
		select {
		case <-f.stop:
			return
		default:
		}
		began := time.Now()
		why := get(client, url)
		f.mu.Lock()
		f.done++
		if why != "" {
			f.failed, f.began = append(f.failed, why), append(f.began, began)
		}
		f.mu.Unlock()
		if why != "" {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func get(client *http.Client, url string) string {
	resp, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	if resp.StatusCode != 200 || string(body) != "served\n" {
		return fmt.Sprintf("%s from %q", resp.Status, resp.Header.Get("X-Quell-Instance"))
	}
	return ""
}

// more waits until that many further requests succeeded.
func (f *flow) more(n int) {
	f.t.Helper()
	good := func() int { f.mu.Lock(); defer f.mu.Unlock(); return f.done - len(f.failed) }
	goal := good() + n
	await(f.t, "requests", func() (bool, any) { return good() >= goal, goal - good() })
}

func (f *flow) end() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.all.Wait()
}

func (f *flow) wantNoFailures() {
	f.t.Helper()
	f.more(30)
	f.end()
	for _, why := range f.failed {
		f.t.Errorf("a request failed: %s", why)
	}
}

func apply(t testing.TB, d *Driver, backends ...quell.Backend) {
	t.Helper()
	if err := d.Apply(context.Background(), backends); err != nil {
		t.Fatal(err)
	}
}

// step reads the state, and applies the wanted one if something differs, as the controller does periodically.
func step(d *Driver, backends []quell.Backend) (same bool, err error) {
	states, err := d.State(context.Background())
	if err != nil {
		return false, err
	}
	if same = len(states) == len(backends); same {
		for i, s := range states {
			if s.ByHand != nil {
				s.Weight, s.Draining, s.Held = backends[i].Weight, backends[i].Draining, backends[i].Held
			}
			same = same && s.Backend == backends[i]
		}
	}
	if !same {
		err = d.Apply(context.Background(), backends)
	}
	return same, err
}

// settle makes steps until nothing differs.
func settle(t testing.TB, d *Driver, backends ...quell.Backend) {
	t.Helper()
	await(t, "the backends to be in force", func() (bool, any) {
		same, err := step(d, backends)
		states, _ := d.State(context.Background())
		return same && err == nil, fmt.Sprint(states, err)
	})
}

// inFrontend adds lines to the frontend.
func (l *lab) inFrontend(lines string) {
	l.t.Helper()
	l.replace("  default_backend app", indent(lines)+"\n  default_backend app")
}

// replace changes the configuration.
func (l *lab) replace(from, to string) {
	l.t.Helper()
	text, err := os.ReadFile(l.config)
	if err == nil && !strings.Contains(string(text), from) {
		err = fmt.Errorf("the configuration has no %q", from)
	}
	if err == nil {
		err = os.WriteFile(l.config, []byte(strings.Replace(string(text), from, to, 1)), 0o644)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func newSayings() *sayings { return &sayings{} }

func (s *sayings) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }
