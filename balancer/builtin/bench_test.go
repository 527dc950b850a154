package builtin

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// site is a backend that answers with 1 KiB. It is measured directly and behind the balancer.
func site(b *testing.B, o Options) (direct, balanced string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	body := bytes.Repeat([]byte("x"), 1024)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(body) })}
	go server.Serve(ln)
	b.Cleanup(func() { server.Close() })
	s := start(b, o)
	applyHealthy(b, s, quell.Backend{ID: "i1", Address: ln.Addr().String(), Weight: 1})
	return ln.Addr().String(), s.Addr()
}

// requester repeats the same GET on one connection. It needs little processor time, so that mostly the balancer is measured.
type requester struct {
	conn net.Conn
	in   *bufio.Reader
}

func newRequester(b *testing.B, address string) *requester {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return &requester{conn, bufio.NewReader(conn)}
}

func (r *requester) get() error {
	if _, err := io.WriteString(r.conn, "GET /object HTTP/1.1\r\nHost: service\r\nAccept: */*\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(r.in, nil)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (n != 1024 || resp.StatusCode != http.StatusOK) {
		err = fmt.Errorf("%s with %d bytes", resp.Status, n)
	}
	return err
}

// BenchmarkThroughput runs a closed loop of 32 kept connections. Client, balancer and backend share the machine.
func BenchmarkThroughput(b *testing.B) {
	for _, scheduling := range quell.Schedulings {
		b.Run(string(scheduling), func(b *testing.B) {
			_, balanced := site(b, Options{Scheduling: scheduling, Health: checkedOnce()})
			const connections = 32
			requesters := make([]*requester, connections)
			for i := range requesters {
				requesters[i] = newRequester(b, balanced)
			}
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for _, r := range requesters {
				wg.Go(func() {
					for range b.N/connections + 1 {
						if err := r.get(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64((b.N/connections+1)*connections)/b.Elapsed().Seconds(), "req/s")
		})
	}
}

// BenchmarkAddedLatency alternates between the backend itself and the balancer, one request at a time.
func BenchmarkAddedLatency(b *testing.B) {
	direct, balanced := site(b, Options{Health: checkedOnce()})
	without, through := newRequester(b, direct), newRequester(b, balanced)
	timed := func(r *requester) float64 {
		start := time.Now()
		if err := r.get(); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(start)) / float64(time.Millisecond)
	}
	var alone, balancedMS []float64
	for b.Loop() {
		alone, balancedMS = append(alone, timed(without)), append(balancedMS, timed(through))
	}
	b.ReportMetric(median(balancedMS)-median(alone), "added-ms-p50")
	b.ReportMetric(median(alone), "direct-ms-p50")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
