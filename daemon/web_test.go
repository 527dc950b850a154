package daemon_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

// certify writes a certificate for 127.0.0.1 that is its own authority.
func certify(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		"web.key": {Type: "PRIVATE KEY", Bytes: private}, "web.crt": {Type: "CERTIFICATE", Bytes: der},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// secured asks, by TLS with the certificate in a folder as authority. user "" is nobody.
func secured(t *testing.T, dir, url, user, password string) (code int, body, by string, err error) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(readFile(t, filepath.Join(dir, "web.crt"))))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(request)
	if err != nil {
		return 0, "", "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if resp.TLS != nil {
		by = resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	return resp.StatusCode, string(text), by, err
}

// With a web configuration file the HTTP of every process is by TLS and for those who are known. The page is then shown off loopback, too.
// A renewed certificate is used without a restart. A file with a mistake is refused, with its line.
func TestWebConfiguration(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	const hash = "$2b$04$9PsSpKwIVIYtQNgs2Mzg5.84LD5Ue3ipwKqsgt80B5ykGXFebJEZO" // of the password `right`
	web := filepath.Join(r.dir, "web.yml")
	good := fmt.Sprintf("tls_server_config: {cert_file: web.crt, key_file: web.key}\nbasic_auth_users: {ann: %s}\n", hash)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(web, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certify(t, r.dir, "first")
	write(good)
	metrics := map[string]string{"controller": r.metrics, "balancer": need.FreeAddress(t), "agent": need.FreeAddress(t)}
	r.write("web_config: web.yml\n" + plain(reader(t), need.FreeAddress(t), "static"))
	r.replace(fmt.Sprintf("listen: %q", r.metrics), fmt.Sprintf("listen: %q", strings.Replace(r.metrics, "127.0.0.1", "0.0.0.0", 1)))
	r.replace("metrics: off", fmt.Sprintf("metrics: %q", metrics["balancer"]))
	r.replace("agent: {", fmt.Sprintf("agent: {metrics: %q, ", metrics["agent"]))
	procs := map[string]*proc{}
	for name, address := range metrics {
		procs[name] = r.start(name)
		r.await("the metrics of the "+name, func() (bool, any) {
			code, body, _, err := secured(t, r.dir, "https://"+address+"/metrics", "ann", "right")
			return err == nil && code == http.StatusOK && strings.Contains(body, "quell_build_info"), fmt.Sprint(code, err)
		})
		for password, want := range map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, "right": http.StatusOK} {
			user := "ann"
			if password == "" {
				user = ""
			}
			for _, path := range []string{"/metrics", "/healthz"} {
				if code, _, _, err := secured(t, r.dir, "https://"+address+path, user, password); err != nil || code != want {
					t.Errorf("%s of the %s with the password %q: %d %v, want %d", path, name, password, code, err, want)
				}
			}
		}
		if body, err := get("http://" + address + "/metrics"); err == nil && strings.Contains(string(body), "quell_") {
			t.Errorf("the %s answers by plain HTTP", name)
		}
	}
	page := "https://" + r.metrics + "/"
	code, body, _, err := secured(t, r.dir, page, "ann", "right")
	if err != nil || code != http.StatusOK || !strings.Contains(body, "<title>") {
		t.Errorf("the page: %d %v %s", code, err, body)
	}
	if code, _, _, err := secured(t, r.dir, page+"page/now", "ann", "right"); err != nil || code != http.StatusUnauthorized {
		t.Errorf("off loopback the page's content needs its log-in, too: %d %v", code, err)
	}
	r.await("the address of the page", func() (bool, any) {
		out, status := r.quell("page", "--config", r.config)
		return status == 0 && strings.HasPrefix(out, "https://"), out
	})
	certify(t, r.dir, "second")
	if _, _, by, err := secured(t, r.dir, page, "ann", "right"); err != nil || by != "second" {
		t.Errorf("after the certificate was renewed: %q %v", by, err)
	}
	write(strings.Replace(good, "{ann:", "{bob: right, ann:", 1)) // of no matter to ann
	for name, address := range metrics {
		if err := procs[name].cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		r.await("a reload of the "+name+" that fails, while it runs on", func() (bool, any) {
			code, body, _, err := secured(t, r.dir, "https://"+address+"/metrics", "ann", "right")
			return strings.Contains(body, "quell_config_last_reload_successful 0\n"), fmt.Sprint(code, err)
		})
	}
	for name, address := range metrics {
		for _, mistake := range []string{"", good + "basic_auth_user: {}\n"} {
			write(mistake)
			for _, scheme := range []string{"http://", "https://"} {
				_, body, _, _ := secured(t, r.dir, scheme+address+"/metrics", "ann", "right")
				if strings.Contains(body, "quell_") {
					t.Errorf("the %s answers by %s although its file is now %q", name, scheme, mistake)
				}
			}
		}
		write(good)
		if code, _, _, err := secured(t, r.dir, "https://"+address+"/metrics", "ann", "right"); err != nil || code != http.StatusOK {
			t.Errorf("the %s, after its file was mended: %d %v", name, code, err)
		}
	}
	for mistake, words := range map[string][]string{
		good + "basic_auth_user: {}\n":                                 {web + ":3", "basic_auth_user"},
		"tls_server_config: {cert_file: none, key_file: web.key}\n":    {web, "none"},
		"tls_server_config: {cert_file: web.key, key_file: web.crt}\n": {web, "X509KeyPair"}, "basic_auth_users: {ann: right}\n": {web, "bcrypt"},
	} {
		write(mistake)
		if out, status := r.quell("config", "check", r.config); status != 2 || !has(out, append(words, "web_config")...) {
			t.Errorf("config check: status %d, want %q in %s", status, words, out)
		}
		if out, status := r.quell("agent", "--config", r.config); status != 2 || !has(out, append(words, "web_config")...) {
			t.Errorf("the agent: status %d, want %q in %s", status, words, out)
		}
	}
	write(good)
	if err := os.Chmod(filepath.Join(r.dir, "web.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, status := r.quell("config", "check", r.config); status != 2 || !has(out, "web_config", "chmod 600", "web.key", "0644") {
		t.Errorf("a key that others can read: status %d, %s", status, out)
	}
}
