package nginx

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/nginx/accesslog"
	"github.com/quellhq/quell/balancer/nginx/master"
	"github.com/quellhq/quell/internal/need"
)

const patience = 15 * time.Second

// lab is a real nginx in front of web servers of this process. It is stopped through its own handle.
type lab struct {
	t                             testing.TB
	dir, program                  string
	traffic, include, config, log string
	running                       *exec.Cmd
	ended                         chan struct{}
}

// newLab prepares an nginx whose upstream has these lines before its servers, and these servers.
func newLab(t testing.TB, upstream string, servers ...string) *lab {
	t.Helper()
	l := &lab{t: t, program: need.Program(t, "nginx"), traffic: need.FreeAddress(t)}
	var err error
	if l.dir, err = os.MkdirTemp("", "qn"); err != nil { // the length of a socket's path is limited
		t.Fatal(err)
	}
	l.include, l.config, l.log = filepath.Join(l.dir, "web.conf"), filepath.Join(l.dir, "nginx.conf"), filepath.Join(l.dir, "log.sock")
	t.Cleanup(func() { l.stop(); os.RemoveAll(l.dir) })
	l.write(l.include, strings.Join(servers, "\n")+"\n")
	l.configure(upstream, "")
	return l
}

func (l *lab) write(path, text string) {
	l.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

// configure writes nginx's configuration; more is added to the section of the virtual server.
func (l *lab) configure(upstream, more string) {
	l.t.Helper()
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;"
	}
	l.write(l.config, fmt.Sprintf(`daemon off;
%s
worker_processes 2;
worker_shutdown_timeout 10s;
pid %[2]s/pid;
error_log %[2]s/error.log notice;
events { worker_connections 512; }
http {
  access_log off;
  client_body_temp_path %[2]s/body; proxy_temp_path %[2]s/proxy; fastcgi_temp_path %[2]s/fastcgi;
  uwsgi_temp_path %[2]s/uwsgi; scgi_temp_path %[2]s/scgi;
  %[3]s
  upstream web {
    zone web 64k;
    %[4]s
    include %[5]s;
  }
  server {
    listen %[6]s;
    access_log syslog:server=unix:%[7]s,nohostname quell;
    location / {
      proxy_pass http://web;
      proxy_connect_timeout 1s;
      %[8]s
    }
  }
}
`, user, l.dir, accesslog.Format, upstream, l.include, l.traffic, l.log, more))
}

// start runs nginx and waits until it answers.
func (l *lab) start() {
	l.t.Helper()
	out, err := os.Create(filepath.Join(l.dir, "out"))
	if err != nil {
		l.t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(l.program, "-c", l.config, "-e", filepath.Join(l.dir, "error.log"))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // the master ends its workers
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.running, l.ended = cmd, make(chan struct{})
	go func(ended chan struct{}) { _ = cmd.Wait(); close(ended) }(l.ended)
	m := master.Master{PIDFile: filepath.Join(l.dir, "pid")}
	eventually(l.t, "nginx's workers run", func() bool { workers, _, err := m.Workers(); return err == nil && len(workers) == 2 })
}

func (l *lab) stop() {
	if l.running == nil {
		return
	}
	_ = l.running.Process.Signal(syscall.SIGTERM)
	select {
	case <-l.ended:
	case <-time.After(patience):
		_ = l.running.Process.Kill()
		<-l.ended
	}
	l.running = nil
}

// kill kills the master process. It returns what ends the workers that are left, and waits until no one listens.
func (l *lab) kill(workers []string) (end func()) {
	l.t.Helper()
	if err := l.running.Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	<-l.ended
	l.running = nil
	end = sync.OnceFunc(func() {
		for _, w := range workers {
			pid, err := strconv.Atoi(w)
			if err == nil {
				err = syscall.Kill(pid, syscall.SIGQUIT)
			}
			if err != nil {
				l.t.Errorf("ending worker %s: %v", w, err)
			}
		}
		for conn, err := net.Dial("tcp", l.traffic); err == nil; conn, err = net.Dial("tcp", l.traffic) {
			conn.Close() // a worker still takes requests
		}
	})
	l.t.Cleanup(end)
	return end
}

// options of a driver of this nginx.
func (l *lab) options() Options {
	return Options{Include: l.include, PID: filepath.Join(l.dir, "pid"),
		Test:  []string{l.program, "-t", "-q", "-c", l.config, "-e", filepath.Join(l.dir, "error.log")},
		Every: 10 * time.Millisecond, Name: "shop", Memory: filepath.Join(l.dir, "nginx.json"), Logger: slog.New(slog.DiscardHandler)}
}

func (l *lab) driver(change func(*Options)) *Driver {
	l.t.Helper()
	o := l.options()
	if change != nil {
		change(&o)
	}
	d, err := New(o)
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

// lines returns the include file.
func (l *lab) lines() string {
	l.t.Helper()
	text, err := os.ReadFile(l.include)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text)
}

// get sends requests one after another, each on a connection of its own, and returns how many failed.
func (l *lab) get(n int, path string) (failed int) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	for range n {
		resp, err := client.Get("http://" + l.traffic + path)
		if err != nil || resp.StatusCode != http.StatusOK {
			failed++
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	return failed
}

// load sends requests from four clients until it is ended, and then says how many failed. They rest between requests, to leave processor
// time to nginx.
func (l *lab) load() (end func() (failed int)) {
	var clients sync.WaitGroup
	var failed atomic.Int64
	done := make(chan struct{})
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
					failed.Add(int64(l.get(1, "/")))
				}
			}
		})
	}
	end = sync.OnceValue(func() int { close(done); clients.Wait(); return int(failed.Load()) })
	l.t.Cleanup(func() { end() })
	return end
}

// instance is a web server that counts its requests.
type instance struct {
	*httptest.Server
	served atomic.Int64
}

func newInstance(t testing.TB, answer http.HandlerFunc) *instance {
	i := &instance{}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.served.Add(1)
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *instance) address() string { return i.Listener.Addr().String() }

func (i *instance) member(id string) quell.Member { return quell.Member{ID: id, Address: i.address()} }

func backend(id string, i *instance, weight float64) quell.Backend {
	return quell.Backend{ID: id, Address: i.address(), Weight: weight}
}

// settle applies backends until the state is as requested.
func settle(t testing.TB, d *Driver, backends ...quell.Backend) {
	t.Helper()
	eventually(t, "the backends are in force", func() bool {
		if err := d.Apply(t.Context(), backends); err != nil {
			t.Fatal(err)
		}
		for _, b := range backends {
			s := stateOf(t, d, b.ID)
			if s.Address != b.Address || s.Draining != b.Draining || s.ByHand == nil && s.Weight != b.Weight {
				return false
			}
		}
		return true
	})
}

func stateOf(t testing.TB, d *Driver, id string) quell.BackendState {
	t.Helper()
	states, err := d.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.ID == id {
			return s
		}
	}
	return quell.BackendState{}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", patience, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
