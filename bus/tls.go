package bus

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/namedfile"
)

// TLS names PEM files. A server with Cert and Key uses TLS; with CA it also requires client certificates that CA
// signed. A client trusts CA, or the system's authorities if CA is empty, and presents Cert if it is set.
type TLS struct{ CA, Cert, Key string }

func (t TLS) verifiesClients() bool { return t.CA != "" && t.Cert != "" }

// server opens the files of the bus's server, nil if TLS is not configured.
func (t TLS) server(log *slog.Logger) (*certfile.Certificate, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	if t.Cert == "" || t.Key == "" {
		return nil, userErrorf("bus.tls: a server needs both cert and key")
	}
	return certfile.Open(certfile.Files{Cert: t.Cert, Key: t.Key, ClientCA: t.CA, CAKey: "ca"}, "bus.tls", log)
}

// clientOption makes a connection use the files. The files are read again at each attempt to connect. Unless later is set, they must be
// readable already now.
func (t TLS) clientOption(later bool) (nats.Option, error) {
	if t == (TLS{}) {
		return func(*nats.Options) error { return nil }, nil
	}
	if (t.Cert == "") != (t.Key == "") {
		return nil, userErrorf("bus.tls: cert and key go together")
	}
	if err := t.check(); err != nil && !later {
		return nil, err
	}
	return func(o *nats.Options) error {
		o.Secure, o.TLSConfig = true, &tls.Config{MinVersion: tls.VersionTLS12}
		if t.Cert != "" {
			o.TLSCertCB = t.pair
		}
		if t.CA != "" {
			o.RootCAsCB = t.authorities
		}
		return nil
	}, nil
}

// check returns an error if a file cannot be used.
func (t TLS) check() (err error) {
	if t.Cert != "" {
		_, err = t.pair()
	}
	if t.CA != "" && err == nil {
		_, err = t.authorities()
	}
	return err
}

func (t TLS) pair() (tls.Certificate, error) {
	pair, err := keyPair(t.Cert, t.Key)
	if err != nil {
		return pair, userErrorf("bus.tls: read cert %s and key %s: %w", t.Cert, t.Key, err)
	}
	return pair, nil
}

// maxPEM is the largest size of a PEM file in bytes.
const maxPEM = 1 << 20

func keyPair(cert, key string) (pair tls.Certificate, err error) {
	certPEM, err := namedfile.Read(cert, maxPEM)
	if err != nil {
		return pair, err
	}
	keyPEM, err := namedfile.Read(key, maxPEM)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

func (t TLS) authorities() (*x509.CertPool, error) {
	pem, err := namedfile.Read(t.CA, maxPEM)
	if err != nil {
		return nil, userErrorf("bus.tls: read ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, userErrorf("bus.tls: ca %s holds no PEM certificate", t.CA)
	}
	return pool, nil
}
