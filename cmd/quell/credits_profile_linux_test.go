package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/limit"
)

// profiledService is a service in a control group, whose requests take 0.3 ms of a processor each, and users who ask one after the other.
type profiledService struct {
	group, url, port, dir string
}

func startProfiledService(t *testing.T, users int) profiledService {
	t.Helper()
	needGroups(t)
	s := profiledService{group: fmt.Sprintf("%s/profiled-%d-%s", tenantsGroup, os.Getpid(), strings.ToLower(t.Name())), dir: t.TempDir()}
	made, err := cgroup.Make(s.group)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, s.port, _ = net.SplitHostPort(address)
	s.url = "http://" + address + "/work?cpu=300us&bytes=100"
	server := exec.Command("quell", "lab", "work", "--listen", address)
	server.Stderr = os.Stderr
	if err := startIn(made, server); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() {
		stop()
		all.Wait()
		_ = server.Process.Kill()
		_ = server.Wait()
		if err := made.Remove(); err != nil {
			t.Error(err)
		}
	})
	for {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: users}}
	for range users {
		all.Go(func() {
			for ctx.Err() == nil {
				request, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
				if answer, err := client.Do(request); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
			}
		})
	}
	return s
}

// profile is a command that profiles the service.
func (s profiledService) profile(more ...string) *exec.Cmd {
	return exec.Command("quell", append([]string{"credits", "profile", "--group", s.group, "--cgroup", s.group, "--port", s.port,
		"--url", s.url, "--out", filepath.Join(s.dir, "profile"), "--records", filepath.Join(s.dir, "records"), "--objective", "10s",
		"--worst", "100", "--resources", "cpu", "--window", "300ms", "--windows", "2"}, more...)...)
}

// quota is the processor limit of the service's group, as quell limits show says; "" if there is none.
func (s profiledService) quota(t *testing.T) string {
	t.Helper()
	list, err := limit.Show(limit.Options{Records: filepath.Join(s.dir, "records")})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		return l.Now
	}
	return ""
}

// A service that knows nothing of Quell is profiled under its load, and the scheduler reads the result. No limit is left. On a busy machine
// the load may change in so many windows that there is no profile: then it is tried again.
func TestProfileOfARunningService(t *testing.T) {
	s := startProfiledService(t, 3)
	const tries = 5
	var out []byte
	for n := range tries {
		var err error
		if out, err = s.profile("--longest", "1m", "--idle", "4s").CombinedOutput(); err == nil {
			break
		}
		if n == tries-1 || !strings.Contains(string(out), "the load changed") {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if left := s.quota(t); left != "" {
		t.Errorf("a limit is left: %s", left)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "profile"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := credit.ReadProfile(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if _, ok := p.Tightest(quell.CPU, 4, 10_000); !ok || !strings.Contains(string(out), "TIGHTEST LIMITS") {
		t.Errorf("the profile knows no limit for four connections: %s", out)
	}
}

// A profiler that is killed while a limit is in force leaves none.
func TestAKilledProfilerLeavesNoLimit(t *testing.T) {
	s := startProfiledService(t, 3)
	cmd := s.profile("--windows", "3")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				t.Fatalf("waited for %s: %s", what, said.String())
			}
		}
	}
	await("a limit", func() bool { return s.quota(t) != "" })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	await("the limit to be lifted", func() bool { return s.quota(t) == "" })
}
