package interop

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/builtin"
)

// balance starts a balancer before the instances at these addresses, and returns its address.
func balance(t *testing.T, o builtin.Options, addresses ...string) string {
	t.Helper()
	o.Listen, o.HTTP2 = "127.0.0.1:0", true
	o.Timeouts.Body, o.Timeouts.Write = 20*time.Second, 20*time.Second
	s, err := builtin.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	var backends []quell.Backend
	for i, address := range addresses {
		backends = append(backends, quell.Backend{ID: string(rune('a' + i)), Address: address, Weight: 1 / float64(len(addresses))})
	}
	if err := s.Apply(t.Context(), backends); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		healthy := 0
		for _, b := range s.Backends() {
			if b.Healthy {
				healthy++
			}
		}
		if healthy == len(addresses) {
			return s.Addr()
		}
		if time.Now().After(until) {
			t.Fatal("the instances do not become healthy")
		}
	}
}

// certificate makes a pair for 127.0.0.1 and returns it with what a client needs to trust it.
func certificate(t *testing.T) (*builtin.TLS, *tls.Config) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := &builtin.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	if err := errors.Join(os.WriteFile(files.Cert, cert, 0o600), os.WriteFile(files.Key, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return files, &tls.Config{RootCAs: roots}
}
