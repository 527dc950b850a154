package kernel

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell/lab/testbed/demand"
)

// WorkOptions are the resources that a service of dynamic work can use.
type WorkOptions struct {
	Disk   string // path of the file that disk operations read; empty: requests for disk operations are refused
	Memory bool   // keep memory to read; if false, requests for memory are refused

	Workers int           // threads that send the frames of streams; 0: requests for streams are refused
	Resized <-chan int    // tells other numbers of threads; nil: they stay
	Wait    time.Duration // how long a frame's storage takes to answer, which blocks its worker
}

// Work is a small service whose requests name the resources they need. GET /work?class=home&cpu=5000us&disk=2&memory=300us&bytes=1000
// uses this processor time, reads this many blocks from the disk past the cache, reads memory for as long as the reference machine would
// take, and answers with this many bytes, one after the other. Parameters that are left out are zero. GET /stream sends frames, see
// streams.serve; GET /metrics shows their delays. GET /healthz answers at once. If the file cannot be read past the cache, the error is a
// *quell.UserError.
func Work(o WorkOptions) (http.Handler, error) {
	s := &worker{content: demand.NewContent()}
	if o.Memory { // before requests arrive, because it takes a while on a small processor
		s.stock = newStock()
	}
	if o.Disk != "" {
		var err error
		if s.disk, err = openDisk(o.Disk); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /work", s.work)
	stream := noStreams
	if o.Workers > 0 {
		streams := newStreams(o.Workers, o.Wait, s.meet)
		stream = streams.serve
		mux.Handle("GET /metrics", streams.metrics())
		go func() {
			for workers := range o.Resized { // without end if it is nil
				streams.resize(workers)
			}
		}()
	}
	mux.HandleFunc("GET /stream", stream)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux, nil
}

func noStreams(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "this service has no workers for streams: start it with --workers N", http.StatusNotImplemented)
}

type worker struct {
	content *demand.Content
	disk    *disk  // nil if requests for disk operations are refused
	stock   *stock // nil if requests for memory are refused
}

func (s *worker) work(w http.ResponseWriter, r *http.Request) {
	d, err := demand.Of(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if d.Disk > 0 && s.disk == nil {
		http.Error(w, "disk: this service has no file to read: start it with --disk FILE", http.StatusNotImplemented)
		return
	}
	if d.Memory > 0 && s.stock == nil {
		http.Error(w, "memory: this service has none to read: start it with --memory", http.StatusNotImplemented)
		return
	}
	if err := s.meet(r.Context(), d); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.content.Serve(w, r, d.Bytes)
}

// meet does all the work except the answer. It stops when the client has gone.
func (s *worker) meet(ctx context.Context, d demand.Demand) error {
	if d.CPU > 0 {
		if err := burn(ctx, d.CPU); err != nil {
			return err
		}
	}
	if d.Disk > 0 {
		if err := s.disk.read(ctx, d.Disk); err != nil {
			return err
		}
	}
	if d.Memory > 0 {
		return s.stock.read(ctx, d.Memory)
	}
	return nil
}

// burn uses processor time of its own thread, so that waiting for a processor does not count.
func burn(ctx context.Context, span time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, err := threadTime()
	if err != nil {
		return err
	}
	var sink uint64 = 1
	for {
		for range 10_000 { // some microseconds between two looks at the clock
			sink = sink*6364136223846793005 + 1442695040888963407
		}
		runtime.KeepAlive(sink)
		now, err := threadTime()
		if err != nil || now-began >= span {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// referenceBandwidth is the memory bandwidth, in bytes per second, of the reference machine on which demands for memory are based: what
// one thread of a present-day server reads.
const referenceBandwidth = 10e9

// stock is more memory than most caches hold.
type stock struct {
	bytes []byte
	next  atomic.Int64 // number of the piece to read next
}

const (
	stockBytes = 64 << 20
	piece      = 1 << 16 // of the stock, read in one go
	cacheLine  = 64
)

func newStock() *stock {
	s := &stock{bytes: make([]byte, stockBytes)}
	for i := range s.bytes { // write every page, because pages that were never written all map to one page of zeros, which stays in the cache
		s.bytes[i] = byte(i)
	}
	return s
}

// read reads as many bytes of memory as the reference machine can read in a time span. It continues where the last read stopped.
func (s *stock) read(ctx context.Context, span time.Duration) error {
	var sink byte
	for left := int64(span.Seconds() * referenceBandwidth); left > 0; left -= piece {
		at := (s.next.Add(1) * piece) % stockBytes
		for i := at; i < at+min(left, piece); i += cacheLine {
			sink += s.bytes[i]
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	runtime.KeepAlive(sink)
	return nil
}
