package emulated

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
)

// serviceBlock bounds the memory of a large file: its content repeats after so many bytes.
const serviceBlock = 256 << 10

// service answers every path but a few with the same file; /chunk and /work with as many bytes as their query says.
type service struct {
	size  int64
	block []byte
}

func newService(size int64) http.Handler {
	s := &service{size: size, block: make([]byte, serviceBlock)}
	for i := range s.block {
		s.block[i] = fileByte(int64(i))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /chunk", s.sized)
	mux.HandleFunc("GET /work", s.work)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, s.size) })
	return mux
}

// fileByte is the file's content at an offset.
func fileByte(offset int64) byte { return byte(offset % serviceBlock * 31 >> 3) }

// mostBytes bounds what a query may ask for.
const mostBytes = 1 << 40

// sized answers with as many bytes as the query says.
func (s *service) sized(w http.ResponseWriter, r *http.Request) {
	bytes, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	if err != nil || bytes < 0 || bytes > mostBytes {
		http.Error(w, "bytes: how many to answer with, as in "+r.URL.Path+"?bytes=50000", http.StatusBadRequest)
		return
	}
	s.serve(w, r, bytes)
}

// work is sized for requests of classes. What such a machine has not got it must not seem to give.
func (s *service) work(w http.ResponseWriter, r *http.Request) {
	for _, demand := range []string{"cpu", "disk", "memory"} {
		if r.URL.Query().Has(demand) {
			http.Error(w, demand+": an emulated machine has a network only", http.StatusNotImplemented)
			return
		}
	}
	s.sized(w, r)
}

func (s *service) serve(w http.ResponseWriter, r *http.Request, size int64) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if r.Method == http.MethodHead {
		return
	}
	for left := size; left > 0; {
		n, err := w.Write(s.block[:min(left, int64(len(s.block)))])
		if err != nil {
			return // the client has gone, or the machine is going
		}
		left -= int64(n)
	}
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
