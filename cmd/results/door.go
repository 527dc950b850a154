package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

const (
	doorRounds   = 9
	doorRequests = 8000
	doorClients  = 32
	doorBody     = 1024
)

// doorFigures are the costs of proxies that stand between the same clients and the same instance.
type doorFigures struct {
	place
	Rounds, Requests, Clients, Body int
	Rows                            []doorRow
}

// doorRow is one proxy with one protocol. The ratios are those of its cost to Quell's with the same protocol, in the same round.
type doorRow struct {
	Proxy, Protocol  string
	Cost             float64 // processor time of the proxy for each request, in seconds
	Ratio, Low, High float64
}

// doorPage measures the built-in balancer, HAProxy, and an older build of the balancer if QUELL_BEFORE names one.
func doorPage(ctx context.Context, dir string) error {
	costs, err := playDoor(ctx)
	if err != nil {
		return err
	}
	f := doorFigures{place: here(), Rounds: doorRounds, Requests: doorRequests, Clients: doorClients, Body: doorBody}
	f.Rows = doorRows(costs)
	return writePage(dir, "door", f)
}

// doorRun is a proxy and a protocol of its clients.
type doorRun struct{ proxy, protocol string }

// doorRows sums up the costs of each run, which are in order of rounds.
func doorRows(costs map[doorRun][]float64) (rows []doorRow) {
	for run, all := range costs {
		var ratios []float64
		for i, cost := range costs[doorRun{"Quell", run.protocol}] {
			ratios = append(ratios, all[i]/cost)
		}
		slices.Sort(ratios)
		sorted := slices.Sorted(slices.Values(all))
		rows = append(rows, doorRow{Proxy: run.proxy, Protocol: run.protocol, Cost: sorted[len(sorted)/2], Ratio: ratios[len(ratios)/2],
			Low: ratios[0], High: ratios[len(ratios)-1]})
	}
	slices.SortFunc(rows, func(a, b doorRow) int {
		return cmp.Or(strings.Compare(a.Protocol, b.Protocol), -strings.Compare(a.Proxy, b.Proxy))
	})
	return rows
}

// playDoor plays all runs in turn, in each round once, and returns the processor time for each request.
func playDoor(ctx context.Context) (costs map[doorRun][]float64, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	body := bytes.Repeat([]byte("x"), doorBody)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(body) })}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()
	folder, err := os.MkdirTemp("", "quell-door")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	proxies, err := startDoor(ctx, folder, ln.Addr().String())
	for _, p := range proxies {
		defer p.stop()
	}
	if err != nil {
		return nil, err
	}
	costs = map[doorRun][]float64{}
	for _, protocol := range []string{doorHTTP1, doorHTTP2} {
		for range doorRounds {
			for _, p := range proxies {
				if !slices.Contains(p.protocols, protocol) {
					continue
				}
				cost, err := p.play(ctx, protocol)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", p.name, protocol, err)
				}
				run := doorRun{p.name, protocol}
				costs[run] = append(costs[run], cost)
			}
		}
	}
	return costs, nil
}

const (
	doorHTTP1 = "HTTP/1.1"
	doorHTTP2 = "HTTP/2"

	doorQuell = `service: door
slo: {metric: mean, threshold: 50ms}
policy: {name: static}
data: %s
bus: {listen: "127.0.0.1:%d"}
listen: off
balancer: {listen: "%s", metrics: off}
probe: {token: any}
scaler: {kind: fixed, instances: [{id: i1, address: "%s"}]}
`

	doorHAProxy = `
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend door
  bind %s
  default_backend web
backend web
  server i1 %s
`
)

// doorProxy is a running proxy.
type doorProxy struct {
	name, address string
	protocols     []string
	cmd           *exec.Cmd
}

// startDoor starts the proxies before the instance at an address.
func startDoor(ctx context.Context, folder, instance string) (all []*doorProxy, err error) {
	both := []string{doorHTTP1, doorHTTP2}
	start := func(name string, protocols []string, config string, command func(file string) *exec.Cmd) {
		if err != nil {
			return
		}
		p := &doorProxy{name: name, protocols: protocols}
		if p.address, err = freeDoor(); err != nil {
			return
		}
		file := filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+".conf")
		switch {
		case strings.HasPrefix(name, "Quell"):
			data := filepath.Join(folder, strings.ReplaceAll(name, " ", "-"))
			config = fmt.Sprintf(config, data, 1, p.address, instance) // nothing is at port 1: there is no controller
		default:
			config = fmt.Sprintf(config, p.address, instance)
		}
		if err = os.WriteFile(file, []byte(config), 0o600); err != nil {
			return
		}
		p.cmd = command(file)
		if err = p.cmd.Start(); err == nil {
			all = append(all, p)
			err = p.await(ctx)
		}
	}
	quell := func(binary string) func(file string) *exec.Cmd {
		return func(file string) *exec.Cmd { return exec.CommandContext(ctx, binary, "balancer", "--config", file) }
	}
	start("Quell", both, doorQuell, quell(filepath.Join("bin", "quell")))
	if before := os.Getenv("QUELL_BEFORE"); before != "" {
		start("Quell before", both[:1], doorQuell, quell(before))
	}
	start("HAProxy", both, doorHAProxy, func(file string) *exec.Cmd { return exec.CommandContext(ctx, "haproxy", "-db", "-f", file) })
	return all, err
}

// freeDoor returns an address that was free just now.
func freeDoor() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

func (p *doorProxy) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// await waits until requests are answered.
func (p *doorProxy) await(ctx context.Context) error {
	for range 200 {
		resp, err := http.Get("http://" + p.address + "/")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not serve", p.name)
}

// play sends requests in a closed loop, and returns the proxy's processor time for each, in seconds.
func (p *doorProxy) play(ctx context.Context, protocol string) (cost float64, err error) {
	before, err := p.processorTime()
	if err != nil {
		return 0, err
	}
	var protocols http.Protocols
	protocols.SetHTTP1(protocol == doorHTTP1)
	protocols.SetUnencryptedHTTP2(protocol == doorHTTP2)
	transport := &http.Transport{Protocols: &protocols, MaxIdleConnsPerHost: doorClients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var clients sync.WaitGroup
	failures := make(chan error, doorClients)
	for range doorClients {
		clients.Go(func() {
			for range doorRequests / doorClients {
				if err := ask(ctx, client, "http://"+p.address+"/object"); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	clients.Wait()
	select {
	case err := <-failures:
		return 0, err
	default:
	}
	after, err := p.processorTime()
	return (after - before) / doorRequests, err
}

func ask(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || n != doorBody) {
		err = errors.New(resp.Status)
	}
	return err
}

// processorTime returns the processor time of the proxy so far, in seconds.
func (p *doorProxy) processorTime() (float64, error) {
	process, err := procfs.NewProc(p.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	return stat.CPUTime(), err
}
