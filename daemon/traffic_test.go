package daemon_test

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// clients is the number of requests open at once.
const clients = 4

// traffic sends GETs through the balancer all the time.
type traffic struct {
	t    *testing.T
	url  string
	stop chan struct{}
	all  sync.WaitGroup

	mu     sync.Mutex
	done   int
	failed []failure
}

type failure struct {
	began, ended time.Time
	why          string
}

// flow starts the traffic, which ends with the test at the latest.
func flow(r *rig) *traffic {
	f := &traffic{t: r.t, url: "http://" + r.traffic + "/file", stop: make(chan struct{})}
	for range clients {
		f.all.Go(f.client)
	}
	r.t.Cleanup(f.end)
	f.more(20)
	return f
}

func (f *traffic) client() {
	client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	defer client.CloseIdleConnections()
	for {
		select {
		case <-f.stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
		began := time.Now()
		why := ask(client, f.url)
		f.mu.Lock()
		f.done++
		if why != "" {
			f.failed = append(f.failed, failure{began, time.Now(), why})
		}
		f.mu.Unlock()
	}
}

// ask sends a request and returns what is wrong with the answer.
func ask(client *http.Client, url string) string {
	resp, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		return err.Error()
	}
	if resp.StatusCode != 200 || n != 20000 {
		return fmt.Sprintf("%s from %q, %d bytes", resp.Status, resp.Header.Get("X-Quell-Instance"), n)
	}
	return ""
}

// more waits until n further requests are done.
func (f *traffic) more(n int) {
	f.t.Helper()
	count := func() int { f.mu.Lock(); defer f.mu.Unlock(); return f.done }
	goal, deadline := count()+n, time.Now().Add(patience)
	for count() < goal {
		if time.Now().After(deadline) {
			f.t.Fatalf("%d requests are missing", goal-count())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// end stops the traffic, once.
func (f *traffic) end() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.all.Wait()
}

// failures stops the traffic and returns what failed.
func (f *traffic) failures() []failure {
	f.end()
	return f.failed
}

// wantNoFailures waits for some more requests and checks that none failed.
func (f *traffic) wantNoFailures() {
	f.t.Helper()
	f.more(50)
	for _, x := range f.failures() {
		f.t.Errorf("a request failed: %s", x.why)
	}
}
