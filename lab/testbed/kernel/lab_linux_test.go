package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
	"github.com/vishvananda/netlink"
)

// newLab makes a lab with a prefix that no other test process uses. The lab is removed when the test ends.
func newLab(t testing.TB, o Options) *Lab {
	t.Helper()
	need.Root(t)
	o.Prefix, o.Dir = prefixOf(t), t.TempDir()
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing the lab: %v", err)
		}
		if left := traces(t, o.Prefix); len(left) > 0 {
			t.Errorf("Close left %v", left)
		}
	})
	return l
}

// prefixOf returns a prefix that is different for each test of each process.
func prefixOf(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("qt%dx%d", os.Getpid(), len(t.Name()))
}

// traces lists everything whose name begins with the prefix, in all places where a lab makes something.
func traces(t testing.TB, prefix string) []string {
	t.Helper()
	var found []string
	g, err := findGroups(machine)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(g.roots(), namespaces) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), prefix+"-") {
				found = append(found, filepath.Join(dir, e.Name()))
			}
		}
	}
	if _, err := os.Lstat(RunDir(prefix)); err == nil {
		found = append(found, RunDir(prefix))
	}
	return found
}

// rootLinks lists the links in the machine's own network namespace; a lab makes none there.
func rootLinks(t *testing.T) []string {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	return names
}

func place(t testing.TB, l *Lab, host string, role Role) Place {
	t.Helper()
	p, err := l.Place(host, role)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// client returns an HTTP client that runs in the lab's network namespace for clients. keep sets whether connections are reused.
func client(p Place, keep bool) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: p.Dial, DisableKeepAlives: !keep, MaxIdleConnsPerHost: 1000}}
}

func get(c *http.Client, url string) (int64, error) {
	reply, err := c.Get(url)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	n, err := io.Copy(io.Discard, reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = errors.New(reply.Status)
	}
	return n, err
}

func startNginx(t testing.TB, l *Lab, host string, files map[string]int64) string {
	t.Helper()
	need.Program(t, "nginx")
	n := &Nginx{Place: place(t, l, host, Instance), Dir: filepath.Join(l.options.Dir, host+"-nginx"), Files: files}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return "http://" + n.Place.Address().String()
}

// Two labs run at the same time with the same addresses; neither changes the machine's own network.
func TestTwoLabs(t *testing.T) {
	need.Root(t)
	before := rootLinks(t)
	for _, suffix := range []string{"a", "b"} {
		o := Options{Prefix: prefixOf(t) + suffix, Dir: t.TempDir(), Hosts: []Host{{ID: "h1", Network: 100e6, Cores: 0.5}, {ID: "h20"}}}
		l, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if left := traces(t, o.Prefix); len(left) > 0 {
				t.Errorf("Close left %v", left)
			}
			if err := l.Close(); err != nil {
				t.Errorf("closing it again: %v", err)
			}
		}()
		_, err = New(o)
		if user := new(quell.UserError); !errors.As(err, &user) || !strings.Contains(err.Error(), "quell lab clean --prefix "+o.Prefix) {
			t.Errorf("a second lab of prefix %s: %v", o.Prefix, err)
		}
		base := startNginx(t, l, "h20", map[string]int64{"file": 100_000, "video/chunk": 5000})
		c := client(place(t, l, "", Client), false)
		for path, want := range map[string]int64{"/file": 100_000, "/video/chunk": 5000, "/healthz": 3} {
			if got, err := get(c, base+path); err != nil || got != want {
				t.Errorf("%s: %d bytes, %v; want %d", path, got, err, want)
			}
		}
	}
	if after := rootLinks(t); !slices.Equal(before, after) {
		t.Errorf("links of the machine's own network: %v, before %v", after, before)
	}
}

// If nginx is told to fail, it answers every request except health checks with status 503, until it is told to stop failing.
func TestErringNginx(t *testing.T) {
	l := newLab(t, Options{Hosts: []Host{{ID: "h1"}}})
	url := startNginx(t, l, "h1", map[string]int64{"file": 1000})
	c := client(place(t, l, "", Client), false)
	dir := filepath.Join(l.options.Dir, "h1-nginx")
	if err := SetErring(dir, false); err != nil {
		t.Errorf("one that does not err: %v", err)
	}
	for _, erring := range []bool{true, false} {
		if err := SetErring(dir, erring); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("its files to err: %t", erring), func() bool {
			_, err := get(c, url+"/file")
			return (err != nil) == erring
		})
		if _, err := get(c, url+"/healthz"); err != nil {
			t.Errorf("erring %t: its health check says %v", erring, err)
		}
	}
}

// A place's processes use its network and are counted in its group; they are killed when the parent dies.
func TestStartPutsAProcessInItsPlace(t *testing.T) {
	l := newLab(t, Options{Hosts: []Host{{ID: "h3", Cores: 1}}})
	p := place(t, l, "h3", Instance)
	cmd := exec.Command("cat", "/proc/self/cgroup", "/proc/self/net/fib_trie")
	var out strings.Builder
	cmd.Stdout = &out
	if err := p.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{base(l.options.Prefix) + "/h3/vm\n", "10.77.3.2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || strings.Contains(string(own), l.options.Prefix) {
		t.Errorf("this process is in %s, %v", own, err)
	}
}

func TestInterfereNetwork(t *testing.T) {
	need.Program(t, "iperf3")
	for _, tcp := range []bool{false, true} {
		t.Run(fmt.Sprintf("tcp %t", tcp), func(t *testing.T) {
			l := newLab(t, Options{Hosts: []Host{{ID: "h1", Network: 100e6}}, TCP: tcp})
			m := l.Machine("h1")
			interfere(t, m, quell.Network, 0.2)
			slow := carriedOver(t, m, time.Second)
			interfere(t, m, quell.Network, 0.6)
			fast := 0.0
			eventually(t, "a larger share to carry more", func() bool {
				fast = carriedOver(t, m, 300*time.Millisecond)
				return fast > slow && fast > 0.02
			})
			interfere(t, m, quell.Network, 0)
			eventually(t, "a share of 0 to carry nothing", func() bool { return carriedOver(t, m, 100*time.Millisecond) == 0 })
			t.Logf("carried %.3f at 0.2, %.3f at 0.6 of the link", slow, fast)
		})
	}
}

func interfere(t testing.TB, m *Machine, resource quell.Resource, share float64) {
	t.Helper()
	if err := m.Interfere(map[quell.Resource]float64{resource: share}); err != nil {
		t.Fatal(err)
	}
}

// carriedOver returns which part of the link the interferer used during a period.
func carriedOver(t *testing.T, m *Machine, span time.Duration) float64 {
	t.Helper()
	carried := func() float64 {
		_, interfering, err := m.Carried()
		if err != nil {
			t.Fatal(err)
		}
		return interfering
	}
	before, began := carried(), time.Now()
	time.Sleep(span)
	return (carried() - before) / time.Since(began).Seconds()
}
