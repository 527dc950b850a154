package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell/lab/testbed/demand"
)

// TestWorkersAndDelays plays four streams of ten frames, one in 100 ms each, for which storage needs 30 ms per frame. Time is synthetic.
func TestWorkersAndDelays(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		workers     int
		least, most time.Duration
	}{
		{1, 30 * ms, 300 * ms}, // forty frames take 1200 ms in all, and the last ones are due at 900 ms
		{2, 30 * ms, 60 * ms},  // two at once, then the other two
		{4, 30 * ms, 30 * ms},
		{50, 30 * ms, 30 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStreams(c.workers, 30*ms, func(context.Context, demand.Demand) error { return nil })
			defer close(s.frames)
			var clients sync.WaitGroup
			var delays [4][]time.Duration
			for i := range delays {
				clients.Go(func() {
					w := httptest.NewRecorder()
					s.serve(w, httptest.NewRequest(http.MethodGet, "/stream?frames=10&every=100ms&bytes=20", nil))
					if err := ReadDelays(w.Body, 20, func(d time.Duration) { delays[i] = append(delays[i], d) }); err != nil {
						t.Error(err)
					}
				})
			}
			clients.Wait()
			all := slices.Concat(delays[:]...)
			if len(all) != 40 || slices.Min(all) != c.least || slices.Max(all) != c.most {
				t.Errorf("%d workers: %d frames with delays from %v to %v, want %v to %v", c.workers, len(all), slices.Min(all), slices.Max(all),
					c.least, c.most)
			}
		})
	}
}

// TestResize gives four streams one worker, which is too few, then four, and then one again.
func TestResize(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		s := newStreams(1, 30*ms, func(context.Context, demand.Demand) error { return nil })
		defer close(s.frames)
		var clients sync.WaitGroup
		var last [4]time.Duration
		for i := range last {
			clients.Go(func() {
				w := httptest.NewRecorder()
				s.serve(w, httptest.NewRequest(http.MethodGet, "/stream?frames=10&every=100ms&bytes=20", nil))
				if err := ReadDelays(w.Body, 20, func(d time.Duration) { last[i] = d }); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(450 * ms)
		s.resize(4)
		clients.Wait()
		if slices.Max(last[:]) != 30*ms {
			t.Errorf("the last frames are %v late", last)
		}
		s.resize(1)
		synctest.Wait()
		if s.workers != 1 {
			t.Errorf("%d workers", s.workers)
		}
		page := httptest.NewRecorder()
		s.metrics().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if text := page.Body.String(); !strings.Contains(text, FrameDelay+"_count 40") {
			t.Errorf("metrics: %s", text)
		}
	})
}

// TestAClientThatLeaves checks that its stream ends, and that its worker serves others.
func TestAClientThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreams(1, 30*time.Millisecond, func(ctx context.Context, _ demand.Demand) error { return ctx.Err() })
		defer close(s.frames)
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() {
			s.serve(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/stream?every=10ms&bytes=8", nil))
			close(ended)
		}()
		time.Sleep(time.Second)
		leave()
		<-ended
		w := httptest.NewRecorder()
		s.serve(w, httptest.NewRequest(http.MethodGet, "/stream?frames=2&every=10ms&bytes=8", nil))
		if w.Body.Len() != 16 {
			t.Errorf("the next client got %d bytes", w.Body.Len())
		}
	})
}

func TestStreamsOverHTTP(t *testing.T) {
	handler, err := Work(WorkOptions{Workers: 2, Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	resp, err := http.Get(server.URL + "/stream?frames=5&every=2ms&bytes=3000")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	n := 0
	err = ReadDelays(resp.Body, 3000, func(d time.Duration) {
		if n++; d < time.Millisecond {
			t.Errorf("frame %d was sent %v after its time, and its storage needs 1 ms", n, d)
		}
	})
	if err != nil || n != 5 {
		t.Errorf("%d frames, %v", n, err)
	}
}

func TestStreamsThatAreRefused(t *testing.T) {
	handler, err := Work(WorkOptions{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	without, err := Work(WorkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"bytes=100":                     `every: "": give a time above 0`,
		"bytes=100&every=-1s":           `every: "-1s"`,
		"bytes=100&every=2m":            `every: "2m"`,
		"every=1s":                      "bytes: 0: give a frame's length, 8 to 1048576",
		"every=1s&bytes=7":              "bytes: 7",
		"every=1s&bytes=1048577":        "bytes: 1048577",
		"every=1s&bytes=100&frames=0":   `frames: "0"`,
		"every=1s&bytes=100&frames=x":   `frames: "x"`,
		"every=1s&bytes=100&cpu=1h":     "cpu:",
		"every=1s&bytes=100&frames=1e9": "frames:",
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/stream?"+query, nil))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", query, w.Code, w.Body, want)
		}
	}
	w := httptest.NewRecorder()
	without.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/stream?every=1s&bytes=100", nil))
	if w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), "start it with --workers") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestATornStream(t *testing.T) {
	err := ReadDelays(strings.NewReader(strings.Repeat("\x00", 30)), 20, func(time.Duration) {})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(fmt.Sprint("a frame that ends early: ", err))
	}
}
