package emulated

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
)

// options describe a host on free ports that answers at once with 50,000 bytes over a link of 400 Mbit/s.
func options(id string) HostOptions {
	return HostOptions{ID: id, Instance: "i-" + id, Listen: "127.0.0.1:0", Bandwidth: 400_000_000, Drain: 20 * time.Millisecond}
}

// start runs a host until the test ends. It returns the host and a function that stops it and returns its error.
func start(t testing.TB, o HostOptions) (*Host, func() error) {
	h, err := NewHost(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return ended(t, done)
	})
	t.Cleanup(func() { stop() })
	return h, stop
}

func ended(t testing.TB, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-time.After(30 * time.Second):
		t.Error("the host does not end")
		return nil
	}
}

func get(t testing.TB, addr, path string) (*http.Response, []byte) {
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, body
}

// raw sends one request on a new connection and returns every byte of the answer.
func raw(t testing.TB, addr, path string) []byte {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", path)
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestServiceAnswersWithTheFile(t *testing.T) {
	o := options("h1")
	o.FileSize = 700_001
	h, _ := start(t, o)
	for _, path := range []string{"/file", "/", "/any/other?x=1"} {
		resp, body := get(t, h.Addr(), path)
		if resp.StatusCode != 200 || resp.ContentLength != o.FileSize || !bytes.Equal(body, content(700_001)) {
			t.Errorf("%s: status %d, length %d, %d bytes", path, resp.StatusCode, resp.ContentLength, len(body))
		}
	}
	if resp, body := get(t, h.Addr(), "/healthz"); resp.StatusCode != 200 || len(body) > 10 {
		t.Errorf("health: %d %q", resp.StatusCode, body)
	}
	resp, err := http.Post("http://"+h.Addr()+"/file", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", resp.StatusCode)
	}
}

func TestServiceAnswersWithTheBytesAskedFor(t *testing.T) {
	h, _ := start(t, options("h1"))
	for path, want := range map[string]int{"/chunk?bytes=700001": 700_001, "/chunk?bytes=0": 0, "/work?class=home&bytes=1": 1} {
		resp, body := get(t, h.Addr(), path)
		if resp.StatusCode != 200 || int(resp.ContentLength) != want || !bytes.Equal(body, content(want)) {
			t.Errorf("%s: status %d, length %d, %d bytes", path, resp.StatusCode, resp.ContentLength, len(body))
		}
	}
	for path, want := range map[string]int{
		"/chunk": 400, "/chunk?bytes=-1": 400, "/chunk?bytes=many": 400, "/chunk?bytes=99999999999999": 400, "/work?bytes=1&cpu=5000us": 501,
		"/work?disk=2": 501,
	} {
		if resp, body := get(t, h.Addr(), path); resp.StatusCode != want || len(body) < 10 {
			t.Errorf("%s: status %d, want %d: %s", path, resp.StatusCode, want, body)
		}
	}
}

func TestCountersAreExactAndTheMachineSeesOnlyItsOwn(t *testing.T) {
	o := options("h1")
	o.ProbeListen = "127.0.0.1:0"
	o.ProbeHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 7000)) })
	h, _ := start(t, o)
	if err := h.SetInterference(0.5); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); h.Counters().Neighbours == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	var service, probe int
	for range 3 {
		service += len(raw(t, h.Addr(), "/file"))
		service += len(raw(t, h.Addr(), "/healthz"))
		probe += len(raw(t, h.ProbeAddr(), "/probe"))
	}
	c := h.Counters()
	if int(c.Instance) != service || int(c.Probe) != probe || c.Neighbours == 0 {
		t.Errorf("counters %+v; the clients got %d and %d bytes", c, service, probe)
	}
	dev, err := fs.ReadFile(h.FS(), "proc/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(dev)), "\n")
	fields := strings.Fields(lines[len(lines)-1])
	if len(lines) != 4 || len(fields) != 17 || fields[0] != "eth0:" || fields[1] != "0" || fields[9] != fmt.Sprint(service+probe) {
		t.Errorf("want %d bytes sent by eth0 in\n%s", service+probe, dev)
	}
}

func TestMachineFiles(t *testing.T) {
	h, err := NewHost(options("h1"))
	if err != nil {
		t.Fatal(err)
	}
	if speed, err := fs.ReadFile(h.FS(), "sys/class/net/eth0/speed"); string(speed) != "400\n" {
		t.Errorf("speed %q: %v", speed, err)
	}
	if route, err := fs.ReadFile(h.FS(), "proc/net/route"); !strings.Contains(string(route), "\neth0\t00000000\t") {
		t.Errorf("routes %q: %v", route, err)
	}
	if info, err := fs.Stat(h.FS(), "proc/net/dev"); err != nil || info.Name() != "dev" || info.IsDir() || !info.Mode().IsRegular() {
		t.Errorf("stat: %+v, %v", info, err)
	}
	for name, want := range map[string]error{"proc/stat": fs.ErrNotExist, "/proc/net/dev": fs.ErrInvalid, "proc/../x": fs.ErrInvalid} {
		if _, err := h.FS().Open(name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

func TestSpeedBetweenTheKernelsUnitsIsAbsent(t *testing.T) {
	o := options("h1")
	o.Bandwidth = 1_500_000
	h, err := NewHost(o)
	if err != nil {
		t.Fatal(err)
	}
	if speed, err := fs.ReadFile(h.FS(), "sys/class/net/eth0/speed"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("speed %q: %v", speed, err)
	}
}

// On an emulated machine, Quell's network sensor measures the instance's use of the link and nothing of the neighbours' use.
func TestSensorReadsTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, 8_000_000)
		i := newInterferer(t, InterfererOptions{Link: l, Seed: 1})
		if err := i.SetUse(0.3); err != nil {
			t.Fatal(err)
		}
		network, err := sensor.NewNetwork(sensor.Options{Root: machine{l, time.Now}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var obs quell.Observation
		if err := network.Sample(start, &obs); err != nil {
			t.Fatal(err)
		}
		c, _ := over(l, OwnInstance)
		c.Write(make([]byte, 2_500_000))
		c.Close()
		time.Sleep(time.Until(start.Add(10 * time.Second)))
		if err := network.Sample(time.Now(), &obs); err != nil {
			t.Fatal(err)
		}
		if use := obs.Utilization[quell.Network]; math.Abs(use-0.25) > 1e-9 {
			t.Errorf("utilisation %v, want 0.25", use)
		}
	})
}

func TestThroughputOfABusyHost(t *testing.T) {
	h, _ := start(t, options("h1"))
	begin := time.Now()
	var clients sync.WaitGroup
	var mu sync.Mutex
	var received int
	for range 4 {
		clients.Go(func() {
			for range 25 {
				_, body := get(t, h.Addr(), "/file")
				mu.Lock()
				received += len(body)
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	took := time.Since(begin)
	if received != 100*50_000 {
		t.Errorf("%d bytes arrived", received)
	}
	// 5 MB need 0.1 s on the link. A download never takes less time, and even on a busy machine not many times as long.
	if took < 99*time.Millisecond || took > 10*time.Second {
		t.Errorf("5 MB over 400 Mbit/s took %v", took)
	}
}

func TestNeighboursSlowAHostDown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "noisy.json")
	noisy := options("noisy")
	noisy.Bandwidth, noisy.InterferenceFile = 40_000_000, path
	quiet := options("quiet")
	quiet.Bandwidth = noisy.Bandwidth
	n, _ := start(t, noisy)
	q, _ := start(t, quiet)
	if err := WriteInterference(path, map[quell.Resource]float64{quell.Network: 0.8}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); n.Counters().Neighbours == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the file had no effect")
		}
	}

	// Both hosts are asked for one file after the other; a file takes 10 ms without neighbours. When the host without neighbours has finished,
	// the other one has answered far fewer.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan int)
	go func() {
		files := 0
		for ctx.Err() == nil {
			raw(t, n.Addr(), "/file")
			files++
		}
		done <- files
	}()
	const files = 30
	for range files {
		raw(t, q.Addr(), "/file")
	}
	cancel()
	if got := <-done; got > files*3/4 {
		t.Errorf("beside neighbours at 0.8 it did %d files while the other did %d", got, files)
	}
}

func TestBootingMachineRefuses(t *testing.T) {
	o := options("h1")
	o.Boot = time.Hour
	h, _ := start(t, o)
	if resp, _ := get(t, h.Addr(), "/healthz"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while booting: %d", resp.StatusCode)
	}
	o.Boot = 50 * time.Millisecond
	h, _ = start(t, o)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if resp, _ := get(t, h.Addr(), "/healthz"); resp.StatusCode == 200 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it never boots")
		}
	}
}

func TestRunEndsWithOpenResponses(t *testing.T) {
	o := options("h1")
	o.Bandwidth = 80_000 // the file takes 5 s
	h, stop := start(t, o)
	resp, err := http.Get("http://" + h.Addr() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := stop(); err != nil {
		t.Errorf("told to end: %v", err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("the answer that was broken off looks complete, with %d bytes", n)
	}
	if c, err := net.Dial("tcp", h.Addr()); err == nil {
		c.Close()
		t.Error("it still listens")
	}
}

func TestRunEndsWithItsLifeline(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	o := options("h1")
	o.Lifeline = read
	h, err := NewHost(o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- h.Run(t.Context()) }()
	write.Close()
	if err := ended(t, done); err != nil {
		t.Errorf("the lifeline broke: %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	h, _ := start(t, options("h1"))
	o := options("h2")
	o.ProbeListen, o.ProbeHandler = h.Addr(), http.NotFoundHandler()
	second, err := NewHost(o)
	if err != nil {
		t.Fatal(err)
	}
	err = second.Run(t.Context())
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "host h2: ") || !strings.Contains(err.Error(), h.Addr()) {
		t.Errorf("got %v", err)
	}
	if second.Addr() != "127.0.0.1:0" {
		t.Errorf("the service's address stays open at %s", second.Addr())
	}
}

func TestAgentRunsBesideTheService(t *testing.T) {
	began, ended := make(chan string, 1), make(chan struct{})
	o := options("h1")
	o.Agent = func(ctx context.Context, root fs.FS) error {
		speed, _ := fs.ReadFile(root, "sys/class/net/eth0/speed")
		began <- string(speed)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	}
	_, stop := start(t, o)
	if speed := <-began; speed != "400\n" {
		t.Errorf("the agent's machine has speed %q", speed)
	}
	stop()
	<-ended

	o.Agent = func(context.Context, fs.FS) error { return errors.New("no bus") }
	h, _ := start(t, o)
	if resp, _ := get(t, h.Addr(), "/healthz"); resp.StatusCode != 200 {
		t.Errorf("after its agent failed: %d", resp.StatusCode)
	}
}

func TestHostMistakes(t *testing.T) {
	for name, damage := range map[string]func(*HostOptions){
		"id":           func(o *HostOptions) { o.ID = "" },
		"instance":     func(o *HostOptions) { o.Instance = "" },
		"listen":       func(o *HostOptions) { o.Listen = "" },
		"bandwidth":    func(o *HostOptions) { o.Bandwidth = 0 },
		"piece":        func(o *HostOptions) { o.Piece = -1 },
		"file_size":    func(o *HostOptions) { o.FileSize = -1 },
		"boot":         func(o *HostOptions) { o.Boot = -1 },
		"drain":        func(o *HostOptions) { o.Drain = -1 },
		"interferer":   func(o *HostOptions) { o.InterferenceFlow = -1 },
		"probe_listen": func(o *HostOptions) { o.ProbeListen = "127.0.0.1:0" },
	} {
		o := options("h1")
		damage(&o)
		var invalid *quell.InvalidError
		if _, err := NewHost(o); !errors.As(err, &invalid) || invalid.Path != name {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
