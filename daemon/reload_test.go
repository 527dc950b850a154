package daemon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/builtin"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/sensor"
)

// ofOneMachine writes a configuration into a folder, and returns its path.
func ofOneMachine(t *testing.T, folder, probe string) (path string) {
	t.Helper()
	path = filepath.Join(folder, "quell.yaml")
	text := fmt.Sprintf(`service: shop
slo: {metric: mean, threshold: 75ms}
balancer: {kind: builtin, listen: "127.0.0.1:8080"}
scaler: {kind: fixed, instances: [{id: web-1, type: t3.medium, address: "127.0.0.1:81", probe: "127.0.0.1:9466"}]}
probe: {capacity: 1Gbps, token_file: token, %s}
`, probe)
	for name, text := range map[string]string{path: text, filepath.Join(folder, "token"): strings.Repeat("0123456789abcdef", 2)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// A reload whose prober cannot be made keeps the running one, and fails.
func TestAReloadWithoutItsTokenKeepsTheProber(t *testing.T) {
	folder := t.TempDir()
	path := ofOneMachine(t, folder, "count: 10")
	log := slog.New(slog.DiscardHandler)
	file, settings, err := loadBalancer(path, "")
	if err != nil {
		t.Fatal(err)
	}
	conn, stopped := &bus.Conn{}, 0
	server, err := builtin.New(balancerOptions(file, settings, conn, log))
	if err != nil {
		t.Fatal(err)
	}
	p := &running{path: path, started: file, file: file, server: server, conn: conn, log: log, stopProbing: func() { stopped++ }}
	if err := os.Remove(filepath.Join(folder, "token")); err != nil {
		t.Fatal(err)
	}
	if p.reload(t.Context()) || stopped != 0 || p.file != file {
		t.Errorf("without the token: probing was stopped %d times, another file is in force: %v", stopped, p.file != file)
	}
	ofOneMachine(t, folder, "count: 12")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if !p.reload(ctx) || stopped != 1 || p.file.Probe.Count != 12 {
		t.Errorf("with the token: probing was stopped %d times, %d probes", stopped, p.file.Probe.Count)
	}
	p.stopProbing()
}

// Another address of the port at which an agent's probe server listens needs a restart, and the message says so.
func TestAReloadToAnotherAddressOfTheProbePort(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	folder := t.TempDir()
	path := ofOneMachine(t, folder, fmt.Sprintf("listen: %q", listener.Addr().String()))
	var said bytes.Buffer
	r := &reporter{path: path, log: slog.New(slog.NewTextHandler(&said, nil))}
	files, err := r.load("web-1")
	if err != nil {
		t.Fatal(err)
	}
	ofOneMachine(t, folder, fmt.Sprintf("listen: \":%s\"", port))
	if next := r.reload(&generation{file: files[0], listener: listener.(*net.TCPListener)}); next != nil {
		t.Fatal("it was reloaded")
	}
	want := fmt.Sprintf("probe.listen: :%s is another address of the port that this agent has open at %s: restart the agent", port,
		listener.Addr())
	if !strings.Contains(said.String(), "quell.yaml:5:") || !strings.Contains(said.String(), want) {
		t.Errorf("%s\nwant %s", said.String(), want)
	}
}

// A machine that is named on the command line, as by the packages' units, is found in the list of machines with its type.
func TestTheTypeOfAMachineNamedByAFlag(t *testing.T) {
	r := &reporter{path: ofOneMachine(t, t.TempDir(), "count: 10"), log: slog.New(slog.DiscardHandler)}
	files, err := r.load("web-1")
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.loadAgain()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []*config.File{files[0], again[0]} {
		if got, want := publishedLink(file), (sensor.Link{Type: "t3.medium", Baseline: 256e6, Burst: 5e9}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// refitted is a scaler with limits that follow from the service.
type refitted struct {
	scaler.Driver
	most int
}

func (r *refitted) Refit(s quell.Service) { r.most = s.Group.Max }

// A reload with another group reaches a scaler whose limits follow from it.
func TestAReloadReachesTheScaler(t *testing.T) {
	group, s := &refitted{}, quell.DefaultService()
	s.Group.Max = 7
	if (&runner{lease: &leader{}, group: group}).resized(s); group.most != 7 {
		t.Errorf("the scaler has the bound %d", group.most)
	}
}
