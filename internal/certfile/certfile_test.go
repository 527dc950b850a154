package certfile

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// pair is a certificate and its key.
type pair struct {
	cert, key []byte // in PEM form
	leaf      *x509.Certificate
	private   *ecdsa.PrivateKey
}

// newPair makes a pair that is signed by another one, or by itself.
func newPair(t *testing.T, name string, by *pair) *pair {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: by == nil, BasicConstraintsValid: true}
	parent, signer := template, private
	if by != nil {
		parent, signer = by.leaf, by.private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), leaf, private}
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// files writes a pair, and the certificate of an authority unless that is nil.
func files(t *testing.T, p *pair, authority *pair) Files {
	t.Helper()
	dir := t.TempDir()
	f := Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	write(t, f.Cert, p.cert)
	write(t, f.Key, p.key)
	if authority != nil {
		f.ClientCA = filepath.Join(dir, "ca.pem")
		write(t, f.ClientCA, authority.cert)
	}
	return f
}

// A changed certificate is used for new connections. While its files are no pair, the old one stays, and the log says so once.
func TestACertificateThatChanges(t *testing.T) {
	var log bytes.Buffer
	f := files(t, newPair(t, "first", nil), nil)
	c, err := Open(f, "balancer.tls", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	look := func(why, wantName, wantErr string) {
		t.Helper()
		for _, want := range []string{wantErr, ""} { // said once
			err := c.look()
			if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
				t.Errorf("%s: %v, want %q", why, err, want)
			}
		}
		if used, _ := c.Config().GetCertificate(nil); used.Leaf.DNSNames[0] != wantName {
			t.Errorf("%s: %v is in use, want %s", why, used.Leaf.DNSNames, wantName)
		}
	}
	look("unchanged", "first", "")
	second := newPair(t, "second", nil)
	write(t, f.Cert, second.cert)
	look("only the certificate is new", "first", "no pair")
	write(t, f.Cert, second.cert[:100])
	write(t, f.Key, second.key)
	look("half a certificate", "first", "no pair")
	write(t, f.Cert, second.cert)
	look("the whole pair", "second", "")
	if err := os.Remove(f.Key); err != nil {
		t.Fatal(err)
	}
	look("no key", "second", "key.pem")
	write(t, f.Key, second.key)
	look("the key is back", "second", "")
	if n := strings.Count(log.String(), "the certificate has changed"); n < 1 {
		t.Errorf("%d changes in %s", n, log.String())
	}
	if until := c.Expires(); !until.Equal(second.leaf.NotAfter) {
		t.Errorf("it expires %v", until)
	}
}

// greet makes a connection to a server with this configuration, and returns why the server refused it.
func greet(t *testing.T, server *tls.Config, client *pair, roots *pair) error {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	trusts := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "server"}
	trusts.RootCAs.AppendCertsFromPEM(roots.cert)
	if client != nil {
		own, err := tls.X509KeyPair(client.cert, client.key)
		if err != nil {
			t.Fatal(err)
		}
		trusts.Certificates = []tls.Certificate{own}
	}
	go func() {
		conn := tls.Client(near, trusts)
		_ = conn.Handshake()
		_, _ = conn.Read(make([]byte, 1)) // what the server says of the certificate
	}()
	return tls.Server(far, server).Handshake()
}

// Only clients whose certificate an authority in force has signed are let in; a new authority counts at once.
func TestClientsCertificates(t *testing.T) {
	authority, other := newPair(t, "authority", nil), newPair(t, "other", nil)
	f := files(t, newPair(t, "server", authority), authority)
	c, err := Open(f, "agent.reports_tls", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := newPair(t, "client", authority), newPair(t, "client", other)
	if err := greet(t, c.Config(), ours, authority); err != nil {
		t.Errorf("a client of ours: %v", err)
	}
	if err := greet(t, c.Config(), theirs, authority); !errors.Is(err, errNoClient) {
		t.Errorf("a client of others: %v", err)
	}
	if err := greet(t, c.Config(), nil, authority); err == nil {
		t.Error("a client without a certificate was let in")
	}
	write(t, f.ClientCA, other.cert)
	if err := c.look(); err != nil {
		t.Fatal(err)
	}
	if err := greet(t, c.Config(), theirs, authority); err != nil {
		t.Errorf("after the authority has changed: %v", err)
	}
	write(t, f.ClientCA, nil)
	if err := c.look(); err == nil || !strings.Contains(err.Error(), "agent.reports_tls.client_ca") {
		t.Errorf("an empty file of authorities: %v", err)
	}
	if err := greet(t, c.Config(), theirs, authority); err != nil {
		t.Errorf("after a mistake: %v", err)
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	good := newPair(t, "a", nil)
	for why, change := range map[string]func(*Files){
		"balancer.tls.cert":      func(f *Files) { f.Cert += "x" },
		"balancer.tls.key":       func(f *Files) { f.Key += "x" },
		"no pair":                func(f *Files) { write(t, f.Key, newPair(t, "b", nil).key) },
		"balancer.tls.client_ca": func(f *Files) { f.ClientCA = f.Key },
	} {
		f := files(t, good, nil)
		change(&f)
		_, err := Open(f, "balancer.tls", slog.New(slog.DiscardHandler))
		if !errors.As(err, new(*quell.UserError)) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}
