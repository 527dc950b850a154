package lvs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/quellhq/quell/internal/guest"
)

// Environment of the play of ICE over IPVS.
const (
	iceOut     = "QUELL_ICE_LVS"     // file for its figures; without it nothing is played, because it takes minutes
	iceProgram = "QUELL_ICE_PROGRAM" // in the guest: path of quell
	iceRole    = "QUELL_ICE_ROLE"    // of a process in the guest: an address to serve at, or neighbour
)

const iceFigures = "ICE-FIGURES " // begins the line with the figures

// TestICEOverLVS plays ICE over IPVS: two servers that compute, each on a processor of the guest's, with a real agent each, and a real
// controller with policy ice. A neighbour takes the first server's processor three times. The figures go to a file.
func TestICEOverLVS(t *testing.T) {
	out := os.Getenv(iceOut)
	if out == "" {
		t.Skip("takes ten minutes: go run ./cmd/results ice:lvs")
	}
	dir, err := os.MkdirTemp("/var/tmp", "quell-ice") // the guest's /tmp is its own
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "quell")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "github.com/quellhq/quell/cmd/quell")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	said := guest.Machine{Programs: []string{program}, Processors: 3, MemoryMB: 1500, Longest: 20 * time.Minute,
		Env: []string{iceProgram + "=" + program}}.Run(t, "../..", "ip_vs", "ip_vs_wrr")
	_, figures, found := strings.Cut(said, iceFigures)
	if !found {
		t.Fatal("the guest printed no figures")
	}
	line, _, _ := strings.Cut(figures, "\n")
	if err := os.WriteFile(out, []byte(strings.TrimSpace(line)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The times and the load of the play.
const (
	iceSettles   = 40 * time.Second // of controller and agents, which learn what is usual
	iceDisturbed = 40 * time.Second // the neighbour is there
	iceCalm      = 45 * time.Second // it is away
	iceOnsets    = 3
	iceWork      = 20 * time.Millisecond // processor time of a request
	iceRate      = 8                     // requests per second to both servers
	iceWeight    = 300                   // of the neighbour's group; a server's has 100
)

// icePlay is the play.
type icePlay struct {
	t     *testing.T
	v     virtual
	began time.Time

	said []string // files with what programs said

	mu       sync.Mutex
	requests []iceRequest
	shares   []iceShare
}

// iceRequest is a request that has ended, and iceShare a share of the first server that IPVS had from then on. Times are in seconds since
// the beginning.
type iceRequest struct {
	at, ms float64
	server string // "": it failed
}

type iceShare struct{ at, share float64 }

// icePhase sums up the requests of a time.
type icePhase struct {
	Name     string             `json:"name"`
	FromS    float64            `json:"from_s"`
	UntilS   float64            `json:"until_s"`
	Requests map[string]int     `json:"requests"`
	MedianMS map[string]float64 `json:"median_ms"`
	P90MS    map[string]float64 `json:"p90_ms"`
	Failed   int                `json:"failed"`
	CutS     *float64           `json:"cut_s,omitempty"`  // from the neighbour's begin to the first cut
	Least    *float64           `json:"least,omitempty"`  // smallest share of the first server
	BackS    *float64           `json:"back_s,omitempty"` // from the neighbour's end until the shares are equal again
}

// guestICE plays in the guest.
func guestICE(t *testing.T, program string) {
	p := &icePlay{t: t, began: time.Now()}
	p.v, _ = parseVirtual(vip)
	p.serve()
	stop := p.load()
	time.Sleep(iceSettles / 4)
	phases := []icePhase{p.phase("calm, no controller", iceCalm/3), p.disturbed("neighbour, no controller")}
	time.Sleep(iceCalm / 3)
	p.start(program)
	time.Sleep(iceSettles)
	phases = append(phases, p.phase("calm", iceCalm/3))
	cuts := 0
	for n := range iceOnsets {
		one := p.disturbed(fmt.Sprintf("neighbour %d", n+1))
		gone := p.seconds()
		after := p.phase(fmt.Sprintf("after %d", n+1), iceCalm)
		p.judge(&one, gone)
		if phases = append(phases, one, after); one.CutS == nil {
			continue // on a busy machine the guest's agents do not report in time
		}
		if cuts++; one.BackS == nil {
			t.Errorf("onset %d: shares are not equal again after %v", n+1, iceCalm)
		}
	}
	if cuts == 0 {
		t.Error("no neighbour led to a cut")
	}
	stop()
	for _, one := range phases {
		if one.Failed > 0 {
			t.Errorf("%s: %d requests failed", one.Name, one.Failed)
		}
	}
	line, err := json.Marshal(phases)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s%s\n", iceFigures, line)
}

func (p *icePlay) seconds() float64 { return time.Since(p.began).Seconds() }

// serve makes the groups, the servers and their virtual service. Everything else runs on the third processor.
func (p *icePlay) serve() {
	t := p.t
	if err := errors.Join(os.MkdirAll("/sys", 0o755), unix.Mount("sysfs", "/sys", "sysfs", 0, ""),
		unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""),
		os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu +cpuset"), 0)); err != nil {
		t.Fatal(err)
	}
	for group, keys := range map[string]map[string]string{
		"web-1": {"cpuset.cpus": "0"}, "web-2": {"cpuset.cpus": "1"}, "rest": {"cpuset.cpus": "2"},
		"neighbour": {"cpuset.cpus": "0", "cpu.weight": strconv.Itoa(iceWeight)},
	} {
		at := filepath.Join("/sys/fs/cgroup", group)
		err := os.Mkdir(at, 0o755)
		for key, value := range keys {
			err = errors.Join(err, os.WriteFile(filepath.Join(at, key), []byte(value), 0))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("/sys/fs/cgroup/rest/cgroup.procs", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	makeService(t, p.v)
	for group, address := range map[string]string{"web-1": realOne, "web-2": realTwo} {
		p.child(group, address)
		makeReal(t, p.v, address, 100, attr{destMethod, nl.Uint32Attr(0)}, attr{destUpper, nl.Uint32Attr(0)}, attr{destLower, nl.Uint32Attr(0)})
		for range 600 {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				conn.Close()
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// child starts this program in a role and a group. It is killed at the latest when the test ends.
func (p *icePlay) child(group, role string) (end func()) {
	dir, err := os.Open(filepath.Join("/sys/fs/cgroup", group))
	if err != nil {
		p.t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("/init")
	cmd.Env = []string{iceRole + "=" + role, "GOMAXPROCS=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p.t.Cleanup(end)
	return end
}

// load sends requests at a constant rate, each in a connection of its own, and watches the shares.
func (p *icePlay) load() (stop func()) {
	done := make(chan struct{})
	var all sync.WaitGroup
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	all.Go(func() {
		tick := time.NewTicker(time.Second / iceRate)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case at := <-tick.C:
				all.Go(func() { p.request(&client, at) })
			}
		}
	})
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
				p.watch()
			}
		}
	})
	return func() { close(done); all.Wait() }
}

func (p *icePlay) request(client *http.Client, at time.Time) {
	r := iceRequest{at: at.Sub(p.began).Seconds()}
	resp, err := client.Get("http://" + vip + "/")
	if err == nil {
		var body []byte
		if body, err = io.ReadAll(resp.Body); err == nil && resp.StatusCode == http.StatusOK {
			r.server = string(body)
		}
		resp.Body.Close()
	}
	r.ms = time.Since(at).Seconds() * 1000
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r)
}

// watch enters the share of the first server if it has changed.
func (p *icePlay) watch() {
	s, err := new(netlink).look(p.v)
	if err != nil || len(s.reals) != 2 {
		return
	}
	sum, first := 0, 0
	for _, r := range s.reals {
		sum += r.weight
		if r.address.String() == realOne {
			first = r.weight
		}
	}
	if sum == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if share := float64(first) / float64(sum); len(p.shares) == 0 || p.shares[len(p.shares)-1].share != share {
		p.shares = append(p.shares, iceShare{p.seconds(), share})
	}
}

// phase waits, and sums up the requests that began meanwhile.
func (p *icePlay) phase(name string, length time.Duration) icePhase {
	one := icePhase{Name: name, FromS: p.seconds(), Requests: map[string]int{}, MedianMS: map[string]float64{}, P90MS: map[string]float64{}}
	time.Sleep(length)
	one.UntilS = p.seconds()
	p.mu.Lock()
	defer p.mu.Unlock()
	took := map[string][]float64{}
	for _, r := range p.requests {
		switch {
		case r.at < one.FromS || r.at >= one.UntilS:
		case r.server == "":
			one.Failed++
		default:
			took[r.server] = append(took[r.server], r.ms)
		}
	}
	for server, ms := range took {
		slices.Sort(ms)
		one.Requests[server], one.MedianMS[server], one.P90MS[server] = len(ms), ms[len(ms)/2], ms[len(ms)*9/10]
	}
	return one
}

// disturbed is a phase in which the neighbour is there.
func (p *icePlay) disturbed(name string) icePhase {
	defer p.child("neighbour", "neighbour")()
	return p.phase(name, iceDisturbed)
}

// judge enters what became of the first server's share.
func (p *icePlay) judge(one *icePhase, gone float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	least := 1.0
	for _, s := range p.shares {
		switch cut := s.share < 0.49; {
		case s.at < one.FromS:
		case cut:
			if one.CutS == nil && s.at < one.UntilS {
				after := s.at - one.FromS
				one.CutS = &after
			}
			least = min(least, s.share)
			one.BackS = nil
		case s.at > gone && s.share < 0.51 && one.BackS == nil:
			after := s.at - gone
			one.BackS = &after
		}
	}
	if one.CutS != nil {
		one.Least = &least
	}
}

// start starts the controller and an agent for each server.
func (p *icePlay) start(program string) {
	const common = "service: shop\nslo: {metric: p90, threshold: 1s}\nsampling: 2s\n"
	write := func(path, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			p.t.Fatal(err)
		}
	}
	const config = "/run/c/quell.yaml"
	write(config, common+fmt.Sprintf("data: data\nlisten: \"127.0.0.1:9400\"\nbus: {listen: \"127.0.0.1:4222\"}\npolicy: {name: ice}\n"+
		"balancer: {kind: lvs, lvs: {services: [%q]}}\nscaler: {kind: fixed, instances: [{id: web-1, address: %q}, {id: web-2, address: %q}]}\n",
		vip, realOne, realTwo))
	p.process(program, "controller", "--config", config)
	for i, id := range []string{"web-1", "web-2"} {
		own := "/run/" + id
		write(own+"/quell.yaml", common+fmt.Sprintf("data: data\nbus: {url: \"nats://127.0.0.1:4222\", credentials: bus.creds}\n"+
			"probe: {listen: \"127.0.0.1:%d\"}\nagent: {instance: %s, cgroup: /%s, interface: lo, capacity: {network: 1Gbps}}\n", 9466+i, id, id))
		p.run(program, "credentials", "sensor", id, "--config", config, "--out", own+"/bus.creds")
		p.process(program, "agent", "--config", own+"/quell.yaml")
	}
}

// run runs a command, again until it succeeds: the controller takes a while to start.
func (p *icePlay) run(argv ...string) {
	var out []byte
	var err error
	for range 60 {
		if out, err = exec.Command(argv[0], argv[1:]...).CombinedOutput(); err == nil {
			return
		}
		time.Sleep(time.Second)
	}
	p.t.Fatalf("%v: %v: %s", argv, err, out)
}

// process starts a program that runs until the test ends. What it says is printed if the test fails.
func (p *icePlay) process(argv ...string) {
	said := filepath.Join("/run", fmt.Sprintf("said-%d.log", len(p.said)))
	p.said = append(p.said, said)
	log, err := os.Create(said)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, filepath.Dir(argv[3])
	cmd.Env = append(os.Environ(), "HOME=/run")
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
		if p.t.Failed() {
			text, _ := os.ReadFile(said)
			p.t.Logf("%v: %s", argv[1:], text)
		}
	})
}

// playICERole is a process of the play: a neighbour that computes for ever, or a server at an address.
func playICERole(role string) int {
	if role == "neighbour" {
		for {
			spin(time.Hour)
		}
	}
	server := http.Server{Addr: role, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		spin(iceWork)
		_, _ = io.WriteString(w, role)
	})}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	return 1
}

// spin computes until the thread has used so much processor time.
func spin(d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var u unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	sum := 0
	for end := used() + d; used() < end; {
		for n := range 20_000 {
			sum += n ^ sum
		}
	}
	runtime.KeepAlive(sum)
}
