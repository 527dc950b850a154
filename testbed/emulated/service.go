package emulated

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
)

// serviceBlock bounds the memory of a large file: its content repeats after so many bytes.
const serviceBlock = 256 << 10

// fileService answers every path but /healthz with the same file.
type fileService struct {
	size  int64
	block []byte
}

func newFileService(size int64) http.Handler {
	s := &fileService{size: size, block: make([]byte, min(size, serviceBlock))}
	for i := range s.block {
		s.block[i] = fileByte(int64(i))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /", s.serve)
	return mux
}

// fileByte is the file's content at an offset.
func fileByte(offset int64) byte { return byte(offset % serviceBlock * 31 >> 3) }

func (s *fileService) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(s.size, 10))
	if r.Method == http.MethodHead {
		return
	}
	for left := s.size; left > 0; {
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
