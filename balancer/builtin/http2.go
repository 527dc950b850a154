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
	if s.rules.write > 0 {
		_ = s.control.SetWriteDeadline(time.Now().Add(s.rules.write)) // always supported for HTTP/2
	}
	return s.ResponseWriter.Write(b)
}

// FlushError implements the method that http.ResponseController uses. A header that is the whole answer is not flushed before the handler
// ends, because its frame then ends the stream as well. gRPC clients tell such a header, which has the call's status, from a header that
// should be followed by a trailer.
func (s *stream) FlushError() error {
	if s.of.headOnly {
		return nil
	}
	return s.control.Flush()
}

// streamBody is a request's body on an HTTP/2 stream. Until the response begins, the client must keep sending. After that the two sides may
// talk to each other, as in gRPC, and a client may be silent for as long as on an upgraded connection.
type streamBody struct {
	io.ReadCloser
	of      *upload
	control *http.ResponseController
	rules   *clientRules

	mu   sync.Mutex
	over bool // the handler has ended: the response controller must not be used any more
}

// Read implements io.Reader. The transport may still read when the handler has ended.
func (s *streamBody) Read(b []byte) (int, error) {
	limit := s.rules.body
	if s.of.answering.Load() {
		limit = s.rules.upgrade
	}
	until := time.Time{}
	if limit > 0 {
		until = time.Now().Add(limit)
	}
	if !s.setDeadline(until) {
		return 0, errOver
	}
	return s.ReadCloser.Read(b)
}

// setDeadline returns false if the handler has ended.
func (s *streamBody) setDeadline(until time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
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
