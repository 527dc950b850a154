// Package probe measures interference from outside an instance. A server on the instance answers small downloads, and a prober that sits
// where the traffic comes from measures how long they take (PRIMA, section III-B1). If a neighbour uses the link that they share, downloads
// take longer.
package probe

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/connlimit"
	"github.com/quellhq/quell/internal/outage"
)

// mostServed is the largest probe that a server answers, in bytes.
const mostServed = 16 << 20

const (
	// blockSize is larger than the window of deflate, so that sending the block repeatedly is not compressible either.
	blockSize = 64 << 10
	// stall is how long a client may take to receive one block.
	stall = 30 * time.Second
	// idle is longer than any gap between two probes, so that the server does not close the prober's connection in between. Other clients'
	// connections are closed after their request.
	idle = 10 * time.Minute
	// downloadLimit is the longest time of a whole answer, until the next block's own limit replaces it.
	downloadLimit = time.Minute
)

// ServerOptions say who may probe.
type ServerOptions struct {
	// Token must be sent with every probe, as "Authorization: Bearer TOKEN". If it is empty, the server answers on loopback addresses only.
	Token string
	// Concurrent limits the number of downloads at a time; 0 means 16.
	Concurrent int
	// Logger gets a message if the server stops by itself; nil is silent.
	Logger *slog.Logger
}

// Server answers GET /probe?size=N with N incompressible bytes, and GET /healthz. It is safe for concurrent use.
type Server struct {
	token  [sha256.Size]byte
	open   bool // no token is needed
	slots  chan struct{}
	block  []byte
	sent   atomic.Uint64
	pulse  *pulse
	mux    *http.ServeMux
	http   *http.Server
	logger *slog.Logger

	mu      sync.Mutex
	started bool
}

// NewServer returns a server that is not yet started. It can also be used as a handler of another server.
func NewServer(o ServerOptions) *Server {
	if o.Concurrent <= 0 {
		o.Concurrent = 16
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := &Server{
		token:  sha256.Sum256([]byte(o.Token)),
		open:   o.Token == "",
		slots:  make(chan struct{}, o.Concurrent),
		block:  make([]byte, blockSize),
		pulse:  newPulse(),
		mux:    http.NewServeMux(),
		logger: o.Logger,
	}
	rand.NewChaCha8([32]byte{}).Read(s.block)
	s.mux.HandleFunc("GET /probe", s.serveProbe)
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { s.say(w, http.StatusOK, "ok") })
	s.http = connlimit.Guard(&http.Server{
		Handler:        s,
		WriteTimeout:   downloadLimit,
		IdleTimeout:    idle,
		MaxHeaderBytes: 4 << 10,
		ErrorLog:       outage.ErrorLog(o.Logger),
		ConnContext:    remember,
	})
	return s
}

// Start serves on l in the background. If there is no token and other machines can reach l, Start refuses it with a *quell.UserError.
func (s *Server) Start(l net.Listener) error {
	if s.open && !isLocal(l.Addr()) {
		return &quell.UserError{Err: fmt.Errorf("probe.listen: %s can be reached from outside: set probe.token, or listen on a loopback address",
			l.Addr())}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errors.New("the probe server was already started")
	}
	s.started = true
	go s.pulse.run()
	go func() {
		if err := connlimit.Serve(s.http, stamping(l), s.logger); !errors.Is(err, http.ErrServerClosed) {
			s.logger.Error("probe server stopped", "address", l.Addr().String(), "error", err)
		}
	}()
	return nil
}

// Shutdown stops accepting connections and lets open downloads finish. When ctx ends, it cuts them off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.pulse.end()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("stopping the probe server: %w", err), s.http.Close())
	}
	return nil
}

// BytesSent returns the bytes sent so far, including an estimate of the HTTP headers but not the headers of TCP and below. It also grows
// during a download.
func (s *Server) BytesSent() uint64 { return s.sent.Load() }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) serveProbe(w http.ResponseWriter, r *http.Request) {
	if !s.allowed(r) {
		s.say(w, http.StatusUnauthorized, "the probe token is missing or wrong")
		return
	}
	size, err := strconv.ParseInt(r.URL.Query().Get("size"), 10, 64)
	if err != nil || size < 1 || size > mostServed {
		s.say(w, http.StatusBadRequest, fmt.Sprintf("size must be a number from 1 to %d", mostServed))
		return
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		s.download(w, r, size)
	default:
		s.say(w, http.StatusServiceUnavailable, "too many probes at once")
	}
}

// allowed compares in constant time. If no token is set, only this machine may probe.
func (s *Server) allowed(r *http.Request) bool {
	if s.open {
		addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		return ok && isLocal(addr)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	shown := sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(shown[:], s.token[:]) == 1
}

// waitedHeader reports for how many microseconds a request waited on this machine before it was answered, mostly for a processor. That time
// says nothing about the link.
const waitedHeader = "Quell-Waited-Us"

// The header's value has a fixed width, so that it can be replaced.
const (
	waitedDigits = 12
	mostWaited   = 999_999_999_999
)

func waitedText(d time.Duration) string {
	return fmt.Sprintf("%0*d", waitedDigits, min(d.Microseconds(), mostWaited))
}

// mostHeld is the largest answer that is sent as a whole, in bytes.
const mostHeld = 256 << 10

// download sends a small answer, headers included, with one system call: between two of them the server could wait for a processor, and
// that wait would count as time on the link.
func (s *Server) download(w http.ResponseWriter, r *http.Request, size int64) {
	control := http.NewResponseController(w)
	if size <= mostHeld {
		send := hold(r.Context())
		defer func() {
			_ = control.Flush() // errors of both mean that the client has gone
			_ = send()
		}()
	}
	if d, ok := waited(r.Context()); ok {
		w.Header().Set(waitedHeader, waitedText(d))
	}
	if beats := s.pulse.beats.Load(); beats > 0 {
		w.Header().Set(awakeHeader, strconv.FormatInt(beats, 10))
	}
	s.head(w, http.StatusOK, "", size)
	for size > 0 {
		// A writer without deadlines is not a socket, so it cannot stall.
		_ = control.SetWriteDeadline(time.Now().Add(stall))
		n, err := w.Write(s.block[:min(size, blockSize)])
		s.sent.Add(uint64(n))
		size -= int64(n)
		if err != nil {
			return
		}
	}
}

// say answers with one line of text, and closes the connection: only probers keep theirs.
func (s *Server) say(w http.ResponseWriter, status int, line string) {
	line += "\n"
	w.Header().Set("Connection", "close")
	s.head(w, status, "text/plain; charset=utf-8", int64(len(line)))
	n, _ := w.Write([]byte(line)) // if it fails, the client is gone and needs no answer
	s.sent.Add(uint64(n))
}

// head sends the headers and counts their bytes as net/http writes them.
func (s *Server) head(w http.ResponseWriter, status int, contentType string, size int64) {
	length := strconv.FormatInt(size, 10)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", length)
	h["Content-Type"] = nil // keeps net/http from guessing one
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	w.WriteHeader(status)
	lines := len("HTTP/1.1 200 \r\n") + len(http.StatusText(status)) + len("Date: \r\n") + len(http.TimeFormat) + len("\r\n")
	for name, values := range h {
		if len(values) == 0 {
			continue
		}
		lines += len(name) + len(": \r\n") + len(values[0])
	}
	s.sent.Add(uint64(lines))
}

func isLocal(addr net.Addr) bool {
	switch a := addr.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}
