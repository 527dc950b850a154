package keda

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/quellhq/quell/internal/certfile"
)

// client connects as KEDA does.
func client(t *testing.T, o Options, creds credentials.TransportCredentials) (externalscaler.ExternalScalerClient, func()) {
	t.Helper()
	o.Address, o.Service, o.Logger = "127.0.0.1:0", "web", slog.New(slog.DiscardHandler)
	address, stop, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return externalscaler.NewExternalScalerClient(conn), stop
}

func ref(service string) *externalscaler.ScaledObjectRef {
	return &externalscaler.ScaledObjectRef{Name: "web", Namespace: "shop", ScalerMetadata: map[string]string{"service": service}}
}

func TestAnswers(t *testing.T) {
	wanted, unknown := 7, error(nil)
	c, stop := client(t, Options{Wanted: func() (int, error) { return wanted, unknown }}, insecure.NewCredentials())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	spec, err := c.GetMetricSpec(ctx, ref("web"))
	if err != nil || len(spec.GetMetricSpecs()) != 1 || spec.GetMetricSpecs()[0].GetTargetSizeFloat() != 1 {
		t.Fatalf("GetMetricSpec = %v, %v", spec, err)
	}
	name := spec.GetMetricSpecs()[0].GetMetricName()
	got, err := c.GetMetrics(ctx, &externalscaler.GetMetricsRequest{ScaledObjectRef: ref(""), MetricName: name})
	if err != nil || len(got.GetMetricValues()) != 1 || got.GetMetricValues()[0].GetMetricName() != name ||
		got.GetMetricValues()[0].GetMetricValueFloat() != 7 || got.GetMetricValues()[0].GetMetricValue() != 7 {
		t.Errorf("GetMetrics = %v, %v", got, err)
	}
	active, err := c.IsActive(ctx, ref("web"))
	if err != nil || !active.GetResult() {
		t.Errorf("IsActive = %v, %v", active, err)
	}
	stream, err := c.StreamIsActive(ctx, ref("web"))
	if err != nil {
		t.Fatal(err)
	}
	if first, err := stream.Recv(); err != nil || !first.GetResult() {
		t.Errorf("StreamIsActive = %v, %v", first, err)
	}
	unknown = errors.New("no decision yet")
	if _, err := c.GetMetrics(ctx, &externalscaler.GetMetricsRequest{}); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "no decision yet") {
		t.Errorf("unknown: %v", err)
	}
	if active, err := c.IsActive(ctx, ref("web")); err != nil || !active.GetResult() {
		t.Errorf("unknown, and so KEDA may stop the last pod: %v, %v", active, err)
	}
	if _, err := c.GetMetricSpec(ctx, ref("shop")); status.Code(err) != codes.NotFound {
		t.Errorf("of another service: %v", err)
	}
	stop()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("after the end: %v", err)
	}
}

// With TLS and an authority of clients, only KEDA with a certificate is answered.
func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool, pair := x509.NewCertPool(), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	pool.AddCert(cert)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := certfile.Files{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), ClientCA: filepath.Join(dir, "cert"),
		CAKey: "ca"}
	for path, block := range map[string]pem.Block{files.Cert: {Type: "CERTIFICATE", Bytes: der},
		files.Key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(&block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, certs := range map[string][]tls.Certificate{"with a certificate": {pair}, "without": nil} {
		c, stop := client(t, Options{Secure: files}, credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: certs}))
		if _, err := c.IsActive(ctx, ref("web")); (err == nil) != (certs != nil) {
			t.Errorf("%s: %v", name, err)
		}
		stop()
	}
	files.ClientCA = files.Key
	if _, _, err := Listen(Options{Secure: files, Address: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}); err == nil ||
		!strings.Contains(err.Error(), "keda.tls.ca: ") {
		t.Errorf("a key as the clients' authority: %v", err)
	}
}

func TestAddressInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, _, err := Listen(Options{Address: ln.Addr().String()}); err == nil || !strings.Contains(err.Error(), "keda.listen") {
		t.Errorf("err = %v", err)
	}
}
