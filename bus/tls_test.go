package bus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestMutualTLS(t *testing.T) {
	certs, others := certificates(t), certificates(t)
	s := startServer(t, ServerOptions{Listen: "127.0.0.1:0", TLS: certs.server})
	tests := []struct {
		name    string
		tls     TLS
		refused bool
	}{
		{"a certificate of the same authority", certs.client, false},
		{"no certificate", TLS{CA: certs.client.CA}, true},
		{"another authority's certificate", TLS{CA: certs.client.CA, Cert: others.client.Cert, Key: others.client.Key}, true},
		{"the server is not who it should be", TLS{CA: others.client.CA, Cert: certs.client.Cert, Key: certs.client.Key}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := Connect(Options{URL: s.URL(), TLS: test.tls})
			if test.refused {
				wantUserError(t, err, "refused", s.URL())
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if !c.Connected() {
				t.Error("not connected")
			}
		})
	}
	t.Run("inside the process no certificate is needed", func(t *testing.T) {
		appendEvents(t, journal(t, connect(t, Options{Server: s}), JournalOptions{}), 1)
	})
}

// New connections get a certificate that was renewed, and the authority in force decides about clients.
func TestRenewedCertificates(t *testing.T) {
	first, second := certificates(t), certificates(t)
	s := startServer(t, ServerOptions{Listen: "127.0.0.1:0", TLS: first.server})
	before := connect(t, Options{URL: s.URL(), TLS: first.client})
	for from, to := range map[string]string{second.server.CA: first.server.CA, second.server.Cert: first.server.Cert,
		second.server.Key: first.server.Key} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a connection with the second certificates", func() bool {
		c, err := Connect(Options{URL: s.URL(), TLS: second.client})
		if err != nil {
			return false
		}
		defer c.Close()
		return c.Connected()
	})
	if !before.Connected() {
		t.Error("an open connection was ended")
	}
	_, err := Connect(Options{URL: s.URL(), TLS: TLS{CA: second.client.CA, Cert: first.client.Cert, Key: first.client.Key}})
	wantUserError(t, err, "refused", s.URL())
}

func TestTLSAgainstAServerWithout(t *testing.T) {
	s := startServer(t, ServerOptions{Listen: "127.0.0.1:0"})
	_, err := Connect(Options{URL: s.URL(), TLS: certificates(t).client})
	wantUserError(t, err, "bus.tls")
}

func TestTLSFiles(t *testing.T) {
	certs := certificates(t)
	bad := filepath.Join(t.TempDir(), "bad.pem")
	if err := os.WriteFile(bad, []byte("not PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]TLS{
		"authority missing":    {CA: bad + ".missing"},
		"authority not PEM":    {CA: bad},
		"certificate not PEM":  {Cert: bad, Key: certs.client.Key},
		"certificate alone":    {Cert: certs.client.Cert},
		"key of another":       {Cert: certs.client.Cert, Key: certs.server.Key},
		"key without anything": {Key: certs.client.Key},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Connect(Options{URL: "nats://127.0.0.1:1", TLS: files})
			wantUserError(t, err, "bus.tls")
		})
	}
}

type certificateFiles struct{ server, client TLS }

// certificates makes an authority and a certificate for each side.
func certificates(t testing.TB) certificateFiles {
	t.Helper()
	dir := t.TempDir()
	caKey := newKey(t)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caFile := filepath.Join(dir, "ca.pem")
	writePEM(t, caFile, "CERTIFICATE", sign(t, ca, ca, &caKey.PublicKey, caKey))
	issue := func(name string, serial int64, usage x509.ExtKeyUsage) TLS {
		key := newKey(t)
		leaf := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: ca.NotBefore,
			NotAfter:    ca.NotAfter,
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{usage}}
		files := TLS{CA: caFile, Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key")}
		writePEM(t, files.Cert, "CERTIFICATE", sign(t, leaf, ca, &key.PublicKey, caKey))
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		writePEM(t, files.Key, "EC PRIVATE KEY", der)
		return files
	}
	return certificateFiles{server: issue("server", 2, x509.ExtKeyUsageServerAuth), client: issue("client", 3, x509.ExtKeyUsageClientAuth)}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, cert, by *x509.Certificate, pub *ecdsa.PublicKey, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, by, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
