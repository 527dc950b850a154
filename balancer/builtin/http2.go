package builtin

import (
	"io"
	"net/http"
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

// streamBody is a request's body on an HTTP/2 stream. Until the response begins, the client must keep sending. After that the two sides may
// talk to each other, as in gRPC, and a client may be silent for as long as on an upgraded connection.
type streamBody struct {
	io.ReadCloser
	of      *upload
	control *http.ResponseController
	rules   *clientRules
}

// Read implements io.Reader.
func (s *streamBody) Read(b []byte) (int, error) {
	limit := s.rules.body
	if s.of.answering.Load() {
		limit = s.rules.upgrade
	}
	until := time.Time{}
	if limit > 0 {
		until = time.Now().Add(limit)
	}
	_ = s.control.SetReadDeadline(until) // always supported for HTTP/2
	return s.ReadCloser.Read(b)
}
