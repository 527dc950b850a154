package daemon_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/internal/need"
)

// reader is an instance in this process that reads request bodies, and answers as the emulated machines do.
func reader(t *testing.T) string {
	t.Helper()
	file := make([]byte, 20000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Write(file)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// withFiles starts the balancer with a limit of open files.
func (r *rig) withFiles(limit int) *proc {
	r.t.Helper()
	script := fmt.Sprintf(`ulimit -n %d && exec "$0" balancer --config "$1"`, limit)
	return r.launch("balancer", exec.Command("sh", "-c", script, quellProgram, r.config))
}

// drip opens connections from a local address, each with a body that never ends. They are closed at the end of the
// test.
func (r *rig) drip(from string, connections int) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			conn, err := dialer.Dial("tcp", r.traffic)
			if err != nil {
				r.t.Error(err)
				return
			}
			r.t.Cleanup(func() { conn.Close() })
			fmt.Fprint(conn, "POST /file HTTP/1.1\r\nHost: shop\r\nContent-Length: 1000000\r\n\r\nbeginning")
		})
	}
	all.Wait()
}

// clientAt sends requests from a local address, each on a new connection.
func clientAt(address string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, to)
		},
	}}
}

// wantHealthy checks the balancer for a while: its admin socket answers, the instance is healthy, and there are files
// left.
func (r *rig) wantHealthy(p *proc, limit int) {
	r.t.Helper()
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		states, err := builtin.NewClient(r.admin).State(ctx)
		cancel()
		if err != nil || len(states) != 1 || !states[0].Healthy {
			r.t.Fatalf("the balancer says %+v, %v", states, err)
		}
		if files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)); err != nil || len(files) >= limit {
			r.t.Fatalf("%d of %d files are open, %v", len(files), limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestSlowBodiesDoNotTakeAllFiles(t *testing.T) {
	t.Parallel()
	const limit = 300
	r := newRig(t, "")
	r.write("  timeouts: {body: 5m}\n" + plain(reader(t), need.FreeAddress(t), "static"))
	balancer := r.withFiles(limit)
	r.await("the balancer to find the instance well", func() (bool, any) {
		states, err := builtin.NewClient(r.admin).State(t.Context())
		return err == nil && len(states) == 1 && states[0].Healthy, fmt.Sprint(states, err)
	})
	if !has(balancer.said(), "room for fewer clients", "LimitNOFILE=", "max_conns=10000") {
		t.Errorf("nothing of the limit of open files in\n%s", balancer.said())
	}
	r.drip("127.0.0.1", 400)
	other := clientAt("127.0.0.2")
	for range 50 {
		if why := ask(other, "http://"+r.traffic+"/file"); why != "" {
			t.Fatalf("a request from another address: %s", why)
		}
	}
	r.wantHealthy(balancer, limit)
	if has(balancer.said(), "unhealthy") || !has(balancer.said(), "a client has too many connections", "client=127.0.0.1") {
		t.Errorf("the balancer said\n%s", balancer.said())
	}
}

func TestSlowBodiesFromManyAddressesEnd(t *testing.T) {
	t.Parallel()
	const limit = 300
	r := newRig(t, "")
	r.write("  timeouts: {body: 1s}\n" + plain(reader(t), need.FreeAddress(t), "static"))
	balancer := r.withFiles(limit)
	r.await("the balancer to find the instance well", func() (bool, any) {
		states, err := builtin.NewClient(r.admin).State(t.Context())
		return err == nil && len(states) == 1 && states[0].Healthy, fmt.Sprint(states, err)
	})
	for i := range 4 {
		r.drip(fmt.Sprintf("127.0.1.%d", i+1), 40)
	}
	r.wantHealthy(balancer, limit)
	if why := ask(clientAt("127.0.0.2"), "http://"+r.traffic+"/file"); why != "" { // it waits until the bodies' time-out
		t.Errorf("a request behind them: %s", why)
	}
	if has(balancer.said(), "unhealthy") {
		t.Errorf("the balancer said\n%s", balancer.said())
	}
}
