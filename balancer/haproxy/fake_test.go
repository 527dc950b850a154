package haproxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
)

// fake listens like a HAProxy and calls a function for each answer. If the function returns false, fake closes the connection.
func fake(t *testing.T, answer func(command string) (string, bool)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for in := bufio.NewScanner(conn); in.Scan(); {
					text, ok := answer(in.Text())
					if in.Text() == "prompt" {
						text, ok = "", true
					}
					if !ok {
						return
					}
					_, _ = io.WriteString(conn, text+"\n> ")
				}
			}()
		}
	}()
	return path
}

// TestOddAnswers checks that an invalid answer of HAProxy is never read as a backend, and that each such answer gives an error of one line.
func TestOddAnswers(t *testing.T) {
	good := map[string]string{"show info": "Pid: 7\nVersion: 2.6\n", "show servers state app": stateText + "\n",
		"show stat 3 6 -1": statText + "\n"}
	for name, c := range map[string]struct{ command, answer, want string }{
		"as it should be":         {"", "", ""},
		"another program":         {"show info", "HTTP/1.1 400 Bad request\n", "`show info` was answered with"},
		"always on its way out":   {"show info", "Pid: 7\nStopping: 1\n", "is shutting down"},
		"an unknown backend":      {"show servers state app", "Can't find backend.\n", `there is no backend "app"`},
		"no permission":           {"show servers state app", "Permission denied\n", "level admin"},
		"a version from long ago": {"show servers state app", "1\n# be_id srv_id\n", "HAProxy 2.4 or newer is needed"},
		"no counters":             {"show stat 3 6 -1", "Unknown command\n", "there is no column"},
		"it hangs up":             {"show stat 3 6 -1", "", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			path := fake(t, func(command string) (string, bool) {
				if command == c.command {
					return c.answer, c.answer != ""
				}
				return good[command], true
			})
			d, err := New(Options{Sockets: []string{path}, Backend: "app"})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			states, err := d.State(context.Background())
			if c.want == "" && (err != nil || len(states) != 2) {
				t.Errorf("%+v, %v", states, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestConnectionIsKept checks that a connection is used for many exchanges, and opened again after HAProxy closed it.
func TestConnectionIsKept(t *testing.T) {
	opened := 0
	path := fake(t, func(command string) (string, bool) {
		if command == "hang up" {
			return "", false
		}
		return command + "\n", true
	})
	s := newSocket(path)
	defer s.close()
	for range 3 {
		before := s.conn
		answers, err := s.exec(context.Background(), "a", "b")
		if err != nil || strings.Join(answers, ",") != "a,b" {
			t.Fatalf("%q, %v", answers, err)
		}
		if s.conn != before {
			opened++
		}
	}
	if opened != 1 {
		t.Errorf("opened %d times", opened)
	}
	if _, err := s.exec(context.Background(), "hang up"); err == nil {
		t.Error("no answer is an answer")
	}
	if answers, err := s.exec(context.Background(), "c"); err != nil || answers[0] != "c" {
		t.Errorf("after that %q, %v", answers, err)
	}
}

// TestAHangIsBounded checks that an exchange ends when the caller's time is over.
func TestAHangIsBounded(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	path := fake(t, func(string) (string, bool) { <-release; return "", false })
	s := newSocket(path)
	defer s.close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.exec(ctx, "show info"); err == nil {
		t.Error("a HAProxy that hangs answered")
	}
}

// TestSlowAfterAHang has a HAProxy that hangs, and is then too slow for the limit after a hang. It is found out that it answers.
func TestSlowAfterAHang(t *testing.T) {
	path := fake(t, func(string) (string, bool) { time.Sleep(50 * time.Millisecond); return "well\n", true })
	s := newSocket(path)
	defer s.close()
	answers := func() bool {
		got, err := s.exec(t.Context(), "show info")
		return err == nil && got[0] == "well"
	}
	s.whole, s.short = time.Millisecond, time.Millisecond
	if answers() || !s.hung {
		t.Error("it answered within a fiftieth of its time")
	}
	if s.whole = time.Hour; answers() {
		t.Error("soon after a hang the limit is not the short one")
	}
	s.patient = s.patient.Add(-patientEvery)
	if !answers() || s.hung || !answers() {
		t.Error("it is not asked patiently again")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{Backend: "b"}, {Sockets: []string{"/s"}}, {Sockets: []string{"/s"}, Backend: "b;c"}, {Sockets: []string{"/s"}, Backend: "b", Slots: " "},
		{Sockets: []string{"/s"}, Backend: "b", Server: "check; shutdown"}, {Sockets: []string{"/s", "/t"}, Backend: "b", StateFile: "/f"},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add("text\n\n> more\n> ")
	f.Fuzz(func(t *testing.T, text string) {
		in := bufio.NewReaderSize(strings.NewReader(text), 16)
		for {
			answer, err := readAnswer(in)
			if err != nil {
				return
			}
			if strings.Contains(answer, "\n> ") {
				t.Errorf("%q holds two answers", answer)
			}
		}
	})
}

// TestPartsKnowInstances checks that `quell config check --online` reports the servers as instances, also those that fill slots, and that
// it changes no file.
func TestPartsKnowInstances(t *testing.T) {
	state := strings.Replace(stateText, " slot1 - 0 37 ", " slot1 127.0.0.1 2 4 ", 1)
	stat := strings.Replace(statText, "b,late,", "b,slot1,0,0,0,0,,0,,,,,2,http,,\nb,late,", 1)
	socket := fake(t, func(command string) (string, bool) {
		switch command {
		case "show info":
			return "Pid: 7\nVersion: 2.6\n", true
		case "show servers state b":
			return state + "\n", true
		case "show stat 3 6 -1":
			return stat + "\n", true
		}
		return "", true
	})
	dir := t.TempDir()
	path := filepath.Join(dir, "haproxy.json")
	before := []byte(`[{"id": "i1", "server": "slot1", "address": "127.0.0.1:1", "numeric": "127.0.0.1:1", "probe": "127.0.0.1:2"}]`)
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	s := Settings{Sockets: []string{socket}, Backend: "b", Slots: "slot"}
	driver, err := s.Parts(balancer.Service{Data: dir})[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	defer driver.(*Driver).Close()
	states, err := driver.State(context.Background())
	found := slices.IndexFunc(states, func(b quell.BackendState) bool { return b.ID == "i1" })
	if err != nil || found < 0 || states[found].Draining || states[found].Probe != "127.0.0.1:2" {
		t.Errorf("found %+v, %v", states, err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the memory became %s, %v", after, err)
	}
}

// A controller that ends leaves the lease of one that took the backend meanwhile.
func TestDisownLeavesAnothersLease(t *testing.T) {
	for _, taken := range []bool{false, true} {
		var mu sync.Mutex
		value := ""
		path := fake(t, func(command string) (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			switch _, set, _ := strings.Cut(command, " str("); {
			case set != "":
				value = strings.TrimSuffix(set, ")")
			case strings.Contains(command, "get var"):
				return "proc.quell_owner_app: type=str value=<" + value + ">", true
			}
			return "", true
		})
		d, err := New(Options{Sockets: []string{path}, Backend: "app"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		if err := d.Own(t.Context(), quell.Owner{ID: "EAST", Name: "east"}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		want := freeOwner
		if taken {
			value, want = "WEST/1/west", "WEST/1/west"
		}
		mu.Unlock()
		if err := d.Disown(t.Context()); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if value != want {
			t.Errorf("taken by another one: %t; the variable is %q", taken, value)
		}
		mu.Unlock()
	}
}
