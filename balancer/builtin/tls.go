package builtin

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
)

// TLS names two PEM files: a certificate, followed by those of its authorities, and its private key.
type TLS struct{ Cert, Key string }

// protocols are the versions of HTTP that are offered to clients during the TLS handshake (ALPN).
func protocols(http2 bool) []string {
	if http2 {
		return []string{"h2", "http/1.1"}
	}
	return []string{"http/1.1"}
}

// secured is a client's connection with TLS. The first Read or Write does the handshake, within the time limit of the first header.
type secured struct {
	*tls.Conn
	raw net.Conn
}

const (
	plainHTTP = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s"
	needsTLS  = "this address speaks HTTPS\n"
)

// Read implements net.Conn. A client that speaks HTTP without TLS is told so.
func (s *secured) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if header, ok := errors.AsType[tls.RecordHeaderError](err); ok && header.Conn != nil && looksLikeHTTP(header.RecordHeader) {
		_, _ = fmt.Fprintf(s.raw, plainHTTP, len(needsTLS), needsTLS)
		return 0, io.EOF
	}
	return n, err
}

// looksLikeHTTP returns whether the first bytes of a connection are capital letters, as those of a method are.
func looksLikeHTTP(first [5]byte) bool {
	return !slices.ContainsFunc(first[:3], func(c byte) bool { return c < 'A' || c > 'Z' })
}
