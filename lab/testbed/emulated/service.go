package emulated

import (
	"io"
	"net/http"
	"sync/atomic"

	"github.com/quellhq/quell/lab/testbed/demand"
)

// service answers /chunk and /work with the number of bytes in the query, and all other paths but a few with one file.
type service struct {
	size    int64
	content *demand.Content
}

func newService(size int64) http.Handler {
	s := &service{size: size, content: demand.NewContent()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /chunk", s.chunk)
	mux.HandleFunc("GET /work", s.work)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { s.content.Serve(w, r, s.size) })
	return mux
}

// chunk answers with as many bytes as the query says.
func (s *service) chunk(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("bytes") == "" {
		http.Error(w, "bytes: how many to answer with, as in /chunk?bytes=50000", http.StatusBadRequest)
		return
	}
	s.work(w, r)
}

// work answers requests of classes with the number of bytes in the query. It refuses demands for resources that an emulated machine does
// not have.
func (s *service) work(w http.ResponseWriter, r *http.Request) {
	d, err := demand.Of(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if d.CPU > 0 || d.Disk > 0 || d.Memory > 0 {
		http.Error(w, "cpu, disk, memory: an emulated machine has a network only", http.StatusNotImplemented)
		return
	}
	s.content.Serve(w, r, d.Bytes)
}

// whenBooted refuses everything until the machine has booted.
func whenBooted(booted *atomic.Bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !booted.Load() {
			http.Error(w, "the machine is booting", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}
