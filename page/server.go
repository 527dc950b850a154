// Package page is the web page of a controller: the group now, its last hours, each instance's story, the journal, and a person's commands.
// Everybody who reaches a loopback address may read it. Commands need a log-in, which the holder of the operator's credential gets from
// `quell page`. On other addresses the page needs TLS, and reading needs the log-in, too.
package page

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/setting"
	"github.com/quellhq/quell/tell"
)

//go:embed files
var files embed.FS

// Controller is what the page shows and commands.
type Controller interface {
	Status() controller.Status
	Command(ctx context.Context, cmd bus.Command) bus.Reply
}

// Recorded is the journal as it is on disk.
type Recorded interface {
	Read(ctx context.Context, since time.Time, fn func(bus.Entry) error) error
	ReadSnapshots(ctx context.Context, since time.Time, fn func(quell.Snapshot) error) error
}

// Options configure a page. Recorded and Listen are required.
type Options struct {
	Recorded Recorded
	SLO      quell.SLO
	Listen   string        // the address at which it is served
	Base     string        // the path of the page, with / at both ends; empty: /
	TLS      bool          // whether it is served by TLS
	Hosts    []string      // further names under which browsers may ask for it
	Viewers  int           // how many browsers may wait for events at once
	Poll     time.Duration // how often the status is looked at; 0: every 250 ms
	Log      *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// Server serves the page of one service.
type Server struct {
	opts     Options
	control  Controller // set by Show
	loopback bool
	tickets  grants
	logins   grants
	cookie   string
	viewers  chan struct{} // a place for each browser that waits for events
	searches chan struct{} // a place for each search of the journal on disk
	ended    chan struct{} // closed when Run has ended: browsers that wait would delay the end of the process

	answers answers

	mu         sync.Mutex
	history    History
	past       past
	generation int64         // changes when older points or marks come, and with each process
	version    int64         // changes with everything that is shown
	changed    chan struct{} // closed at the next change
}

// New prepares a page. Run must run beside its handler.
func New(opts Options) *Server {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	opts.Base = cmp.Or(opts.Base, "/")
	opts.Poll = cmp.Or(opts.Poll, 250*time.Millisecond)
	_, port, _ := net.SplitHostPort(opts.Listen)
	s := &Server{opts: opts, loopback: setting.Loopback(opts.Listen), viewers: make(chan struct{}, max(1, opts.Viewers)),
		searches: make(chan struct{}, 1), generation: opts.Now().UnixMilli(), changed: make(chan struct{}), ended: make(chan struct{}),
		cookie: "quell_" + port}
	if opts.Base != "/" { // pages of several services are logged into one by one
		s.cookie += fmt.Sprintf("_%08x", crc32.ChecksumIEEE([]byte(opts.Base)))
	}
	if opts.TLS {
		s.cookie = "__Host-" + s.cookie // browsers accept it by TLS only, and from no other host
	}
	return s
}

// Show sets the controller that is shown. It is called once, before Run and before the handler is used.
func (s *Server) Show(c Controller) { s.control = c }

// Ticket answers the command `page`: the address of the page with a secret that is good for one log-in. Neither the secret nor the log-in
// is good when the credential with which somebody asked is no longer valid.
func (s *Server) Ticket(by string, valid Valid) bus.Reply {
	address := s.Address()
	if why := s.closed(); why != "" {
		return bus.Reply{Error: why}
	}
	body, err := json.Marshal(map[string]string{"address": address, "ticket": s.tickets.issue(by, valid, s.opts.Now(), ticketLife)})
	if err != nil {
		return bus.Reply{Error: err.Error()}
	}
	return bus.Reply{Body: body}
}

// Address is where a browser finds the page.
func (s *Server) Address() string {
	scheme := "http"
	if s.opts.TLS {
		scheme = "https"
	}
	host, port, _ := net.SplitHostPort(s.opts.Listen)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return scheme + "://" + net.JoinHostPort(host, port) + s.opts.Base
}

// closed says why the page is not shown at all; "" if it is.
func (s *Server) closed() string {
	if s.loopback || s.opts.TLS {
		return ""
	}
	return "the page is not shown: " + s.opts.Listen + " can be reached from other machines, and it has no TLS. Set web_config to a file " +
		"with tls_server_config, or listen on 127.0.0.1 and use an SSH tunnel"
}

// Run follows the status until ctx ends, and then lets go of the browsers that wait for events. It is called once.
func (s *Server) Run(ctx context.Context) {
	defer close(s.ended)
	var last signature
	begun := false
	tick := time.NewTicker(s.opts.Poll)
	defer tick.Stop()
	for {
		status := s.control.Status()
		if now := signatureOf(&status); now != last {
			s.follow(&status, status.At != last.at)
			last = now
		}
		if !begun && !status.At.IsZero() {
			begun = true
			go s.recall(ctx, &status)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// signature tells whether a status has changed.
type signature struct {
	at                            time.Time
	paused, leading, released     bool
	lost, refused, store, bus     string
	overrides, failures, rejected int
	authority                     quell.Authority
}

func signatureOf(s *controller.Status) signature {
	failures := 0
	for _, n := range s.Failures {
		failures += n
	}
	return signature{s.At, s.Paused, s.Leading, s.Released != nil, s.Lost, s.Refused, s.Store, s.Bus,
		len(s.Overrides), failures, s.Rejected, s.Authority}
}

// follow notes a new status.
func (s *Server) follow(status *controller.Status, decided bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if decided && !status.At.IsZero() {
		s.history.Add(pointOf(status))
		w := tell.Of(status, clock)
		s.past.follow(status.At.UnixMilli(), noisyOf(&w))
	}
	s.tell()
}

// tell wakes those who wait for a change. The caller holds mu.
func (s *Server) tell() {
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

const (
	recalled     = 6 * time.Hour
	recalledRows = 200_000 // rows of instances that are read at the start, at most
)

// recall fills the history with what was recorded before this process began.
func (s *Server) recall(ctx context.Context, status *controller.Status) {
	now := s.opts.Now()
	var points []Point
	rows := 0
	err := s.opts.Recorded.ReadSnapshots(ctx, now.Add(-recalledFor(status)), func(snapshot quell.Snapshot) error {
		if rows += 1 + len(snapshot.Instances); rows > recalledRows {
			return errEnough
		}
		points = append(points, recordedPoint(&snapshot, s.opts.SLO))
		return nil
	})
	var marks []Mark
	before := status.At
	err2 := s.opts.Recorded.Read(ctx, now.Add(-recalled), func(e bus.Entry) error {
		if m, ok := markOf(&e); ok && e.At.Before(before) {
			marks = append(marks, m)
		}
		return nil
	})
	for _, err := range []error{err, err2} {
		if err != nil && !errors.Is(err, quell.ErrNoData) && !errors.Is(err, errEnough) && ctx.Err() == nil {
			s.opts.Log.Warn("the page begins without the past hours: reading the journal", "error", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.AddOlder(points)
	s.history.AddOlderMarks(marks)
	s.generation++
	s.tell()
}

// recalledFor is for how long the snapshots of a group of this size are recalled. What is newest matters most, and is read last.
func recalledFor(status *controller.Status) time.Duration {
	snapshots := float64(recalledRows / (1 + len(status.Instances)))
	if long := time.Duration(snapshots * status.SamplingS * float64(time.Second)); long > 0 {
		return min(recalled, long)
	}
	return recalled
}

var errEnough = errors.New("enough was read")

// journal passes entries on, and marks them on the page. The page so shows what a full disk does not keep.
type journal struct {
	controller.Journal
	server *Server
}

// Follow returns a journal that passes everything on to another one, and marks decisions and events on the page.
func (s *Server) Follow(j controller.Journal) controller.Journal { return journal{j, s} }

func (j journal) Append(ctx context.Context, e bus.Entry) error {
	if m, ok := markOf(&e); ok {
		j.server.mark(m)
	}
	return j.Journal.Append(ctx, e)
}

func (s *Server) mark(m Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.history.Mark(m) {
		s.tell()
	}
}

// Handler serves the page at its path and what it needs below page/ there.
func (s *Server) Handler() http.Handler {
	static, err := fs.Sub(files, "files")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, static, "index.html") })
	mux.Handle("GET /page/static/", http.StripPrefix("/page/static/", http.FileServerFS(static)))
	for path, serve := range map[string]http.HandlerFunc{
		"GET /page/now": s.now, "GET /page/instance": s.instance, "GET /page/journal": s.search, "GET /page/events": s.events,
	} {
		mux.HandleFunc(path, s.readers(serve))
	}
	mux.HandleFunc("POST /page/login", s.login)
	mux.HandleFunc("POST /page/logout", s.logout)
	mux.HandleFunc("POST /page/command", s.command)
	return s.guard(http.StripPrefix(strings.TrimSuffix(s.opts.Base, "/"), http.NewCrossOriginProtection().Handler(mux)))
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

func number(r *http.Request, name string) int64 {
	n, err := strconv.ParseInt(r.FormValue(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Now is what a browser asks for at first, at each event, and after a sleep.
type Now struct {
	Generation int64   `json:"generation"`
	Version    int64   `json:"version"`
	Group      Group   `json:"group"`
	Table      Table   `json:"table"`
	Points     []Point `json:"points"` // since the last one that the browser has
	Whole      bool    `json:"whole"`  // points and marks replace those that the browser has
	Marks      []Mark  `json:"marks"`
	By         string  `json:"by,omitempty"` // who is logged in
}

// answers are the encoded answers to what browsers ask at one version of the page. All viewers ask the same after an event, so it is
// computed once.
type answers struct {
	sync.Mutex
	version int64
	of      signature
	bodies  map[string][]byte // by the question and who asks
}

// mostAnswers bounds the answers that are kept.
const mostAnswers = 32

func (s *Server) now(w http.ResponseWriter, r *http.Request) {
	status := s.control.Status()
	by, _ := s.who(r)
	body, err := s.answer(&status, r, by)
	if err != nil {
		http.Error(w, shown(err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the client may be gone
}

// answer is the encoded answer, from what is kept if it was asked before.
func (s *Server) answer(status *controller.Status, r *http.Request, by string) ([]byte, error) {
	s.answers.Lock()
	defer s.answers.Unlock()
	s.mu.Lock()
	version := s.version
	s.mu.Unlock()
	kept := &s.answers
	if of := signatureOf(status); kept.bodies == nil || kept.version != version || kept.of != of ||
		len(kept.bodies) >= mostAnswers {
		kept.version, kept.of, kept.bodies = version, of, map[string][]byte{}
	}
	question := by + "\x00" + r.URL.RawQuery
	if kept.bodies[question] == nil {
		body, err := json.Marshal(s.nowOf(status, r, by))
		if err != nil {
			return nil, err
		}
		kept.bodies[question] = append(body, '\n')
	}
	return kept.bodies[question], nil
}

func (s *Server) nowOf(status *controller.Status, r *http.Request, by string) Now {
	n := Now{Group: groupOf(status), Table: tableOf(status, r.FormValue("find"), int(number(r, "offset")), int(number(r, "limit"))), By: by}
	s.mu.Lock()
	defer s.mu.Unlock()
	n.Generation, n.Version = s.generation, s.version
	n.Group.Over = s.past.last()
	after, mark := number(r, "after"), uint64(max(0, number(r, "mark")))
	if number(r, "generation") != s.generation {
		after, mark = 0, 0
	}
	n.Points, n.Whole = s.history.Points(after)
	if n.Whole {
		mark = 0
	}
	n.Marks = s.history.Marks(mark)
	return n
}

func (s *Server) instance(w http.ResponseWriter, r *http.Request) {
	status := s.control.Status()
	s.mu.Lock()
	marks := s.history.Marks(0)
	s.mu.Unlock()
	story, ok := storyOf(&status, marks, r.FormValue("id"))
	if !ok {
		http.Error(w, "no such instance", http.StatusNotFound)
		return
	}
	answer(w, story)
}

const (
	mostFound   = 200
	longestFind = 200
)

// search looks for a text in the journal on disk. It answers with the newest marks first.
func (s *Server) search(w http.ResponseWriter, r *http.Request) {
	select {
	case s.searches <- struct{}{}:
		defer func() { <-s.searches }()
	case <-r.Context().Done():
		return
	}
	find := strings.ToLower(r.FormValue("find"))
	hours := min(max(1, number(r, "hours")), 24*31)
	if len(find) > longestFind {
		http.Error(w, "the text is too long", http.StatusBadRequest)
		return
	}
	var found []Mark
	more := false
	err := s.opts.Recorded.Read(r.Context(), s.opts.Now().Add(-time.Duration(hours)*time.Hour), func(e bus.Entry) error {
		m, ok := markOf(&e)
		if !ok || !m.matches(find) {
			return nil
		}
		m.ID = e.Seq
		found = append(found, m)
		if len(found) > 2*mostFound {
			found, more = slices.Clone(found[len(found)-mostFound:]), true
		}
		return nil
	})
	if err != nil && !errors.Is(err, quell.ErrNoData) && len(found) == 0 {
		http.Error(w, "reading the journal: "+shown(err.Error()), http.StatusServiceUnavailable)
		return
	}
	if len(found) > mostFound {
		found, more = found[len(found)-mostFound:], true
	}
	slices.Reverse(found)
	answer(w, map[string]any{"marks": append([]Mark{}, found...), "more": more})
}

// events tells a browser when there is something new (server-sent events).
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	select {
	case s.viewers <- struct{}{}:
		defer func() { <-s.viewers }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many browsers wait for events", http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the server's limits are for short requests
	w.Header().Set("Content-Type", "text/event-stream")
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		s.mu.Lock()
		version, changed := s.version, s.changed
		s.mu.Unlock()
		_ = control.SetWriteDeadline(time.Now().Add(2 * heartbeat))
		if _, err := fmt.Fprintf(w, "data: %d\n\n", version); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.ended:
			return
		case <-changed:
		case <-beat.C:
		}
	}
}

const heartbeat = 15 * time.Second
