// Package progress receives from programs of this machine how much work they have done.
//
// A program sends "progress N" when it has done N more units of work, as a datagram to a Unix socket or by HTTP on another one. What a unit
// is, the program chooses: a record, a request, a frame. The kernel tells which process sent a message, so a program reports for its own
// control group only. Root and the user of this process may report for another group: "progress N /path/of/the/group".
package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/internal/connlimit"
	"github.com/quellhq/quell/internal/outage"
)

// HTTPSuffix is added to the path of the datagrams' socket for HTTP: POST /progress with the same text.
const HTTPSuffix = ".http"

// Limits of what is accepted.
const (
	longest   = 4200   // bytes of a message: a number and the path of a group
	mostUnits = 1e12   // in one message
	mostEach  = 10_000 // messages between two calls of Take; more are dropped, so that a flood costs little
)

// Message is one report of work.
type Message struct {
	Units float64
	Group string // empty: the sender's own
}

// Parse reads a message, "progress N" or "progress N GROUP".
func Parse(text string) (Message, error) {
	fields := strings.Fields(text)
	if len(text) > longest || len(fields) < 2 || len(fields) > 3 || fields[0] != "progress" {
		return Message{}, errors.New(`want "progress N", the number of units of work done since the last message`)
	}
	units, err := strconv.ParseFloat(fields[1], 64)
	if err != nil || !(units >= 0 && units <= mostUnits) {
		return Message{}, fmt.Errorf("want a number of units from 0 to %g, got %.20q", float64(mostUnits), fields[1])
	}
	m := Message{Units: units}
	if len(fields) == 3 {
		m.Group = fields[2]
		if !path.IsAbs(m.Group) || path.Clean(m.Group) != m.Group {
			return Message{}, fmt.Errorf("%.40q is no path of a control group", m.Group)
		}
	}
	return m, nil
}

// Server receives messages. Its methods may be called at the same time.
type Server struct {
	root      fs.FS // of the machine's proc
	log       *slog.Logger
	datagrams *net.UnixConn
	http      *http.Server
	done      sync.WaitGroup

	mu       sync.Mutex
	units    map[string]float64 // by group
	groups   map[int]string     // of senders; a cache
	messages int
	dropped  int
	bad      int
}

// Listen opens both sockets at a path, and makes their folder. It replaces sockets that a killed process left. root holds the machine's
// proc.
func Listen(root fs.FS, at string, log *slog.Logger) (*Server, error) {
	if used, err := net.Dial("unixgram", at); err == nil {
		return nil, errors.Join(fmt.Errorf("another process receives progress at %s: choose another path", at), used.Close())
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of the socket for progress: %w", err)
	}
	for _, one := range []string{at, at + HTTPSuffix} {
		if info, err := os.Lstat(one); err == nil && info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("%s exists and is no socket: choose another path", one)
		}
		if err := atomicfile.Remove(one); err != nil {
			return nil, fmt.Errorf("removing an old socket: %w", err)
		}
	}
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("opening the socket for progress: %w", err)
	}
	s := &Server{root: root, log: log, datagrams: datagrams}
	s.forget()
	listener, err := net.Listen("unix", at+HTTPSuffix)
	if err == nil {
		err = errors.Join(credentials(datagrams), os.Chmod(at, 0o666), os.Chmod(at+HTTPSuffix, 0o666))
		if err != nil {
			err = errors.Join(err, listener.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the socket for progress: %w", err), datagrams.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /progress", s.post)
	s.http = connlimit.Guard(&http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: outage.ErrorLog(log), ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, senderKey{}, senderOf(c))
		}})
	s.done.Go(s.receive)
	s.done.Go(func() {
		if err := connlimit.Serve(s.http, listener, log); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the socket for progress failed", "error", err)
		}
	})
	return s, nil
}

// Close closes the sockets.
func (s *Server) Close() error {
	at := s.datagrams.LocalAddr().String()
	err := errors.Join(s.http.Close(), s.datagrams.Close(), atomicfile.Remove(at))
	s.done.Wait()
	return err
}

// Take returns the units of work since the last call, by the path of the group that did it, and why messages were not counted.
func (s *Server) Take() (units map[string]float64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	units = s.units
	if s.dropped > 0 {
		err = fmt.Errorf("more than %d messages in one period: %d were dropped; let programs report less often", mostEach, s.dropped)
	}
	if s.bad > 0 {
		err = errors.Join(err, fmt.Errorf("%d messages were no reports of progress, or came from processes that may not report", s.bad))
	}
	s.forget()
	return units, err
}

func (s *Server) forget() {
	s.units, s.groups, s.messages, s.dropped, s.bad = map[string]float64{}, map[int]string{}, 0, 0, 0
}

// receive reads datagrams until the socket is closed.
func (s *Server) receive() {
	text, control := make([]byte, longest+1), make([]byte, 256)
	for {
		n, m, _, _, err := s.datagrams.ReadMsgUnix(text, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.log.Error("receiving progress", "error", err)
			time.Sleep(time.Second)
			continue
		}
		_ = s.take(string(text[:n]), senderIn(control[:m])) // a sender of datagrams gets no answer; bad ones are counted
	}
}

// post receives a message by HTTP.
func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longest))
	if err == nil {
		from, _ := r.Context().Value(senderKey{}).(*sender)
		err = s.take(string(body), from)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

type senderKey struct{}

// sender is the process that sent a message, as the kernel tells.
type sender struct{ pid, uid int }

// take counts one message.
func (s *Server) take(text string, from *sender) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.messages++; s.messages > mostEach {
		s.dropped++
		return errors.New("too many messages")
	}
	m, err := Parse(text)
	if err == nil && m.Group != "" && (from == nil || from.uid != 0 && from.uid != os.Geteuid()) {
		err = errors.New("only root, and the agent's user, report for another group")
	}
	if err == nil && m.Group == "" {
		m.Group, err = s.groupOf(from)
	}
	if err != nil {
		s.bad++
		return err
	}
	s.units[m.Group] += m.Units
	return nil
}

// groupOf returns the control group of a sender.
func (s *Server) groupOf(from *sender) (string, error) {
	if from == nil || from.pid <= 0 {
		return "", errors.New("the kernel does not tell which process sent this")
	}
	if group, ok := s.groups[from.pid]; ok {
		return group, nil
	}
	own, err := cgroup.Own(s.root, fmt.Sprintf("proc/%d/cgroup", from.pid))
	if err != nil {
		return "", err
	}
	group, ok := own["cpuacct"]
	if !ok {
		group = own[""]
	}
	s.groups[from.pid] = group
	return group, nil
}

// Within sums up the units of a group and of the groups below it; ok is false if none of them reported.
func Within(units map[string]float64, group string) (sum float64, ok bool) {
	for _, at := range slices.Sorted(maps.Keys(units)) {
		if at == group || strings.HasPrefix(at, strings.TrimSuffix(group, "/")+"/") {
			sum, ok = sum+units[at], true
		}
	}
	return min(sum, math.MaxFloat64), ok
}

// Pace turns the units of successive periods into units per second, for programs that report seldom. The rate is that since the latest
// report after which there were enough units or reports: a single one would tell little.
type Pace struct {
	reports []report // the oldest first; its units do not count, because the time for which it worked is not known
}

// report is what was reported in a period.
type report struct {
	at    time.Time // end of the period
	units float64
}

const (
	// enough is the number of units, or of periods with reports, from which a rate is computed.
	enough = 4
	// stopped is how many mean times between reports after the last one they have stopped.
	stopped = 4
)

// Next returns the units per second after one more period, which ended at now, and the time over which they were counted; ok is false until
// a second report, also after reports had stopped. If the next report is late, the rate falls.
func (p *Pace) Next(now time.Time, units float64, reported bool) (rate float64, span time.Duration, ok bool) {
	n := len(p.reports)
	if n > 0 && !now.After(p.reports[n-1].at) { // the clock was set
		p.reports, n = nil, 0
	}
	if reported {
		p.reports = append(p.reports, report{now, units})
		n++
	}
	if n < 2 {
		return 0, 0, false
	}
	first, sum := n-1, 0.0
	for first > max(0, n-1-enough) && sum < enough {
		sum += p.reports[first].units
		first--
	}
	p.reports = slices.Delete(p.reports, 0, first)
	begin, last := p.reports[0].at, p.reports[n-first-1].at
	between := last.Sub(begin) / time.Duration(n-first-1)
	if now.Sub(last) > stopped*between {
		p.reports = nil
		return 0, 0, false
	}
	span = max(last.Sub(begin), now.Sub(begin)-between)
	return sum / span.Seconds(), span, sum > 0
}
