package grpclimit

import (
	"context"
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
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/quellhq/quell/internal/certfile"
)

// writePair writes a certificate that signs itself, and its key.
func writePair(t *testing.T, files certfile.Files, serial int64) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	for path, block := range map[string]pem.Block{files.Cert: {Type: "CERTIFICATE", Bytes: der},
		files.Key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(&block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(leaf)
	return pool
}

// asks asks a server over a connection of its own, and returns the serial number of the server's certificate.
func asks(ctx context.Context, t *testing.T, address string, roots *x509.CertPool) (serial int64, err error) {
	t.Helper()
	config := &tls.Config{RootCAs: roots, VerifyConnection: func(s tls.ConnectionState) error {
		serial = s.PeerCertificates[0].SerialNumber.Int64()
		return nil
	}}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return serial, err
}

// A server uses a changed certificate without a restart. It ends its streams and closes its port when its context ends.
func TestServerFollowsItsCertificate(t *testing.T) {
	dir := t.TempDir()
	files := certfile.Files{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	roots := writePair(t, files, 1)
	s, err := Open(Options{Address: "127.0.0.1:0", What: "tests", Secure: files, Section: "tests.tls", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	healthpb.RegisterHealthServer(s, health.NewServer())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Serve(ctx) }()
	patient, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	if serial, err := asks(patient, t, s.Address(), roots); err != nil || serial != 1 {
		t.Fatalf("certificate %d, %v", serial, err)
	}
	roots = writePair(t, files, 2)
	for serial := int64(1); serial != 2; time.Sleep(50 * time.Millisecond) {
		if serial, err = asks(patient, t, s.Address(), roots); patient.Err() != nil {
			t.Fatalf("the new certificate is not used: %v", err)
		}
	}
	cancel()
	<-ended
	if conn, err := net.Dial("tcp", s.Address()); err == nil {
		conn.Close()
		t.Error("the port is open after the end")
	}
	s, err = Open(Options{Address: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(ctx) // it has ended already
	if conn, err := net.Dial("tcp", s.Address()); err == nil {
		conn.Close()
		t.Error("the port of a server that never served is open")
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	log := slog.New(slog.DiscardHandler)
	for want, o := range map[string]Options{
		"listening for tests (x.listen)":  {Address: taken.Addr().String(), What: "tests (x.listen)", Logger: log},
		"x.tls.cert: open /missing/cert:": {Secure: certfile.Files{Cert: "/missing/cert", Key: "k"}, Section: "x.tls", Logger: log},
	} {
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
