package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/outlier"
	"github.com/quellhq/quell/policy/prima"
	"github.com/quellhq/quell/policy/rivals"
)

// These are the roles of processes in a test service whose policy also asks for settings, with a toy driver that applies them.
const (
	controllerRole = "controller" // a controller; its argument is the configuration
	machineRole    = "machine"    // an instance with its agent
	agentRole      = "agent"      // an agent; its argument is the machine's folder
)

// playToy plays one of these roles until its process is asked to end.
func playToy(role string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var err error
	switch role {
	case controllerRole:
		err = daemon.ControllerWith(ctx, args[0], amended(prima.Spec, readWish(filepath.Dir(args[0]))), log)
	case machineRole:
		err = runMachine(ctx, args[0], args[1], args[2], args[3])
	case agentRole:
		err = runAgent(ctx, args[0], log)
	}
	if err != nil {
		log.Error(role+" ended", "error", err)
		return 1
	}
	return 0
}

// amended returns a policy, to whose plans more adds, and the other policies that a configuration of these tests names.
func amended[S any](spec policy.Spec[S], more func(*quell.Snapshot, *quell.Plan)) policy.Table {
	decide := spec.Decide
	spec.Decide = func(in *policy.Input, settings S, g *policy.Group, st *policy.State) quell.Plan {
		plan := decide(in, settings, g, st)
		more(in.Snapshot, &plan)
		return plan
	}
	return policy.NewTable(spec.Row(), rivals.Static.Row(), outlier.Spec.Row())
}

// asBefore is the number of workers on a new machine.
const asBefore = 100

const wishFile = "wish"

// readWish reads the number of workers that is wished for from a folder and asks every instance for it, except instances that have not
// reported their settings yet.
func readWish(folder string) func(*quell.Snapshot, *quell.Plan) {
	return func(s *quell.Snapshot, plan *quell.Plan) {
		workers, err := toyFile(filepath.Join(folder, wishFile)).get()
		if err != nil {
			return
		}
		for i := range s.Instances {
			if in := &s.Instances[i]; in.State == quell.Ready && in.Settings != nil {
				plan.Settings = append(plan.Settings, quell.Setting{Instance: in.ID, Target: "toy", Name: "workers", Value: workers})
			}
		}
	}
}

// replaceFile replaces a file in one step.
func replaceFile(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// toyFile is a driver that keeps its value in a file. A second file has all values that it was asked to set.
type toyFile string

const (
	workersFile = "workers"
	toldSuffix  = ".told"
)

func (f toyFile) put(value float64) error {
	text := strconv.FormatFloat(value, 'g', -1, 64)
	if err := replaceFile(string(f), []byte(text)); err != nil {
		return err
	}
	told, err := os.OpenFile(string(f)+toldSuffix, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = told.WriteString(text + "\n")
	return errors.Join(err, told.Close())
}

func (f toyFile) get() (float64, error) {
	data, err := os.ReadFile(string(f))
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(string(data), 64)
}

// told returns the list of values that the driver was asked to set.
func (f toyFile) told() ([]float64, error) {
	data, err := os.ReadFile(string(f) + toldSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var values []float64
	for _, text := range strings.Fields(string(data)) {
		v, wrong := strconv.ParseFloat(text, 64)
		values, err = append(values, v), errors.Join(err, wrong)
	}
	return values, err
}

type toySetter struct{ toyFile }

func (s toySetter) Set(_ context.Context, name string, value float64) error {
	if name != "workers" {
		return fmt.Errorf("there is no parameter %q", name)
	}
	return s.put(value)
}

func (s toySetter) InForce(context.Context) (map[string]float64, error) {
	v, err := s.get()
	return map[string]float64{"workers": v}, err
}

func (s toySetter) Restore(context.Context) error { return s.put(asBefore) }

func runAgent(ctx context.Context, folder string, log *slog.Logger) error {
	ctx, cancel, _, err := lifeline.Tie(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return daemon.DrivingAgent(ctx, filepath.Join(folder, "agent.yaml"), "",
		map[string]agent.Setter{"toy": toySetter{toyFile(filepath.Join(folder, workersFile))}}, log)
}

// furnish makes a machine's folder, with the values in force and the configuration and the credential of its agent.
func furnish(service, id, probe string) (folder string, err error) {
	folder = filepath.Join(service, id)
	credential, err := auth.Keyring{Dir: filepath.Join(service, "data", "credentials")}.Issue(
		auth.Grant{Role: auth.Sensor, Service: "shop", ID: id}, 0)
	if err != nil {
		return "", err
	}
	address, err := os.ReadFile(filepath.Join(service, "bus"))
	if err != nil {
		return "", err
	}
	config := fmt.Sprintf(`service: shop
slo: {metric: mean, threshold: 500ms}
sampling: %s
data: data
bus: {url: "nats://%s", credentials: bus.creds}
probe: {listen: %q, timeout: 300ms}
agent:
  instance: %s
  interface: lo
  capacity: {network: 1Gbps}
  root: %q
  metrics: off
  policy: {name: waits, sampling: 150ms, groups: [{cgroup: /web}]}
`, sampling, address, probe, id, filepath.Join(service, "machine"))
	for name, text := range map[string]string{
		workersFile: "100", "bus.creds": string(credential), "agent.yaml": config,
	} {
		if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// runMachine is an instance: it answers requests and keeps an agent running.
func runMachine(ctx context.Context, service, id, address, probe string) error {
	ctx, cancel, pipe, err := lifeline.Tie(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	folder, err := furnish(service, id, probe)
	if err != nil {
		return err
	}
	m := &toyMachine{folder: folder, pipe: pipe}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: m.handler()}
	go func() { _ = server.Serve(listener) }() // Serve ends at the shutdown
	defer func() { _ = server.Shutdown(context.Background()) }()
	return m.keepAgent(ctx)
}

// toyMachine is an instance whose answers can be made slow, and whose agent can be killed.
type toyMachine struct {
	folder string
	pipe   *os.File     // the lifeline
	wait   atomic.Int64 // nanoseconds

	mu    sync.Mutex
	agent *os.Process
}

func (m *toyMachine) handler() http.Handler {
	body := []byte(strings.Repeat("x", 20000))
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/file", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Duration(m.wait.Load()))
		_, _ = w.Write(body)
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		wait, _ := time.ParseDuration(r.FormValue("for")) // without a value, answers are not delayed
		m.wait.Store(int64(wait))
	})
	mux.HandleFunc("/kill-agent", func(http.ResponseWriter, *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.agent != nil {
			_ = m.agent.Kill() // it may have ended
		}
	})
	return mux
}

// keepAgent starts the agent again whenever it ends, as a machine's supervisor does. When ctx ends it stops the agent.
func (m *toyMachine) keepAgent(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	const pause = 100 * time.Millisecond
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, program, m.folder)
		cmd.Env = append(os.Environ(), roleVariable+"="+agentRole)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		lifeline.Give(cmd, m.pipe)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 5 * time.Second
		if err := m.run(cmd); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

func (m *toyMachine) run(cmd *exec.Cmd) error {
	m.mu.Lock()
	err := cmd.Start()
	m.agent = cmd.Process
	m.mu.Unlock()
	if err != nil {
		return err
	}
	_ = cmd.Wait() // the agent is started again however it ended
	m.mu.Lock()
	defer m.mu.Unlock()
	m.agent = nil
	return nil
}
