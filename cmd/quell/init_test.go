package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/setup"
)

// relay forwards connections, and can delay what comes back, as a busy link does.
type relay struct {
	delay atomic.Int64
	at    string
}

func newRelay(t *testing.T, to string) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &relay{at: l.Addr().String()}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go r.forward(in, to)
		}
	}()
	return r
}

func (r *relay) forward(in net.Conn, to string) {
	defer in.Close()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		io.Copy(out, in)
		out.(*net.TCPConn).CloseWrite()
	}()
	buffer := make([]byte, 16<<10)
	for {
		n, err := out.Read(buffer)
		time.Sleep(time.Duration(r.delay.Load()))
		if _, failed := in.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// begin runs a program until the test ends.
func begin(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(need.Program(t, name), args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

// smallFleet starts a HAProxy before three nginx, and returns its socket and the relays before the nginx.
func smallFleet(t *testing.T) (socket string, relays []*relay) {
	dir, err := os.MkdirTemp("", "qi") // the length of a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // workers of nginx may be another user
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "small.bin"), bytes.Repeat([]byte("0123456789"), 2000), 0o644); err != nil {
		t.Fatal(err)
	}
	servers := ""
	for i := range 3 {
		at := need.FreeAddress(t)
		conf := filepath.Join(dir, fmt.Sprintf("nginx%d.conf", i))
		text := fmt.Sprintf("daemon off; master_process off; pid %s/nginx%d.pid; error_log /dev/null;\nevents {}\nhttp { access_log off; "+
			"server { listen %s; root %s; location = /healthz { return 200 ok; } } }\n", dir, i, at, dir)
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		begin(t, "nginx", "-c", conf, "-e", "/dev/null")
		relays = append(relays, newRelay(t, at))
		servers += fmt.Sprintf(" server w%d %s weight %d\n", i+1, relays[i].at, 10*(i+1))
		awaitServer(t, at)
	}
	socket = filepath.Join(dir, "s")
	conf := filepath.Join(dir, "haproxy.cfg")
	text := fmt.Sprintf("global\n stats socket %s level operator\n stats socket %s.user level user\n"+
		"defaults\n mode http\n timeout connect 5s\n timeout client 30s\n"+
		" timeout server 30s\nfrontend f\n bind %s\n default_backend app\nbackend app\n%s", socket, socket, need.FreeAddress(t), servers)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	begin(t, "haproxy", "-db", "-f", conf)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return socket, relays
		}
	}
	t.Fatal("HAProxy did not start")
	return
}

func awaitServer(t *testing.T, at string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if answer, err := http.Get("http://" + at + "/healthz"); err == nil {
			answer.Body.Close()
			return
		}
	}
	t.Fatalf("%s does not answer", at)
}

// A list that begins with a server of this machine gives an address that agents on the others can reach.
func TestInitFindsTheAddressThatOthersSee(t *testing.T) {
	from := func(address string) (net.Addr, error) {
		switch {
		case strings.HasPrefix(address, "127."):
			return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, nil
		case strings.HasPrefix(address, "10."):
			return &net.UDPAddr{IP: net.IPv4(10, 0, 0, 2)}, nil
		}
		return nil, errors.New("no route")
	}
	facts := &setup.Facts{}
	if err := addresses(facts, []string{"127.0.0.1:81", "away.invalid:80", "10.0.0.11:80"}); err != nil {
		t.Fatal(err)
	}
	if facts.Here = seenAs(facts.Instances, from); facts.Here != "10.0.0.2" {
		t.Errorf("here is %s", facts.Here)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"quell.yaml": setup.Config(facts), "token": strings.Repeat("0123456789abcdef", 4)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := daemon.Drivers().Load(filepath.Join(dir, "quell.yaml")); err != nil {
		t.Error(err)
	}
	if here := seenAs(facts.Instances[:1], reachedFrom(t.Context())); here != "127.0.0.1" {
		t.Errorf("with a server of this machine only, here is %s", here)
	}
}

// TestInit writes a configuration of a real HAProxy, which is valid and has what was measured.
func TestInit(t *testing.T) {
	socket, relays := smallFleet(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "quell.yaml")
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"init", socket, "--out", file, "--burst", "/small.bin"}, nil, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, &errs)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"backend: \"app\"", `id: "w2", address: "` + relays[1].at, "weight 20, connects in", "a burst carried",
		"level operator: enough to advise", "mode: advise"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the configuration lacks %q:\n%s", want, text)
		}
	}
	for _, want := range []string{"--instance w3", "\n  log 127.0.0.1:5514 local0\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("what is to be done lacks %q:\n%s", want, &out)
		}
	}
	if status := run(t.Context(), []string{"config", "check", file}, nil, &out, &errs); status != 0 {
		t.Errorf("config check: %s", &errs)
	}
	errs.Reset()
	status := run(t.Context(), []string{"init", socket, "--out", file}, nil, &out, &errs)
	if status != exitUsage || !strings.Contains(errs.String(), "exists") {
		t.Errorf("status %d: %s", status, &errs)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, text) {
		t.Error("the file was changed")
	}
	errs.Reset()
	if status := run(t.Context(), []string{"init", socket + ".user"}, nil, &out, &errs); status != exitUsage ||
		!strings.Contains(errs.String(), "does not show the servers' addresses: set `level admin`") {
		t.Errorf("a socket of level user: status %d: %s", status, &errs)
	}
	t.Chdir(filepath.Dir(socket))
	if status := run(t.Context(), []string{"init", filepath.Base(socket), "--out", "-"}, nil, &out, &errs); status != 0 {
		t.Errorf("a socket in this folder: status %d: %s", status, &errs)
	}
}

// watched is the output of a command that runs.
type watched struct {
	mu   sync.Mutex
	text strings.Builder
	find string
	stop func()
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if strings.Contains(w.text.String(), w.find) {
		w.stop()
	}
	return len(p), nil
}

// TestAgentless finds a server that answers late, behind a real HAProxy, with nothing installed there. Its memory is used by the next look.
func TestAgentless(t *testing.T) {
	socket, relays := smallFleet(t)
	memory := filepath.Join(t.TempDir(), "memory.json")
	if err := os.WriteFile(memory, nil, 0o644); err != nil { // as after a kill before anything was measured
		t.Fatal(err)
	}
	look := []string{"init", socket, "--agentless", "--path", "/small.bin", "--period", "500ms", "--memory", memory}
	var calm, errs bytes.Buffer
	if status := run(t.Context(), append(look, "--for", "8s"), nil, &calm, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, &errs)
	}
	for _, want := range []string{"looking at 3 server(s)", "only an agent on the server measures them (3 server(s))"} {
		if !strings.Contains(calm.String(), want) {
			t.Errorf("the first look lacks %q:\n%s", want, &calm)
		}
	}
	relays[1].delay.Store(int64(300 * time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &watched{find: "w2: slowed by something beside its requests", stop: cancel}
	run(ctx, append(look, "--for", "90s"), nil, w, &errs)
	if !strings.Contains(w.text.String(), w.find) {
		t.Errorf("the slow one was not found:\n%s%s", w.text.String(), &errs)
	}
}
