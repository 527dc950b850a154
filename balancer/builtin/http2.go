package builtin

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// clientProtocols returns what clients may speak.
func clientProtocols(http2 bool) *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(http2)
	return &p
}

func (u Protocol) protocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(u != H2C)
	p.SetUnencryptedHTTP2(u == H2C)
	return &p
}

// stream is a response on an HTTP/2 stream. The write time-out applies to the stream, because a client may read others and not this one.
// Its deadline is in force only while something waits for the client: net/http resets the stream when the deadline passes, even if nothing
// is being written because the instance is silent.
type stream struct {
	http.ResponseWriter
	of      *exchange
	control *http.ResponseController
	rules   *clientRules
}

// Unwrap lets http.ResponseController find the server's own writer.
func (s *stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Write implements http.ResponseWriter.
func (s *stream) Write(b []byte) (int, error) {
	s.arm()
	defer s.disarm()
	return s.ResponseWriter.Write(b)
}

// arm limits how long the client may read nothing. The handler's end leaves the limit in force: net/http then sends what it still has.
func (s *stream) arm() {
	if s.rules.write > 0 {
		_ = s.control.SetWriteDeadline(time.Now().Add(s.rules.write)) // always supported for HTTP/2
	}
}

func (s *stream) disarm() {
	if s.rules.write > 0 {
		_ = s.control.SetWriteDeadline(time.Time{})
	}
}

// FlushError implements the method that http.ResponseController uses. A header that is the whole answer is not flushed before the handler
// ends, because its frame then ends the stream as well. gRPC clients tell such a header, which has the call's status, from a header that
// should be followed by a trailer.
func (s *stream) FlushError() error {
	if s.of.headOnly {
		return nil
	}
	s.arm()
	defer s.disarm()
	return s.control.Flush()
}

// streamBody is a request's body on an HTTP/2 stream. Until the response begins, the client must keep sending. After that the two sides may
// talk to each other, as in gRPC, and a client may be silent for as long as on an upgraded connection.
type streamBody struct {
	io.ReadCloser
	control *http.ResponseController
	rules   *clientRules

	mu      sync.Mutex
	reading bool // a Read is in progress
	begun   bool // the response has begun
	over    bool // the handler has ended: the response controller must not be used any more
}

// Read implements io.Reader. The transport may still read when the handler has ended.
func (s *streamBody) Read(b []byte) (int, error) {
	if !s.await(true) {
		return 0, errOver
	}
	defer s.await(false)
	return s.ReadCloser.Read(b)
}

// await sets the deadline of a Read, and takes it away when the Read returns: net/http ends the body when the deadline passes, even if
// nothing reads because the instance is slow. It returns false if the handler has ended.
func (s *streamBody) await(reading bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = reading
	return s.setDeadline()
}

// begin is called when the response begins. It applies to a Read in progress as well.
func (s *streamBody) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	s.setDeadline()
}

// setDeadline returns false if the handler has ended.
func (s *streamBody) setDeadline() bool {
	if s.over {
		return false
	}
	limit, until := s.rules.body, time.Time{}
	if s.begun {
		limit = s.rules.upgrade
	}
	if s.reading && limit > 0 {
		until = time.Now().Add(limit)
	}
	_ = s.control.SetReadDeadline(until) // always supported for HTTP/2
	return true
}

// end is called when the handler ends.
func (s *streamBody) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// isMalformed returns whether an HTTP/2 request must not be passed on, although net/http accepts it. It checks the same for HTTP/1 itself.
// Without this check http.Transport would refuse or change the request, and the failure would count against the instance.
func isMalformed(r *http.Request) bool {
	lengths := r.Header["Content-Length"]
	return strings.ContainsFunc(r.Method, notInToken) || strings.ContainsAny(r.Host, " \t\"<>\\^`{|}/?#@") ||
		len(lengths) > 1 || len(lengths) == 1 && !isNumber(lengths[0])
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 63)
	return err == nil
}

// notInToken returns whether a character has no place in a method (RFC 9110, section 5.6.2).
func notInToken(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c))
}
