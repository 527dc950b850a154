package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/testbed/demand"
)

// streams sends frames at fixed intervals, like a video server. Each frame needs one of a fixed number of workers, which are threads that
// block (ICE, section VI): first for as long as a frame's storage takes to answer, then while it computes, then while it sends.
type streams struct {
	frames chan *frame   // those that are due
	leave  chan struct{} // ends the worker that takes it
	wait   time.Duration
	meet   func(context.Context, demand.Demand) error
	delays prometheus.Histogram

	mu      sync.Mutex // guards workers
	workers int
}

// frame is the next frame of a stream.
type frame struct {
	due    time.Time
	needs  demand.Demand
	text   []byte
	client http.ResponseWriter
	ctx    context.Context
	sent   chan error
}

// delaySize is the length of a frame's beginning: how long after its time the frame is sent, in µs.
const delaySize = 8

// The largest values of a request for a stream.
const (
	mostFrames = 1_000_000
	mostFrame  = 1 << 20 // bytes
)

// newStreams starts the workers.
func newStreams(workers int, wait time.Duration, meet func(context.Context, demand.Demand) error) *streams {
	s := &streams{frames: make(chan *frame), leave: make(chan struct{}), wait: wait, meet: meet,
		delays: prometheus.NewHistogram(prometheus.HistogramOpts{Name: FrameDelay, Help: "how late frames were sent",
			NativeHistogramBucketFactor: 1.1})}
	s.resize(workers)
	return s
}

// FrameDelay is the histogram of delays, in seconds, among the service's metrics.
const FrameDelay = "frame_delay_seconds"

// resize changes the number of workers. One that sends a frame ends after it.
func (s *streams) resize(workers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; s.workers < workers; s.workers++ {
		go s.work()
	}
	for ; s.workers > workers; s.workers-- {
		go func() { s.leave <- struct{}{} }()
	}
}

// metrics shows the delays.
func (s *streams) metrics() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.delays)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// work sends frames in the order in which they became due.
func (s *streams) work() {
	runtime.LockOSThread() // a worker is a thread
	for {
		select {
		case f, more := <-s.frames:
			if !more {
				return
			}
			f.sent <- s.send(f)
		case <-s.leave:
			return
		}
	}
}

func (s *streams) send(f *frame) error {
	time.Sleep(s.wait)
	if err := s.meet(f.ctx, f.needs); err != nil {
		return err
	}
	delay := time.Since(f.due)
	s.delays.Observe(delay.Seconds())
	binary.BigEndian.PutUint64(f.text, uint64(delay.Microseconds()))
	if _, err := f.client.Write(f.text); err != nil {
		return err
	}
	return http.NewResponseController(f.client).Flush()
}

// serve answers GET /stream?frames=100&every=40ms&cpu=1500us&bytes=4000: that many frames of that length, one in each interval. Each needs
// what GET /work with the same parameters needs. Without frames the stream does not end. A stream's frames are sent in order, so a late
// one delays the next.
func (s *streams) serve(w http.ResponseWriter, r *http.Request) {
	frames, every, needs, err := streamOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := http.NewResponseController(w).Flush(); err != nil { // the client learns at once which server it has
		return
	}
	f := &frame{needs: needs, text: make([]byte, needs.Bytes), client: w, ctx: r.Context(), sent: make(chan error, 1)}
	start := time.Now()
	for n := 0; frames == 0 || n < frames; n++ {
		f.due = start.Add(time.Duration(n) * every)
		select {
		case <-time.After(time.Until(f.due)):
		case <-f.ctx.Done():
			return
		}
		select {
		case s.frames <- f:
		case <-f.ctx.Done():
			return
		}
		if err := <-f.sent; err != nil {
			return // the client has gone
		}
	}
}

// streamOf parses a request for a stream.
func streamOf(query url.Values) (frames int, every time.Duration, needs demand.Demand, err error) {
	if needs, err = demand.Of(query); err != nil {
		return
	}
	text := query.Get("every")
	if every, err = time.ParseDuration(text); err != nil || every <= 0 || every > demand.MostTime {
		return frames, every, needs, &quell.InvalidError{Path: "every",
			Problem: fmt.Sprintf("%q: give a time above 0, up to %v, as in every=40ms", text, demand.MostTime)}
	}
	if needs.Bytes < delaySize || needs.Bytes > mostFrame {
		return frames, every, needs, &quell.InvalidError{Path: "bytes",
			Problem: fmt.Sprintf("%d: give a frame's length, %d to %d", needs.Bytes, delaySize, mostFrame)}
	}
	if text = query.Get("frames"); text == "" {
		return frames, every, needs, nil
	}
	if frames, err = strconv.Atoi(text); err != nil || frames < 1 || frames > mostFrames {
		return frames, every, needs, &quell.InvalidError{Path: "frames",
			Problem: fmt.Sprintf("%q: give a whole number, 1 to %d", text, mostFrames)}
	}
	return frames, every, needs, nil
}

// ReadDelays reads a stream with frames of that many bytes to its end, and calls each with every frame's delay: how long after its time
// the server sent it.
func ReadDelays(stream io.Reader, bytes int64, each func(delay time.Duration)) error {
	text := make([]byte, bytes)
	for {
		if _, err := io.ReadFull(stream, text); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a stream: %w", err)
		}
		each(time.Duration(binary.BigEndian.Uint64(text)) * time.Microsecond)
	}
}
