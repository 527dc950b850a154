package envoy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/envoylog"
)

// authority signs certificates.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, dir string) *authority {
	a := &authority{t: t, dir: dir}
	a.cert, a.key = a.make("ca", nil)
	return a
}

// make writes NAME.pem and NAME.key.
func (a *authority) make(name string, parent *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: parent == nil, BasicConstraintsValid: true}
	signer, with := template, key
	if parent != nil {
		signer, with = parent, a.key
	}
	der, failed := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, with)
	private, encoding := x509.MarshalECPrivateKey(key)
	cert, parsing := x509.ParseCertificate(der)
	for suffix, block := range map[string]*pem.Block{
		".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(a.dir, name+suffix), pem.EncodeToMemory(block), 0o600))
	}
	if err := errors.Join(err, failed, encoding, parsing); err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// With certificates on both sides, an Envoy that has one gets endpoints, and one without does not.
func TestCertificates(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"with a certificate": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			i := newInstance(t, nil)
			l := newLab(t)
			a := newAuthority(t, l.dir)
			a.make("quell", a.cert)
			a.make("front", a.cert)
			own := ""
			if known {
				own = "\n          tls_certificates: [{certificate_chain: {filename: DIR/front.pem}, private_key: {filename: DIR/front.key}}]"
				own = strings.ReplaceAll(own, "DIR", l.dir)
			}
			l.start(sotw, "ROUND_ROBIN", fmt.Sprintf(`    transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context:
          alpn_protocols: [h2]
          validation_context: {trusted_ca: {filename: %s/ca.pem}}%s
`, l.dir, own))
			control := l.control(func(_ *Options, s *Settings) {
				s.Cert, s.Key, s.ClientCA = filepath.Join(l.dir, "quell.pem"), filepath.Join(l.dir, "quell.key"), filepath.Join(l.dir, "ca.pem")
			})
			if err := control.Apply(t.Context(), []quell.Backend{backend("a", i, 1)}); err != nil {
				t.Fatal(err)
			}
			if known {
				l.serves()
				return
			}
			eventually(t, "Envoy is refused", func() bool {
				said, _ := os.ReadFile(filepath.Join(l.dir, "out"))
				return strings.Contains(string(said), "TLS") || strings.Contains(string(said), "remote connection failure") || control.Err() != nil
			})
			if l.get(1, "/") == 0 || !contains(control.fleet.err("x"), "no Envoy has asked") {
				t.Error("it got endpoints")
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	newAuthority(t, dir)
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ca, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
	d, err := New(Options{Clusters: []string{"web"}})
	if err != nil {
		t.Fatal(err)
	}
	for why, o := range map[string]envoylog.Settings{
		"no such file":      {Cert: filepath.Join(dir, "none"), Key: key},
		"not a certificate": {Cert: empty, Key: key},
		"no client ca":      {Cert: ca, Key: key, ClientCA: filepath.Join(dir, "none")},
		"an empty one":      {Cert: ca, Key: key, ClientCA: empty},
	} {
		o.Listen = "127.0.0.1:0"
		s := Settings{Settings: o}
		if _, err := s.Measure(d, balancer.Service{}, nil); !errors.As(err, new(*quell.UserError)) {
			t.Errorf("%s: %v", why, err)
		}
	}
	memory := filepath.Join(dir, "envoy.json")
	if err := os.WriteFile(memory, []byte(`[{"id":"a","address":"x","numeric":"nowhere","share":1}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = New(Options{Clusters: []string{"web"}, Memory: memory})
	if err == nil || !strings.Contains(err.Error(), "is damaged: delete it") {
		t.Errorf("a damaged memory: %v", err)
	}
}
