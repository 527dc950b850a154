// Package certfile keeps a server's certificate as its files are: when they change, new connections get the new one.
package certfile

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/namedfile"
	"github.com/quellhq/quell/internal/tick"
)

// Files name files in PEM form: a certificate, followed by those of its authorities, and its private key.
type Files struct {
	Cert, Key string
	ClientCA  string // certificates of those who sign clients' certificates; empty: clients need none
	CAKey     string // the key that names ClientCA, for messages; empty: client_ca
}

func (f *Files) caKey() string { return cmp.Or(f.CAKey, "client_ca") }

// maxPEM is the largest size of such a file.
const maxPEM = 1 << 20

// Certificate is what the files had when they were last in order.
type Certificate struct {
	files   Files
	section string // of the configuration, for messages
	log     *slog.Logger
	inForce atomic.Pointer[content]
	tried   [][]byte // content of the files at the last attempt; used only by look
}

// content is what files of a Certificate have.
type content struct {
	pair    tls.Certificate
	clients *x509.CertPool // nil: clients need no certificate
}

// Open reads the files that a section of the configuration names. An error is a *quell.UserError.
func Open(files Files, section string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{files: files, section: section, log: log}
	if err := c.look(); err != nil {
		return nil, &quell.UserError{Err: err}
	}
	return c, nil
}

// Expires returns when the certificate in use ends.
func (c *Certificate) Expires() time.Time { return c.inForce.Load().pair.Leaf.NotAfter }

// look reads the files again. If they have changed and are in order, new connections get what they have. If something is wrong, new
// connections still get what was in use, and look returns the error once for each change of the files.
func (c *Certificate) look() error {
	texts, err := c.read()
	if err != nil {
		texts = [][]byte{[]byte(err.Error())}
	}
	if slices.EqualFunc(texts, c.tried, bytes.Equal) {
		return nil
	}
	if c.tried = texts; err != nil {
		return err
	}
	var next content
	if next.pair, err = tls.X509KeyPair(texts[0], texts[1]); err != nil {
		return fmt.Errorf("%s: %s and %s are no pair of certificate and key: %w", c.section, c.files.Cert, c.files.Key, err)
	}
	if len(texts) > 2 {
		next.clients = x509.NewCertPool()
		if !next.clients.AppendCertsFromPEM(texts[2]) {
			return fmt.Errorf("%s.%s: %s has no certificate in PEM", c.section, c.files.caKey(), c.files.ClientCA)
		}
	}
	c.use(&next)
	return nil
}

// read returns the content of the files.
func (c *Certificate) read() (texts [][]byte, err error) {
	for _, f := range []struct{ key, path string }{{"cert", c.files.Cert}, {"key", c.files.Key}, {c.files.caKey(), c.files.ClientCA}} {
		if f.path == "" && f.key == c.files.caKey() {
			continue
		}
		text, err := namedfile.Read(f.path, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", c.section, f.key, err)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

func (c *Certificate) use(next *content) {
	before := c.inForce.Swap(next)
	leaf := next.pair.Leaf
	log := c.log.With("cert", c.files.Cert, "names", names(leaf), "until", leaf.NotAfter.UTC().Format(time.RFC3339))
	switch {
	case time.Now().After(leaf.NotAfter):
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

// lookEvery is the time between looks at the files.
const lookEvery = time.Second

// Follow uses changed files until the context ends.
func (c *Certificate) Follow(ctx context.Context) {
	for tick.Sleep(ctx, lookEvery) {
		if err := c.look(); err != nil {
			c.log.Error("the certificate cannot be used: keeping the one before", "error", err)
		}
	}
}

// errNoClient says that a client's certificate is not signed by anybody in Files.ClientCA.
var errNoClient = errors.New("the client's certificate is not signed by a certificate of client_ca")

// Config returns a server's configuration for these protocols. The cipher suites of TLS 1.2 are those that HTTP/2 allows (RFC 9113,
// appendix A); those of TLS 1.3 are not configurable.
func (c *Certificate) Config(protocols ...string) *tls.Config {
	conf := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.inForce.Load().pair, nil },
	}
	if c.files.ClientCA != "" {
		conf.ClientAuth, conf.VerifyConnection, conf.SessionTicketsDisabled = tls.RequireAnyClientCert, c.verify, true
	}
	return conf
}

// verify checks a client's certificate with the authorities in force.
func (c *Certificate) verify(state tls.ConnectionState) error {
	between := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: c.inForce.Load().clients, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fmt.Errorf("%w: %w", errNoClient, err)
	}
	return nil
}
