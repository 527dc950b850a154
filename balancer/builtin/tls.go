package builtin

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/namedfile"
	"github.com/quellhq/quell/internal/tick"
)

// TLS names two PEM files: a certificate, followed by those of its authorities, and its private key.
type TLS struct{ Cert, Key string }

// maxPEM is the largest size of such a file.
const maxPEM = 1 << 20

// certificate is the balancer's pair of certificate and key. It is read again when its files change.
type certificate struct {
	files   TLS
	log     *slog.Logger
	inForce atomic.Pointer[tls.Certificate]
	tried   [2][]byte // content of the files at the last attempt; used only by look
}

// newCertificate reads the pair. An error is a *quell.UserError.
func newCertificate(files TLS, log *slog.Logger) (*certificate, error) {
	c := &certificate{files: files, log: log}
	if err := c.look(); err != nil {
		return nil, &quell.UserError{Err: err}
	}
	return c, nil
}

// look reads the files again. If they have changed and are a pair, the pair is used for new connections. Otherwise look returns what is
// wrong, once for each change, and the old pair stays.
func (c *certificate) look() error {
	cert, err := namedfile.Read(c.files.Cert, maxPEM)
	if err != nil {
		return c.problem("balancer.tls.cert: %w", err)
	}
	key, err := namedfile.Read(c.files.Key, maxPEM)
	if err != nil {
		return c.problem("balancer.tls.key: %w", err)
	}
	if bytes.Equal(cert, c.tried[0]) && bytes.Equal(key, c.tried[1]) {
		return nil
	}
	c.tried = [2][]byte{cert, key}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("balancer.tls: %s and %s are no pair of certificate and key: %w", c.files.Cert, c.files.Key, err)
	}
	c.use(&pair)
	return nil
}

// problem returns an error of reading unless the last attempt had the same.
func (c *certificate) problem(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if text := []byte(err.Error()); !bytes.Equal(c.tried[0], text) {
		c.tried = [2][]byte{text, nil}
		return err
	}
	return nil
}

func (c *certificate) use(pair *tls.Certificate) {
	before := c.inForce.Swap(pair)
	log := c.log.With("cert", c.files.Cert, "names", names(pair.Leaf), "until", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	switch {
	case time.Now().After(pair.Leaf.NotAfter):
		log.Warn("the certificate has expired: clients will refuse it")
	case before != nil:
		log.Info("the certificate has changed: new connections get it")
	default:
		log.Info("clients connect with TLS")
	}
}

// names returns the names for which a certificate is valid.
func names(leaf *x509.Certificate) []string {
	all := leaf.DNSNames
	for _, ip := range leaf.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}

// certificateLook is the time between looks at the files.
const certificateLook = time.Second

// follow uses changed files until the context ends.
func (c *certificate) follow(ctx context.Context) {
	for tick.Sleep(ctx, certificateLook) {
		if err := c.look(); err != nil {
			c.log.Error("the certificate cannot be used: keeping the one before", "error", err)
		}
	}
}

// config returns the configuration of clients' connections. The cipher suites of TLS 1.2 are those that HTTP/2 allows (RFC 9113, appendix
// A); those of TLS 1.3 are not configurable.
func (c *certificate) config(http2 bool) *tls.Config {
	protocols := []string{"http/1.1"}
	if http2 {
		protocols = []string{"h2", "http/1.1"}
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.inForce.Load(), nil },
	}
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
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && looksLikeHTTP(header.RecordHeader) {
		_, _ = fmt.Fprintf(s.raw, plainHTTP, len(needsTLS), needsTLS)
		return 0, io.EOF
	}
	return n, err
}

// looksLikeHTTP returns whether the first bytes of a connection are capital letters, as those of a method are.
func looksLikeHTTP(first [5]byte) bool {
	for _, c := range first[:3] {
		if c < 'A' || c > 'Z' {
			return false
		}
	}
	return true
}
