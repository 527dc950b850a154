package progress

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell/internal/need"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Message{
		"progress 5":            {Units: 5},
		"progress 0.25\n":       {Units: 0.25},
		" progress  1e3 /web ":  {Units: 1000, Group: "/web"},
		"progress 0 /a/b.slice": {Group: "/a/b.slice"},
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "progress", "progress x", "progress -1", "progress NaN", "progress Inf", "progress 1e13", "work 5",
		"progress 1 web", "progress 1 /a/../b", "progress 1 /a b", strings.Repeat("progress 1 ", 1000)} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is accepted: %+v", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("progress 5 /web")
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := Parse(text); err == nil && (math.IsNaN(m.Units) || m.Units < 0 || m.Units > mostUnits) {
			t.Errorf("%q: %+v", text, m)
		}
	})
}

// listen makes a server that takes this process to be in the group /tenants/web.
func listen(t *testing.T) (*Server, string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "q") // the length of a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "progress")
	root := fstest.MapFS{fmt.Sprintf("proc/%d/cgroup", os.Getpid()): {Data: []byte("2:cpuacct:/tenants/web\n0::/\n")}}
	s, err := Listen(root, path, slog.New(slog.DiscardHandler))
	if err != nil {
		need.Skip(t, err.Error())
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), os.RemoveAll(folder)); err != nil {
			t.Error(err)
		}
	})
	return s, path
}

func send(t *testing.T, path string, texts ...string) {
	t.Helper()
	c, err := net.Dial("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, text := range texts {
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
}

func post(t *testing.T, path, text string) int {
	t.Helper()
	dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path+HTTPSuffix) }
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	answer, err := client.Post("http://agent/progress", "text/plain", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// awaited takes until a group has as many units.
func awaited(t *testing.T, s *Server, group string, want float64) (units map[string]float64, failed error) {
	t.Helper()
	units = map[string]float64{}
	for deadline := time.Now().Add(20 * time.Second); units[group] < want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v (%v), want %v of %s", units, failed, want, group)
		}
		part, err := s.Take()
		for at, n := range part {
			units[at] += n
		}
		failed = errors.Join(failed, err)
	}
	return units, failed
}

func TestMessagesCountForTheSendersGroup(t *testing.T) {
	s, path := listen(t)
	if status := post(t, path, "progress 2.5"); status != http.StatusNoContent {
		t.Errorf("HTTP says %d", status)
	}
	if status := post(t, path, "nonsense"); status != http.StatusBadRequest {
		t.Errorf("HTTP says %d of nonsense", status)
	}
	send(t, path, "nonsense", "progress 3", "progress 4 /other", "progress 10")
	units, err := awaited(t, s, "/tenants/web", 15.5)
	if units["/tenants/web"] != 15.5 || units["/other"] != 4 || err == nil || !strings.Contains(err.Error(), "no reports of progress") {
		t.Errorf("%v, %v", units, err)
	}
	if units, err := s.Take(); len(units) != 0 || err != nil {
		t.Errorf("the next period has %v, %v", units, err)
	}
}

// Only root and this process's user may report for other groups; a process whose group is unknown may not report.
func TestOthersReportForThemselvesOnly(t *testing.T) {
	s := &Server{root: fstest.MapFS{"proc/7/cgroup": {Data: []byte("0::/a\n")}}}
	s.forget()
	stranger := &sender{pid: 7, uid: os.Geteuid() + 1}
	if err := s.take("progress 1 /b", stranger); err == nil {
		t.Error("a stranger reports for another group")
	}
	if err := s.take("progress 1", stranger); err != nil || s.units["/a"] != 1 {
		t.Errorf("%v, %v", s.units, err)
	}
	for _, from := range []*sender{nil, {pid: 8}, {}} {
		if err := s.take("progress 1", from); err == nil {
			t.Errorf("%+v reports", from)
		}
	}
}

func TestAFloodIsDropped(t *testing.T) {
	s := &Server{root: fstest.MapFS{"proc/7/cgroup": {Data: []byte("0::/a\n")}}}
	s.forget()
	for range mostEach + 5 {
		_ = s.take("progress 1", &sender{pid: 7}) // the last five are errors
	}
	units, err := s.Take()
	if units["/a"] != mostEach || err == nil || !strings.Contains(err.Error(), "5 were dropped") {
		t.Errorf("%v, %v", units, err)
	}
}

// Hundreds of processes of one group add up.
func TestManySendersAddUp(t *testing.T) {
	root := fstest.MapFS{}
	for pid := 1; pid <= 500; pid++ {
		root[fmt.Sprintf("proc/%d/cgroup", pid)] = &fstest.MapFile{Data: fmt.Appendf(nil, "0::/a/%d\n", pid)}
	}
	s := &Server{root: root}
	s.forget()
	for pid := 1; pid <= 500; pid++ {
		if err := s.take("progress 2", &sender{pid: pid, uid: 99}); err != nil {
			t.Fatal(err)
		}
	}
	units, err := s.Take()
	if sum, ok := Within(units, "/a"); !ok || sum != 1000 || err != nil {
		t.Errorf("%v, %v", sum, err)
	}
	if _, ok := Within(units, "/a/1x"); ok {
		t.Error("a group of another name")
	}
}

func TestASocketThatWasLeftIsReplaced(t *testing.T) {
	folder, err := os.MkdirTemp("", "q")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path, silent := filepath.Join(folder, "progress"), slog.New(slog.DiscardHandler)
	left, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := Listen(fstest.MapFS{}, path, silent)
		if err != nil {
			need.Skip(t, err.Error())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, one := range []string{path, path + HTTPSuffix} {
			if _, err := os.Lstat(one); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s outlived its server: %v", one, err)
			}
		}
	}
	if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(fstest.MapFS{}, path, silent); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("a file is in the way: %v", err)
	}
}

// The example clients report to a real socket.
func TestExampleClients(t *testing.T) {
	for _, c := range []struct {
		file    string
		command []string
	}{
		{"progress.py", []string{"python3"}}, {"progress.sh", []string{"sh"}}, {"progress.go", []string{"go", "run"}},
	} {
		t.Run(c.file, func(t *testing.T) {
			program := need.Program(t, c.command[0])
			if c.file == "progress.sh" {
				need.Program(t, "curl")
			}
			text, err := os.ReadFile(filepath.Join("..", "examples", "progress", c.file))
			if err != nil {
				t.Fatal(err)
			}
			s, path := listen(t)
			s.root = everybody{} // the client is another process
			copied := filepath.Join(t.TempDir(), c.file)
			if err := os.WriteFile(copied, []byte(strings.ReplaceAll(string(text), "/run/quell/progress", path)), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(program, append(c.command[1:], copied)...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			awaited(t, s, "/tenants/web", 100)
		})
	}
}

// everybody is a proc in which every process is in the group /tenants/web.
type everybody struct{}

func (everybody) Open(string) (fs.File, error) {
	return fstest.MapFS{"cgroup": {Data: []byte("2:cpuacct:/tenants/web\n")}}.Open("cgroup")
}

func TestPace(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p Pace
	for i, c := range []struct {
		units    float64
		reported bool
		rate     float64
		ok       bool
	}{
		{5, true, 0, false}, // the time for which it worked is not known
		{6, true, 6, true}, {8, true, 8, true}, {0, false, 8, true}, {0, false, 4, true}, {0, false, 8. / 3, true}, {0, false, 2, true},
		{0, false, 0, false}, // four times the interval is over
		{8, true, 0, false}, {4, true, 4, true},
		{1, true, 2.5, true}, {1, true, 2, true}, {0, false, 2, true}, {1, true, 7. / 5, true}, {1, true, 4. / 5, true}, // of four units
		{0, true, 3. / 5, true}, // of four reports
	} {
		at = at.Add(time.Second)
		rate, span, ok := p.Next(at, c.units, c.reported)
		if math.Abs(rate-c.rate) > 1e-9 || ok != c.ok || ok && (span < time.Second || span > 5*time.Second) {
			t.Errorf("period %d: %v over %v, %v; want %v, %v", i, rate, span, ok, c.rate, c.ok)
		}
	}
}
