// Package controlplane runs a control plane of Kubernetes for tests: etcd, kube-apiserver and kube-controller-manager, on loopback. There
// are no nodes: Kubelet stands in for them. `make kube` builds the latter two by the module in programs.
package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/quellhq/quell/internal/need"
)

// wait limits how long one program may take to start.
const wait = 2 * time.Minute

// Plane is a running control plane.
type Plane struct {
	Config *rest.Config      // of a user who may do everything
	Client dynamic.Interface // the same user's
	Audit  string            // file with one line of JSON for each request that was answered
	dir    string
	ends   []func()
}

var shared struct {
	sync.Mutex
	plane *Plane
}

// Shared returns the control plane of this test binary, and starts it first if need be. Main must run the tests, or Stop be called after
// them.
func Shared(t testing.TB) *Plane {
	t.Helper()
	programs, etcd := need.Kubernetes(t), need.Program(t, "etcd")
	shared.Lock()
	defer shared.Unlock()
	if shared.plane == nil {
		p, err := start(t, programs, etcd)
		if err != nil {
			p.stop()
			t.Fatalf("starting a control plane of Kubernetes: %v", err)
		}
		shared.plane = p
	}
	return shared.plane
}

// Main runs tests and stops the control plane that they started.
func Main(m *testing.M) {
	status := m.Run()
	Stop()
	os.Exit(status)
}

// Stop stops the control plane that tests started, for test binaries that do not call Main.
func Stop() {
	if shared.plane != nil {
		shared.plane.stop()
	}
}

func (p *Plane) stop() {
	for i := len(p.ends) - 1; i >= 0; i-- {
		p.ends[i]()
	}
	_ = os.RemoveAll(p.dir)
}

func start(t testing.TB, programs, etcd string) (p *Plane, err error) {
	p = &Plane{}
	if p.dir, err = os.MkdirTemp("", "quell-kube-"); err != nil {
		return p, err
	}
	p.Audit = filepath.Join(p.dir, "audit.log")
	clients, peers, api := need.FreeAddress(t), need.FreeAddress(t), need.FreeAddress(t)
	p.Config = &rest.Config{
		Host: "https://" + api, BearerToken: "test",
		TLSClientConfig: rest.TLSClientConfig{CAFile: p.file("apiserver.crt")}, QPS: -1,
	}
	if err := p.writeFiles(); err != nil {
		return p, err
	}
	steps := []struct {
		name  string
		argv  []string
		ready func() error
	}{
		{"etcd", p.etcd(etcd, clients, peers), func() error { return answers(http.DefaultClient, "http://"+clients+"/health") }},
		{"kube-apiserver", p.apiserver(filepath.Join(programs, "kube-apiserver"), clients, api), func() error {
			client, err := rest.HTTPClientFor(p.Config)
			if err != nil {
				return err
			}
			return answers(client, p.Config.Host+"/readyz")
		}},
		{"kube-controller-manager", p.manager(filepath.Join(programs, "kube-controller-manager")), func() error { return nil }},
	}
	for _, s := range steps {
		ended, err := p.run(s.name, s.argv)
		if err != nil {
			return p, err
		}
		if err := await(s.ready, ended); err != nil {
			text, _ := os.ReadFile(p.file(s.name + ".log"))
			return p, fmt.Errorf("%s: %w; its log ends with:\n%s", s.name, err, text[max(0, len(text)-2000):])
		}
	}
	p.Client, err = dynamic.NewForConfig(p.Config)
	return p, err
}

func (p *Plane) file(name string) string { return filepath.Join(p.dir, name) }

// shell runs a program until its standard input ends, so that none outlives the process that holds the other end of the pipe, however that
// one ends.
const shell = `exec 3<&0; "$@" 3<&- & pid=$!; { cat <&3 >/dev/null; kill -9 $pid; } & wait $pid`

// run starts a program, and returns a channel that is closed when it ends.
func (p *Plane) run(name string, argv []string) (<-chan struct{}, error) {
	log, err := os.Create(p.file(name + ".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("sh", append([]string{"-c", shell, "sh"}, argv...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	p.ends = append(p.ends, func() { _ = pipe.Close(); <-ended })
	return ended, nil
}

func await(ready func() error, ended <-chan struct{}) (err error) {
	for end := time.Now().Add(wait); time.Now().Before(end); {
		if err = ready(); err == nil {
			return nil
		}
		select {
		case <-ended:
			return errors.New("it ended")
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("not ready within %v: %w", wait, err)
}

func answers(client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

func (p *Plane) etcd(program, clients, peers string) []string {
	return []string{
		program, "--data-dir=" + p.file("etcd"), "--listen-client-urls=http://" + clients, "--advertise-client-urls=http://" + clients,
		"--listen-peer-urls=http://" + peers, "--initial-advertise-peer-urls=http://" + peers, "--initial-cluster=default=http://" + peers,
	}
}

func (p *Plane) apiserver(program, etcd, address string) []string {
	_, port, _ := net.SplitHostPort(address)
	return []string{
		program, "--etcd-servers=http://" + etcd, "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--cert-dir=" + p.dir, "--token-auth-file=" + p.file("tokens.csv"), "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + p.file("accounts.key"),
		"--service-account-signing-key-file=" + p.file("accounts.key"), "--disable-admission-plugins=ServiceAccount",
		"--audit-policy-file=" + p.file("audit.yaml"), "--audit-log-path=" + p.Audit, "--audit-log-mode=blocking",
	}
}

func (p *Plane) manager(program string) []string {
	controllers := []string{"deployment", "replicaset", "statefulset", "disruption", "namespace", "garbage-collector",
		"persistentvolumeclaim-protection"}
	return []string{
		program, "--kubeconfig=" + p.Kubeconfig(), "--leader-elect=false", "--secure-port=0",
		"--controllers=" + strings.Join(controllers, "-controller,") + "-controller",
		"--kube-api-qps=500", "--kube-api-burst=500",
	}
}

// Kubeconfig returns a file with which every client of Kubernetes connects as the user who may do everything.
func (p *Plane) Kubeconfig() string { return p.file("kubeconfig") }

func (p *Plane) writeFiles() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: test, user: {token: test}}]
contexts: [{name: test, context: {cluster: test, user: test, namespace: default}}]
current-context: test
`, p.Config.Host, p.Config.CAFile)
	for name, text := range map[string]string{
		"accounts.key": string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})),
		"tokens.csv":   "test,test,1,system:masters\n",
		"kubeconfig":   kubeconfig,
		"audit.yaml": `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
			"rules": [{"level": "Metadata"}]}`,
	} {
		if err := os.WriteFile(p.file(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
