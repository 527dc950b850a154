package builtin

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// newPair returns a certificate for a name and 127.0.0.1, and its key, both in PEM form.
func newPair(t testing.TB, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

func writePair(t testing.TB, files TLS, cert, key []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(files.Cert, cert, 0o600), os.WriteFile(files.Key, key, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// pairFiles writes a pair into a folder of its own, and returns what clients need to trust it.
func pairFiles(t testing.TB) (TLS, *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	files := TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	cert, key := newPair(t, "first")
	writePair(t, files, cert, key)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return files, &tls.Config{RootCAs: roots, ServerName: "first"}
}

func tlsClient(t testing.TB, conf *tls.Config, http2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func TestClientsWithTLS(t *testing.T) {
	files, trusts := pairFiles(t)
	s := start(t, Options{TLS: &files, HTTP2: true})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Header.Get("X-Forwarded-Proto"), r.Header.Get("X-Forwarded-For"))
	})
	applyHealthy(t, s, in.backend(1))
	for want, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		c := tlsClient(t, trusts.Clone(), http2)
		for range 3 {
			resp, err := c.Post("https://"+s.Addr()+"/", "", strings.NewReader("a body"))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.Proto != want || string(text) != "https 127.0.0.1" {
				t.Errorf("%s: %s, %q, %v", want, resp.Proto, text, err)
			}
		}
	}
	old := trusts.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if conn, err := tls.Dial("tcp", s.Addr(), old); err == nil {
		t.Errorf("a client with version %x was served", conn.ConnectionState().Version)
	}
}

// Without HTTP/2, clients that could speak it get HTTP/1.1.
func TestTLSWithoutHTTP2(t *testing.T) {
	files, trusts := pairFiles(t)
	s := start(t, Options{TLS: &files})
	in := newInstance(t, "i1", nil)
	applyHealthy(t, s, in.backend(1))
	resp, err := tlsClient(t, trusts, true).Get("https://" + s.Addr() + "/")
	if err != nil || resp.ProtoMajor != 1 {
		t.Fatalf("%+v, %v", resp, err)
	}
	resp.Body.Close()
}

func TestPlainHTTPWhereTLSIsSpoken(t *testing.T) {
	files, _ := pairFiles(t)
	s := start(t, Options{TLS: &files, HTTP2: true})
	if got := rawly(t, s, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, needsTLS) {
		t.Errorf("%q", got)
	}
}

// A client that does not complete its handshake, or the header after it, is given up.
func TestStalledHandshakes(t *testing.T) {
	files, trusts := pairFiles(t)
	s := start(t, Options{TLS: &files, HTTP2: true, Timeouts: Timeouts{ReadHeader: 50 * time.Millisecond}})
	raw := dialTo(t, s)
	if n, err := raw.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent client: %d bytes, %v", n, err)
	}
	conn, err := tls.Dial("tcp", s.Addr(), trusts)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(conn, "GET / HT")
	if text, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a client that stalls in its header is kept: %q, %v", text, err)
	}
}

// An instance that answers before it has read a body ends the request, as without TLS.
func TestAnEarlyAnswerWithTLS(t *testing.T) {
	files, trusts := pairFiles(t)
	s := start(t, Options{TLS: &files, Health: checkedOnce()})
	rawInstance(t, s, "HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge")
	conn, err := tls.Dial("tcp", s.Addr(), trusts)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhalf")
	if got, err := io.ReadAll(conn); err != nil || !bytes.HasSuffix(got, []byte("\r\n\r\nlarge")) {
		t.Errorf("%q, %v", got, err)
	}
}

// Half-closed clients and upgrades are the same as without TLS.
func TestMannersWithTLS(t *testing.T) {
	files, trusts := pairFiles(t)
	s := start(t, Options{TLS: &files, Timeouts: Timeouts{HalfClosed: 10 * time.Second}})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			time.Sleep(20 * time.Millisecond) // long enough for the balancer to see the client's end
			io.WriteString(w, "answer")
			return
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, both, _ := http.NewResponseController(w).Hijack()
		defer conn.Close()
		io.Copy(conn, both)
	})
	applyHealthy(t, s, in.backend(1))
	for name, c := range map[string]struct{ request, want string }{
		"half-closed": {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "answer"},
		"upgraded":    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nthe same", "the same"},
		"broken":      {"GET / HTTP/1.1\r\nHost : a\r\n\r\n" + strings.Repeat("x", 1<<20), "missing required Host header"},
	} {
		conn, err := tls.Dial("tcp", s.Addr(), trusts)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		io.WriteString(conn, c.request)
		conn.CloseWrite()
		if got, err := io.ReadAll(conn); err != nil || !bytes.HasSuffix(got, []byte(c.want)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		conn.Close()
	}
}

func TestNewConnectionsGetANewCertificate(t *testing.T) {
	files, trusts := pairFiles(t)
	s := start(t, Options{TLS: &files})
	cert, key := newPair(t, "second")
	writePair(t, files, cert, key)
	trusts.RootCAs.AppendCertsFromPEM(cert)
	trusts.ServerName = "second"
	waitFor(t, "the new certificate", func() bool {
		conn, err := tls.Dial("tcp", s.Addr(), trusts)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func TestABadPairStopsTheStart(t *testing.T) {
	files, _ := pairFiles(t)
	_, other := newPair(t, "other")
	for why, change := range map[string]func(f *TLS){
		"no such file": func(f *TLS) { f.Cert += "x" },
		"no pair":      func(f *TLS) { f.Key = filepath.Join(t.TempDir(), "k"); os.WriteFile(f.Key, other, 0o600) },
		"cert and key": func(f *TLS) { f.Key = "" },
	} {
		f := files
		change(&f)
		_, err := New(Options{Listen: "127.0.0.1:0", TLS: &f})
		var user *quell.UserError
		if !errors.As(err, &user) || !strings.Contains(err.Error(), "tls") {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// The time-outs of slow readers count what the client takes, also with TLS.
func TestASlowReaderWithTLS(t *testing.T) {
	files, trusts := pairFiles(t)
	s := start(t, Options{TLS: &files, Timeouts: Timeouts{Write: 200 * time.Millisecond}})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, io.LimitReader(zeros{}, 20<<20)) })
	applyHealthy(t, s, in.backend(1))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: trusts}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") // and nothing of the answer is read
	waitFor(t, "the end of the request", func() bool { return in.served.Load() == 1 && stateOf(t, s, "i1").InFlight == 0 })
}
