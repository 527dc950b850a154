package orca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/need"
)

// With a certificate, reports are told over TLS only.
func TestReportsOverTLS(t *testing.T) {
	files, roots := ownCertificate(t)
	r := New(time.Now, slog.New(slog.DiscardHandler))
	r.Serve([]string{"shop"})
	address := need.FreeAddress(t)
	stop, err := r.Listen(address, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	for name, c := range map[string]struct {
		with  credentials.TransportCredentials
		known bool
	}{
		"TLS":                 {credentials.NewTLS(&tls.Config{RootCAs: roots}), true},
		"without TLS":         {insecure.NewCredentials(), false},
		"another authority's": {credentials.NewTLS(&tls.Config{RootCAs: x509.NewCertPool()}), false},
	} {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(c.with))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		stream, err := orcaservice.NewOpenRcaServiceClient(conn).StreamCoreMetrics(t.Context(), &orcaservice.OrcaLoadReportRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if (err == nil) != c.known {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Listen(need.FreeAddress(t), certfile.Files{Cert: files.Cert + "x", Key: files.Key}); err == nil {
		t.Error("a file that is not there was taken")
	}
}

func ownCertificate(t *testing.T) (certfile.Files, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := certfile.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	for path, text := range map[string][]byte{files.Cert: cert, files.Key: private} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return files, roots
}
