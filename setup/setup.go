// Package setup writes a first configuration from what was found about a service. It is pure.
package setup

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// Instance is a server that was found.
type Instance struct {
	ID, Address string
	Weight      float64 // that people gave it; 0: unknown
	ConnectMS   float64 // 0: not measured
	Problem     string  // why it cannot be reached
	BitsPerS    float64 // a burst's throughput; 0: not measured
}

// Facts are what was found.
type Facts struct {
	Service   string
	Socket    string // HAProxy's; empty: the built-in balancer
	Backend   string
	Level     string  // of the socket
	LatencyMS float64 // mean of requests at present; 0: unknown
	Health    string  // a path that every instance answers with 200; empty: none was found
	Here      string  // this machine's address, as the instances see it
	Instances []Instance
	From      string // the command that found it
	Data      string // where Quell stores its files; empty: quell-data beside the configuration
	Act       bool   // it sets weights from the start, instead of advising
}

// probePort is the first port of probe servers.
const probePort = 9466

// Config returns the configuration. What was measured stands in its comments.
func Config(f *Facts) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	mode, about := "advise", "when quell report says that acting saves something: act"
	if f.Act {
		mode, about = "act", "advise only measures, and writes down what it would do"
	}
	line("# Written by %s. With mode advise Quell only measures, and writes down what it would do.", comment(f.From))
	line("service: %s", quoted(f.Service))
	line("slo: {metric: mean, threshold: %s}    # %s", threshold(f.LatencyMS), basis(f.LatencyMS))
	line("sampling: 10s")
	line("mode: %-31s # %s", mode, about)
	line("models: learn")
	line("data: %s", cmp.Or(f.Data, "quell-data"))
	line("listen: 127.0.0.1:9464                # metrics")
	line("bus: {listen: %s, credentials: bus.creds}   # agents connect to this machine here", quoted(net.JoinHostPort(f.Here, "4222")))
	line("")
	f.balancer(line)
	line("")
	line("scaler:")
	line("  kind: fixed")
	line("  instances:")
	ports := f.probePorts()
	for i := range f.Instances {
		in := &f.Instances[i]
		line("    - {id: %s, address: %s, probe: %s}   # %s", quoted(in.ID), quoted(in.Address),
			quoted(net.JoinHostPort(in.host(), strconv.Itoa(ports[i]))), in.found())
	}
	line("")
	token := ", token_file: token"
	if f.local() {
		token = ""
	}
	line("probe: {listen: %s, budget: 2%%%s}", quoted(f.listen()), token)
	line("agent:")
	bits, how := f.link()
	line("  capacity: {network: %s}             # of one instance: %s", bits, how)
	if f.local() {
		line("  interface: lo")
	}
	return b.String()
}

func (f *Facts) balancer(line func(string, ...any)) {
	line("balancer:")
	if f.Socket == "" {
		line("  kind: builtin")
		line("  listen: \":8080\"                     # where clients connect")
		if f.Health != "" {
			line("  health: {path: %s}                # every instance answers it with 200", quoted(f.Health))
		} else {
			line("  health: {path: /}                   # no path was found that every instance answers with 200: name one")
		}
		return
	}
	line("  kind: haproxy")
	line("  haproxy:")
	if f.Level == "admin" {
		line("    sockets: [%s]", quoted(f.Socket))
	} else {
		line("    sockets: [%s]    # level %s: enough to advise; to act, haproxy.cfg needs `stats socket ... level admin`", quoted(f.Socket),
			f.Level)
	}
	line("    backend: %s", quoted(f.Backend))
	line("    log: %s               # in haproxy.cfg, section global: log %s local0; and option httplog", LogAddress, LogAddress)
}

// threshold proposes an objective: three times the present mean, to two digits.
func threshold(ms float64) string {
	if !(ms > 0) || math.IsInf(ms, 0) {
		return "100ms"
	}
	v := 3 * ms
	digit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return strconv.FormatFloat(math.Ceil(v/digit)*digit, 'g', 6, 64) + "ms"
}

func basis(ms float64) string {
	if !(ms > 0) {
		return "no requests were measured: set what users need"
	}
	return fmt.Sprintf("three times the present mean of %.3g ms: set what users need", ms)
}

// found says what was measured of an instance.
func (in *Instance) found() string {
	var parts []string
	if in.Weight > 0 {
		parts = append(parts, fmt.Sprintf("weight %g", in.Weight))
	}
	if in.ConnectMS > 0 {
		parts = append(parts, fmt.Sprintf("connects in %.2g ms", in.ConnectMS))
	}
	if in.BitsPerS > 0 {
		parts = append(parts, fmt.Sprintf("a burst carried %.0f Mbit/s", in.BitsPerS/1e6))
	}
	if in.Problem != "" {
		parts = append(parts, comment(in.Problem))
	}
	return strings.Join(append(parts, "found"), ", ")
}

// LogAddress is where the controller listens for HAProxy's log.
const LogAddress = "127.0.0.1:5514"

// AssumedLink is the capacity that a configuration begins with where no burst measured it.
const AssumedLink = "1Gbps"

// link returns the capacity of an instance's link, and where it is from.
func (f *Facts) link() (bits, how string) {
	best := 0.0
	for _, in := range f.Instances {
		best = max(best, in.BitsPerS)
	}
	if best > 0 {
		return fmt.Sprintf("%.0fMbps", math.Max(1, best/1e6)), "the fastest burst; correct it if it is known better"
	}
	return AssumedLink, "not measured (--burst PATH measures it): set what your provider promises"
}

func (in *Instance) host() string {
	host, _, err := net.SplitHostPort(in.Address)
	if err != nil {
		return in.Address
	}
	return host
}

func (f *Facts) local() bool {
	for i := range f.Instances {
		if ip := net.ParseIP(f.Instances[i].host()); ip == nil || !ip.IsLoopback() {
			return false
		}
	}
	return true
}

// listen is where probe servers listen.
func (f *Facts) listen() string {
	if f.local() {
		return fmt.Sprintf("127.0.0.1:%d", probePort)
	}
	return fmt.Sprintf(":%d", probePort)
}

// probePorts gives instances of one machine different ports.
func (f *Facts) probePorts() []int {
	next := map[string]int{}
	ports := make([]int, len(f.Instances))
	for i := range f.Instances {
		host := f.Instances[i].host()
		ports[i] = probePort + next[host]
		next[host]++
	}
	return ports
}

// Install returns one line for each machine, which copies the program and its files there and starts the agent, and the command that makes
// their credentials.
func Install(f *Facts, config string) (lines []string) {
	token := shell(filepath.Join(filepath.Dir(config), "token"))
	for i := range f.Instances {
		in := &f.Instances[i]
		id, host := shell(in.ID), shell("root@"+in.host())
		if f.local() {
			lines = append(lines, f.here(i, config))
			continue
		}
		lines = append(lines, fmt.Sprintf("quell credentials sensor %s --config %s --out %s.creds && ssh %s 'mkdir -p /etc/quell' && "+
			"scp $(command -v quell) %s:/usr/local/bin/ && scp %s %s:/etc/quell/quell.yaml && scp %s %s:/etc/quell/token && "+
			"scp %s.creds %s:/etc/quell/bus.creds && ssh %s systemd-run --unit quell-agent /usr/local/bin/quell agent --config "+
			"/etc/quell/quell.yaml --instance %s", id, shell(config), id, host, host, shell(config), host, token, host, id, host, host, id))
	}
	return lines
}

// here starts the agent of an instance on this machine. Each needs a copy of the file with the address of its own probe server.
func (f *Facts) here(i int, config string) string {
	id := f.Instances[i].ID
	if i == 0 {
		return fmt.Sprintf("quell agent --config %s --instance %s", shell(config), shell(id))
	}
	own := shell(strings.TrimSuffix(config, ".yaml") + "-" + id + ".yaml")
	return fmt.Sprintf("sed '/^probe:/s/:%d/:%d/' %s > %s && quell agent --config %s --instance %s", probePort, f.probePorts()[i],
		shell(config), own, own, shell(id))
}

// quoted writes a string for YAML.
func quoted(s string) string { return strconv.QuoteToASCII(s) }

// comment makes a text safe in a comment.
func comment(s string) string { return strings.Join(strings.Fields(s), " ") }

// shell quotes a word for a shell.
func shell(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@._-/:", r))
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
