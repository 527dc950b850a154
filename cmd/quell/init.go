package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/agentless/look"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/setup"
)

// initFlags are the flags of `quell init`.
type initFlags struct {
	backend, service, out, burst string
	force, agentless, act        bool
	watch                        watchFlags
}

func initCommand() *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init SOCKET | ADDRESS... [--out quell.yaml] [--agentless]",
		Short: "Write a first configuration from HAProxy's socket or a list of addresses; --agentless: look at them from here, install nothing",
		Long: "Write a commented configuration from what HAProxy's runtime socket, or a list of host:port, shows, with what was measured\n" +
			"from here, and print one line for each machine that installs the agent there. Nothing is changed at the balancer or the servers.\n\n" +
			"With --agentless no configuration is written: the servers are watched from here for a while, and the command says which of\n" +
			"them are slowed by something beside their requests, and what cannot be told without an agent.",
		Args: someNamed("SOCKET or ADDRESS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			facts, servers, err := f.find(cmd.Context(), args)
			if err != nil {
				return err
			}
			if f.agentless {
				return f.watch.run(cmd, facts, servers)
			}
			measure(cmd.Context(), facts, f.burst)
			facts.Act, facts.Data = f.act, dataFor(f.out)
			return f.write(cmd.OutOrStdout(), facts)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.backend, "backend", "", "HAProxy's backend; needed if it has several")
	fl.StringVar(&f.service, "service", "", "name of the service; default: the backend's, or service")
	fl.StringVar(&f.out, "out", "quell.yaml", "file for the configuration; - prints it")
	fl.BoolVar(&f.force, "force", false, "write over an existing file")
	fl.StringVar(&f.burst, "burst", "", "measure the link: download this path for up to one second and 32 MB from up to three instances")
	fl.BoolVar(&f.act, "act", false, "write mode: act, so that Quell sets weights as soon as its predictions are proven; else mode: advise")
	fl.BoolVar(&f.agentless, "agentless", false, "look from here, write no configuration")
	f.watch.add(fl)
	return cmd
}

// dataFor is where the packages' services store their files, if the configuration is theirs.
func dataFor(config string) string {
	if path, err := filepath.Abs(config); err == nil && path == "/etc/quell/quell.yaml" {
		return "/var/lib/quell"
	}
	return ""
}

// mostAddresses bounds a list of addresses.
const mostAddresses = 10_000

func (f *initFlags) check(args []string) error {
	switch {
	case len(args) > mostAddresses:
		return userErrorf("%d addresses: at most %d", len(args), mostAddresses)
	case f.burst != "" && !strings.HasPrefix(f.burst, "/"):
		return userErrorf("--burst %q: must begin with /", f.burst)
	case f.agentless:
		return f.watch.check()
	}
	return nil
}

// find asks HAProxy, or takes the addresses.
func (f *initFlags) find(ctx context.Context, args []string) (*setup.Facts, []look.Server, error) {
	facts := &setup.Facts{Service: f.service, From: "quell init " + strings.Join(args[:min(len(args), 3)], " ")}
	if info, err := os.Stat(args[0]); err == nil && info.Mode().Type() == fs.ModeSocket && !strings.Contains(args[0], "/") {
		args = append([]string{"./" + args[0]}, args[1:]...)
	}
	if !strings.Contains(args[0], "/") {
		return facts, nil, addresses(facts, args)
	}
	if len(args) > 1 {
		return nil, nil, userErrorf("name one socket, or addresses as host:port")
	}
	h, err := look.AskHAProxy(ctx, args[0])
	if err != nil {
		return nil, nil, err
	}
	servers, err := h.Backend(f.backend)
	if err != nil {
		return nil, nil, userErrorf("%w", err)
	}
	facts.Socket, facts.Backend, facts.Level = args[0], servers[0].Backend, h.Level
	if facts.Socket, err = filepath.Abs(args[0]); err != nil {
		return nil, nil, err
	}
	facts.Service = cmp.Or(facts.Service, facts.Backend)
	sum, n := 0.0, 0.0
	for _, s := range servers {
		if s.Address == "" || s.Backup {
			continue
		}
		facts.Instances = append(facts.Instances, setup.Instance{ID: s.Name, Address: s.Address, Weight: s.Weight})
		if s.LatencyMS > 0 {
			sum, n = sum+s.LatencyMS, n+1
		}
	}
	if h.Level == "user" && len(facts.Instances) == 0 {
		return nil, nil, userErrorf("HAProxy's socket %s (level user) does not show the servers' addresses: "+
			"set `level admin` at its `stats socket` in haproxy.cfg", args[0])
	}
	if len(facts.Instances) == 0 {
		return nil, nil, userErrorf("backend %s has no server with an address", facts.Backend)
	}
	if n > 0 {
		facts.LatencyMS = sum / n
	}
	return facts, servers, nil
}

func addresses(facts *setup.Facts, args []string) error {
	facts.Service = cmp.Or(facts.Service, "service")
	seen := map[string]bool{}
	for i, a := range args {
		host, port, err := net.SplitHostPort(a)
		if err != nil || host == "" || port == "" {
			return userErrorf("%q is no address: write host:port, or the path of HAProxy's socket", a)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return userErrorf("%q: the port must be a number from 1 to 65535", a)
		}
		if seen[a] {
			return userErrorf("%s is named twice", a)
		}
		seen[a] = true
		facts.Instances = append(facts.Instances, setup.Instance{ID: fmt.Sprintf("%s-%d", facts.Service, i+1), Address: a})
	}
	return nil
}

// healthPaths are tried in turn.
var healthPaths = []string{"/healthz", "/health", "/ready", "/status", "/"}

// measure connects to every instance, looks for a path that shows their health, and finds this machine's address.
func measure(ctx context.Context, facts *setup.Facts, burst string) {
	answers := make([]map[string]bool, len(facts.Instances))
	each(len(facts.Instances), func(i int) {
		in := &facts.Instances[i]
		began := time.Now()
		conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", in.Address)
		if err != nil {
			in.Problem = "not reached from here: " + err.Error()
			return
		}
		in.ConnectMS = float64(time.Since(began)) / float64(time.Millisecond)
		conn.Close()
		answers[i] = healthy(ctx, in.Address)
	})
	for _, path := range healthPaths {
		if allAnswer(answers, path) {
			facts.Health = path
			break
		}
	}
	limited, cancel := context.WithTimeout(ctx, 5*time.Second) // names are looked up
	defer cancel()
	facts.Here = seenAs(facts.Instances, reachedFrom(limited))
	for i := range facts.Instances[:min(len(facts.Instances), 3)] {
		if in := &facts.Instances[i]; burst != "" && in.Problem == "" {
			in.BitsPerS = throughput(ctx, "http://"+in.Address+burst)
		}
	}
}

// seenAs returns this machine's address as the first instance on another machine sees it; that of loopback if all instances are here. from
// returns the address from which one is reached.
func seenAs(instances []setup.Instance, from func(address string) (net.Addr, error)) string {
	for i := range instances {
		at, err := from(instances[i].Address)
		if udp, ok := at.(*net.UDPAddr); err == nil && ok && !udp.IP.IsLoopback() {
			return udp.IP.String()
		}
	}
	return "127.0.0.1"
}

// reachedFrom returns the address of this machine from which another one is reached. It sends nothing.
func reachedFrom(ctx context.Context) func(address string) (net.Addr, error) {
	return func(address string) (net.Addr, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", address)
		if err != nil {
			return nil, err
		}
		return conn.LocalAddr(), conn.Close()
	}
}

// each calls a function for 0 to n-1, several at a time.
func each(n int, do func(i int)) {
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(n, 64) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}

func healthy(ctx context.Context, address string) map[string]bool {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := http.Client{Timeout: 2 * time.Second, CheckRedirect: stay}
	defer client.CloseIdleConnections()
	found := map[string]bool{}
	for _, path := range healthPaths {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			continue
		}
		if answer, err := client.Do(request); err == nil {
			answer.Body.Close()
			found[path] = answer.StatusCode == http.StatusOK
		}
	}
	return found
}

// allAnswer returns whether every instance that was reached answers a path with 200; false if none was reached.
func allAnswer(answers []map[string]bool, path string) bool {
	any := false
	for _, a := range answers {
		if a != nil && !a[path] {
			return false
		}
		any = any || a != nil
	}
	return any
}

// Bounds of a burst.
const (
	burstTime  = time.Second
	burstBytes = 32 << 20
	burstConns = 4
)

// throughput downloads a URL again and again over a few connections, and returns bits per second; 0 if it failed.
func throughput(ctx context.Context, url string) float64 {
	ctx, cancel := context.WithTimeout(ctx, burstTime)
	defer cancel()
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: burstConns}}
	defer client.CloseIdleConnections()
	var got atomic.Int64
	began := time.Now()
	each(burstConns, func(int) {
		for ctx.Err() == nil && got.Load() < burstBytes {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return
			}
			answer, err := client.Do(request)
			if err != nil {
				return
			}
			n, err := io.Copy(io.Discard, io.LimitReader(answer.Body, burstBytes-got.Load()))
			answer.Body.Close()
			if got.Add(n); answer.StatusCode != http.StatusOK || err != nil {
				return
			}
		}
	})
	return 8 * float64(got.Load()) / time.Since(began).Seconds()
}

// giveToUnits makes a secret that root wrote the property of the user of the packages' units, who must read it.
func (f *initFlags) giveToUnits(path string) error {
	units, err := user.Lookup("quell")
	if err != nil || os.Geteuid() != 0 || dataFor(f.out) == "" {
		return nil // the packages are not installed, or the file is not theirs
	}
	id, failed := strconv.Atoi(units.Uid)
	group, wrong := strconv.Atoi(units.Gid)
	if err := cmp.Or(failed, wrong); err != nil {
		return err
	}
	return os.Chown(path, id, group)
}

// write checks the configuration, writes it and the token of the probes, and says what comes next.
func (f *initFlags) write(w io.Writer, facts *setup.Facts) error {
	text := setup.Config(facts)
	if _, err := daemon.Drivers().Parse(f.out, []byte(text)); err != nil {
		return fmt.Errorf("what was found makes no valid configuration: %w", err)
	}
	if f.out == "-" {
		_, err := io.WriteString(w, text)
		return err
	}
	put := atomicfile.Create
	if f.force {
		put = atomicfile.WriteNamed
	}
	if err := put(f.out, []byte(text), 0o644); errors.Is(err, fs.ErrExist) {
		return userErrorf("%s exists: --force writes over it, --out names another file", f.out)
	} else if err != nil {
		return err
	}
	if strings.Contains(text, "token_file") {
		secret := make([]byte, 32)
		rand.Read(secret)
		token := filepath.Join(filepath.Dir(f.out), "token")
		switch err := atomicfile.Create(token, []byte(hex.EncodeToString(secret)+"\n"), 0o600); {
		case err == nil:
			if err := f.giveToUnits(token); err != nil {
				return err
			}
		case !errors.Is(err, fs.ErrExist):
			return err
		}
	}
	fmt.Fprintf(w, "%s: %d instance(s) of %s. Read it, then start:\n\n", f.out, len(facts.Instances), facts.Service)
	fmt.Fprintf(w, "  quell controller --config %s\n", f.out)
	if facts.Socket == "" {
		fmt.Fprintf(w, "  quell balancer --config %s\n", f.out)
	}
	if facts.Socket != "" {
		fmt.Fprintf(w, "\nResponse times are read from HAProxy's log. Without it only a rough mean is known, and no percentile. In HAProxy's\n"+
			"configuration add, in section global, beside your own log:\n\n  log %s local0\n\n"+
			"Its frontends need `log global` and `option httplog`. Then reload HAProxy.\n", setup.LogAddress)
	}
	fmt.Fprintf(w, "\nOn each machine, with one line:\n\n")
	for _, line := range setup.Install(facts, f.out) {
		fmt.Fprintf(w, "  %s\n", line)
	}
	for i := range facts.Instances {
		if in := &facts.Instances[i]; in.Problem != "" {
			fmt.Fprintf(w, "\n%s (%s): %s\n", in.ID, in.Address, in.Problem)
		}
	}
	if f.burst == "" {
		fmt.Fprintf(w, "\nThe capacity of the links was not measured: %s is written. If they are smaller, neighbours are noticed late.\n"+
			"Correct it, or measure it with --burst /PATH of a large file.\n", setup.AssumedLink)
	}
	_, err := fmt.Fprintf(w, "\nThen quell status --config %s shows the first severities, and quell doctor --config %s what is missing.\n",
		f.out, f.out)
	return err
}
