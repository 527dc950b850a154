package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

var errNotKept = errors.New("the other side closes the connection after every answer: probes need it kept open")

// session holds the kept-alive connection to one target. It does not use http.Client, which does not report in time whether a connection is
// new, and whose switches between goroutines would add to the measured time.
type session struct {
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	address  string
	request  *http.Request
	size     int64
	timeout  time.Duration
	answered bool // the target has accepted a connection before

	conn   net.Conn
	reader *bufio.Reader
	beats  int64 // in the last answer; 0: it told none
	doubt  doubt
}

// kind is the outcome of a probe.
type kind int

const (
	measured kind = iota
	warmUp        // the first download on a connection; it includes connecting and is not counted
	timedOut      // took at least the timeout; counts as taking it
	refused       // no time was measured
)

type result struct {
	kind  kind
	took  time.Duration // set for measured and timedOut
	bytes int64         // received
	err   error         // set for timedOut and refused
}

func newSession(o Options, t Target, size int64) (*session, error) {
	request, err := http.NewRequest(http.MethodGet, "http://"+t.Address+"/probe?size="+strconv.FormatInt(size, 10), nil)
	if err != nil {
		return nil, fmt.Errorf("the address %q of instance %q cannot be probed: %w", t.Address, t.Instance, err)
	}
	request.Header.Set("User-Agent", "quell-probe")
	if o.Token != "" {
		request.Header.Set("Authorization", "Bearer "+o.Token)
	}
	return &session{dial: o.Dial, address: t.Address, request: request, size: size, timeout: o.Timeout}, nil
}

// probe makes one download. If parent ends first, the result is refused.
func (s *session) probe(parent context.Context) result {
	ctx, cancel := context.WithTimeout(parent, s.timeout)
	defer cancel()
	kept := s.conn != nil
	r := s.attempt(ctx)
	if kept && r.kind == refused && r.bytes == 0 && s.conn == nil && ctx.Err() == nil {
		r = s.attempt(ctx) // the other side had closed the idle connection: reconnect
	}
	expired := errors.Is(ctx.Err(), context.DeadlineExceeded) && parent.Err() == nil
	// If a target has never accepted a connection, it is not running yet, and a timeout says nothing about interference.
	if r.kind == refused && expired && s.answered {
		r.kind, r.took = timedOut, s.timeout
	}
	return r
}

// attempt downloads once, and opens a connection first if there is none. After a failure the connection is closed.
func (s *session) attempt(ctx context.Context) result {
	fresh := s.conn == nil
	if fresh {
		conn, err := s.dial(ctx, "tcp", s.address)
		if err != nil {
			return result{kind: refused, err: err}
		}
		s.conn, s.answered = stamped(conn), true
		s.reader = bufio.NewReader(s.conn)
	}
	conn := s.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // an error means that it is closed already
	took, bytes, err := s.download()
	if !stop() || err != nil {
		s.close()
	}
	switch {
	case err != nil:
		return result{kind: refused, bytes: bytes, err: err}
	case fresh && s.conn == nil:
		return result{kind: refused, bytes: bytes, err: errNotKept}
	case fresh:
		return result{kind: warmUp, bytes: bytes}
	}
	return result{kind: measured, took: took, bytes: bytes}
}

// download measures from sending the request to the arrival of the answer's last byte at this machine. If the other machine reports how
// long the request waited there for an answer, that time is subtracted. So neither machine's processors lengthen the measured time.
func (s *session) download() (took time.Duration, bytes int64, err error) {
	start := time.Now()
	if err := s.request.Write(s.conn); err != nil {
		return 0, 0, fmt.Errorf("sending a probe: %w", err)
	}
	response, err := http.ReadResponse(s.reader, s.request)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the answer to a probe: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized {
		return 0, headerBytes, errors.New("the probe server refused the token: set the same probe.token on both sides")
	}
	if response.StatusCode != http.StatusOK {
		return 0, headerBytes, fmt.Errorf("the probe server answered %s", response.Status)
	}
	if response.ContentLength != s.size {
		return 0, headerBytes, fmt.Errorf("the probe server announced %d bytes instead of %d", response.ContentLength, s.size)
	}
	n, err := io.Copy(io.Discard, response.Body)
	took = time.Since(start)
	late, known := sinceArrival(s.conn)
	if err != nil {
		return 0, headerBytes + n, fmt.Errorf("downloading a probe: %w", err)
	}
	if known && late < took {
		took -= late
	}
	if response.Close {
		s.close()
	}
	s.beats = beatsIn(response.Header)
	if us, err := strconv.ParseInt(response.Header.Get(waitedHeader), 10, 64); err == nil && us > 0 && us < took.Microseconds() {
		took -= time.Duration(us) * time.Microsecond
	}
	return took, headerBytes + n, nil
}

// times returns the times in milliseconds that count after a probe: its own, and those of earlier timeouts that it decides about. asleep is
// for how long the target stood still, if that is why such timeouts do not count.
func (s *session) times(r result, began time.Time) (count []float64, asleep time.Duration) {
	ms := float64(r.took) / float64(time.Millisecond)
	switch r.kind {
	case timedOut:
		return s.doubt.timedOut(began, ms), 0
	case warmUp:
		return s.doubt.answered(time.Now(), s.beats)
	case measured:
		count, asleep = s.doubt.answered(time.Now(), s.beats)
		return append(count, ms), asleep
	}
	return nil, 0
}

func (s *session) close() {
	if s.conn != nil {
		_ = s.conn.Close() // an error does not matter: nothing was left to be sent
		s.conn, s.reader = nil, nil
	}
}
