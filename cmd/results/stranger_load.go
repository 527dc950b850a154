package main

import (
	"context"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// strangerLoad are users who download from HAProxy.
type strangerLoad struct {
	seed             uint64 // of the times between requests; 0: 1
	requests, failed atomic.Int64
	served           *servedBy      // nil: who answers is not counted
	samples          *frontsSamples // nil: times are not kept
	all              sync.WaitGroup
}

// startUsers lets users download until stop is called or ctx ends. stop waits for requests that are open; it may be called again.
func (f *strangerFleet) startUsers(ctx context.Context, load *strangerLoad) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var users sync.WaitGroup
	users.Go(func() { f.offer(ctx, load) })
	return func() {
		cancel()
		users.Wait()
	}
}

// offer sends requests at random times until ctx ends, and then waits for those that are open.
func (f *strangerFleet) offer(ctx context.Context, load *strangerLoad) {
	random := mathrand.New(mathrand.NewPCG(max(1, load.seed), 1))
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 200, DialContext: f.client.Dial}}
	defer client.CloseIdleConnections()
	url, began, due := f.url(), time.Now(), time.Duration(0)
	for {
		due += time.Duration(random.ExpFloat64() / f.set.rate(len(f.names), due) * float64(time.Second))
		sent := began.Add(due)
		if wait(ctx, time.Until(sent)) != nil {
			break
		}
		load.all.Go(func() {
			load.requests.Add(1)
			by, err := f.download(client, url)
			if load.samples != nil {
				load.samples.add(frontsSample{At: sent, MS: time.Since(sent).Seconds() * 1000, Failed: err != nil})
			}
			if err != nil {
				load.failed.Add(1)
				fmt.Fprintln(os.Stderr, "stranger:", err)
			}
			if load.served != nil {
				load.served.add(by)
			}
		})
	}
	load.all.Wait()
}

func (f *strangerFleet) url() string {
	return fmt.Sprintf("http://%v:8080%s", f.edge.Address(), f.set.path())
}

// download fetches the file, and returns which server answered.
func (f *strangerFleet) download(client *http.Client, url string) (by string, err error) {
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	if err == nil && (answer.StatusCode != http.StatusOK || n != f.set.File) {
		err = fmt.Errorf("%s, %d bytes", answer.Status, n)
	}
	return answer.Header.Get("Served-By"), err
}

// awaitFront waits until the front serves, and has checked its servers.
func (f *strangerFleet) awaitFront(ctx context.Context) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: f.client.Dial}}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := f.download(client, f.url())
		if err == nil {
			return wait(ctx, 3*time.Second)
		}
		if wait(limited, 100*time.Millisecond) != nil {
			return fmt.Errorf("the balancer does not serve within a minute: %w", err)
		}
	}
}
