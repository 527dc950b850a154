package bus

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// TLS names PEM files. A server with Cert and Key speaks TLS, and with CA too admits only clients whose certificate CA
// signed. A client trusts CA (else the system's authorities) and shows Cert if it has one.
type TLS struct{ CA, Cert, Key string }

func (t TLS) verifiesClients() bool { return t.CA != "" && t.Cert != "" }

// server returns nil when no TLS is asked for.
func (t TLS) server() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	if t.Cert == "" || t.Key == "" {
		return nil, userErrorf("bus.tls: a server needs both cert and key")
	}
	conf, err := t.load()
	if err != nil || t.CA == "" {
		return conf, err
	}
	conf.ClientCAs, conf.ClientAuth = conf.RootCAs, tls.RequireAndVerifyClientCert
	return conf, nil
}

// client returns nil when no TLS is asked for.
func (t TLS) client() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	if (t.Cert == "") != (t.Key == "") {
		return nil, userErrorf("bus.tls: cert and key go together")
	}
	return t.load()
}

func (t TLS) load() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, userErrorf("bus.tls: read cert %s and key %s: %w", t.Cert, t.Key, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, userErrorf("bus.tls: read ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, userErrorf("bus.tls: ca %s holds no PEM certificate", t.CA)
		}
	}
	return conf, nil
}
