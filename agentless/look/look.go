// Package look measures servers from the outside, for package agentless: how long connections and downloads of a small file take from here,
// and what HAProxy counts. It changes nothing.
package look

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agentless"
	"github.com/quellhq/quell/probe"
)

// Target is a server.
type Target struct{ ID, Address string }

// Options of measuring.
type Options struct {
	Path    string        // of the small file, beginning with /
	Host    string        // Host header; empty: the address
	Period  time.Duration // of one window
	Count   int           // downloads of each target in a window; with many targets fewer
	Timeout time.Duration // of one download
}

const (
	mostAtOnce    = 64      // downloads at the same time
	mostPerSecond = 500     // downloads of all targets together
	mostBytes     = 1 << 20 // of one download
	leastFile     = 512     // bytes; a smaller answer says little about the link
)

// Window measures every target once over a period. It returns a sample for each, in order; an error only if ctx ended.
func Window(ctx context.Context, targets []Target, o Options) ([]agentless.Sample, error) {
	samples := make([]agentless.Sample, len(targets))
	connects, downloads := make([][]float64, len(targets)), make([][]float64, len(targets))
	count := min(o.Count, max(1, int(mostPerSecond*o.Period.Seconds())/max(1, len(targets))))
	places := make(chan struct{}, mostAtOnce)
	client := &http.Client{Timeout: o.Timeout, Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	var mu sync.Mutex
	var all sync.WaitGroup
	gap := o.Period / time.Duration(max(1, count*len(targets)))
	began := time.Now()
	for k := range count * len(targets) {
		if err := sleepUntil(ctx, began.Add(time.Duration(k)*gap)); err != nil {
			all.Wait()
			return nil, err
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			i := k % len(targets)
			connect, download, err := once(ctx, client, targets[i].Address, o)
			mu.Lock()
			defer mu.Unlock()
			if connect > 0 {
				connects[i] = append(connects[i], connect)
			}
			if err != nil {
				samples[i].Failed = err.Error()
			} else {
				downloads[i] = append(downloads[i], download)
			}
		})
	}
	all.Wait()
	for i := range samples {
		samples[i].ID = targets[i].ID
		samples[i].ConnectMS, samples[i].ProbeMS = summary(connects[i]), summary(downloads[i])
	}
	return samples, sleepUntil(ctx, began.Add(o.Period))
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(at)):
		return nil
	}
}

func summary(ms []float64) *quell.ProbeStats {
	s, ok := probe.Summarise(ms)
	if !ok {
		return nil
	}
	return &s
}

// once downloads the file, and returns the milliseconds of connecting (0: it did not), and from the request to the last byte.
func once(ctx context.Context, client *http.Client, address string, o Options) (connect, download float64, err error) {
	var dialled, connected, sent time.Time
	trace := &httptrace.ClientTrace{
		ConnectStart: func(string, string) { dialled = time.Now() },
		ConnectDone:  func(_, _ string, err error) { connected = doneIf(err == nil) },
		WroteRequest: func(httptrace.WroteRequestInfo) { sent = time.Now() },
	}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodGet, "http://"+address+o.Path, nil)
	if err != nil {
		return 0, 0, err
	}
	if o.Host != "" {
		request.Host = o.Host
	}
	answer, err := client.Do(request)
	if !connected.IsZero() {
		connect = milliseconds(connected.Sub(dialled))
	}
	if err != nil {
		return connect, 0, short(err)
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, io.LimitReader(answer.Body, mostBytes))
	switch {
	case err != nil:
		return connect, 0, short(err)
	case answer.StatusCode != http.StatusOK:
		return connect, 0, fmt.Errorf("GET %s is answered with status %d: name a small file that every server has (--path)", o.Path,
			answer.StatusCode)
	case n < leastFile:
		return connect, 0, fmt.Errorf("GET %s has %d bytes, too few to show a busy link: name a file of 1 to 100 kB (--path)", o.Path, n)
	}
	return connect, milliseconds(time.Since(sent)), nil
}

func doneIf(ok bool) time.Time {
	if ok {
		return time.Now()
	}
	return time.Time{}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// short drops the URL from an error of an HTTP client.
func short(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		if op, ok := errors.AsType[*net.OpError](err); ok && err == error(op) {
			return op
		}
		err = inner
	}
	return err
}
