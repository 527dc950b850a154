package experiment

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/sensor"
)

// mixInstance is a web server of the mix, in this process. It does its work on two emulated processors.
type mixInstance struct {
	id      string
	address string
	lame    bool        // it refuses connections for moments
	soft    atomic.Bool // its health check is answered with 404

	mu      sync.Mutex
	member  bool         // the scaler has started it
	server  *http.Server // nil while nobody can connect
	busy    time.Duration
	before  time.Duration // busy at the last look of its agent
	looked  time.Time
	started time.Time

	processors chan struct{}
	refusing   atomic.Int64
}

const (
	mixProcessors = 2
	mixWork       = 35 * time.Millisecond  // mean time on a processor of an ordinary request
	mixSearch     = 200 * time.Millisecond // time of a search, which clients give up earlier
)

func newMixInstance(id, address string) *mixInstance {
	return &mixInstance{id: id, address: address, processors: make(chan struct{}, mixProcessors)}
}

// start makes the instance a member of the group, and serves.
func (in *mixInstance) start() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.member {
		return fmt.Errorf("%s runs already", in.id)
	}
	in.member, in.started = true, time.Now()
	return in.listen()
}

// listen serves. mu is held.
func (in *mixInstance) listen() error {
	ln, err := net.Listen("tcp", in.address)
	if err != nil {
		return err
	}
	in.server = &http.Server{Handler: in.handler(), ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(ln) }(in.server)
	return nil
}

// stop ends the instance. Open requests are cut, as when a machine is switched off.
func (in *mixInstance) stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.member = false
	in.close()
}

// close ends the server. mu is held.
func (in *mixInstance) close() {
	if in.server != nil {
		_ = in.server.Close()
	}
	in.server = nil
}

// refuse lets nobody connect for a moment. Requests that are open are cut.
func (in *mixInstance) refuse(ctx context.Context, moment time.Duration) {
	in.mu.Lock()
	in.close()
	in.mu.Unlock()
	_ = pause(ctx, moment)
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.member && in.server == nil {
		_ = in.listen() // the next moment tries again
	}
}

func (in *mixInstance) runs() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.member
}

func (in *mixInstance) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if in.soft.Load() {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	mux.HandleFunc("/search", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(mixSearch):
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/limited", func(w http.ResponseWriter, _ *http.Request) {
		if in.refusing.Add(1)%2 == 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		in.work()
	})
	mux.HandleFunc("/events", in.events)
	mux.HandleFunc("/download", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(make([]byte, mixDownload))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		in.work()
		_, _ = io.WriteString(w, "served\n")
	})
	return mux
}

// mixDownload is the size of a download, which a client takes slowly.
const mixDownload = 4 << 20

// events sends an event each half second until the client goes.
func (in *mixInstance) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	every := time.NewTicker(500 * time.Millisecond)
	defer every.Stop()
	for {
		if _, err := fmt.Fprint(w, "data: tick\n\n"); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-every.C:
		}
	}
}

// work takes a processor for a random time.
func (in *mixInstance) work() {
	in.processors <- struct{}{}
	takes := time.Duration(rand.ExpFloat64() * float64(mixWork))
	time.Sleep(takes)
	<-in.processors
	in.mu.Lock()
	defer in.mu.Unlock()
	in.busy += takes
}

// Sample returns the use of the processors since the last call. It is the agent's sensor.
func (in *mixInstance) Sample(now time.Time) (quell.Observation, []sensor.Failure) {
	in.mu.Lock()
	defer in.mu.Unlock()
	passed := now.Sub(in.looked)
	use := min(1, float64(in.busy-in.before)/(mixProcessors*float64(max(1, passed))))
	o := quell.Observation{At: now}
	if in.server != nil && !in.looked.IsZero() {
		o = sensed(now, use)
	}
	in.looked, in.before = now, in.busy
	return o, nil
}

// Subsample does nothing: there is nothing to look at between two samples.
func (in *mixInstance) Subsample() {}

func (in *mixInstance) began() time.Time {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.started
}
