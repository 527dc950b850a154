package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/sensor"
)

// Instance is an instance on a host of a kernel lab: nginx, the service of dynamic work or an application, and beside it the ordinary agent
// with its probe server. In a training, Probe runs instead of the agent. Service and agent run in the host's namespace and control group;
// this process itself may run elsewhere.
type Instance struct {
	Config   string // path of the service's configuration
	Prefix   string // prefix of the lab's names
	Host     string
	ID       string
	Dir      string // gets one folder for each instance
	Boot     time.Duration
	Files    map[string]int64 // files of nginx: bytes by path
	Work     bool             // run the service of dynamic work instead of nginx
	Disk     bool             // the service of dynamic work accepts requests for disk operations
	Memory   bool             // the service of dynamic work accepts requests for memory
	Calendar string           // data of the event calendar; if it is given, the calendar runs instead of nginx
	Training bool             // run Probe instead of the agent
	Aside    bool             // the agent runs outside the host's control group
	Credits  string           // path of the credits that make the instance burstable; "": it is not
}

// Run starts the service and the agent (or Probe), and ends both when ctx ends, the lifeline's other end is closed, or one of them ends
// by itself, which is an error.
func (i Instance) Run(ctx context.Context, log *slog.Logger) (err error) {
	ctx, cancel, _, err := lifeline.Tie(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	place, err := kernel.PlaceOf(i.Prefix, i.Host, kernel.Instance)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(i.Boot):
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	poor, settle, err := i.spend(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, settle()) }()
	service := i.service(place, program)
	stop := func() error {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), kernel.Grace)
		defer cancel()
		return service.Stop(grace)
	}
	config, err := i.configure(service)
	if err != nil {
		return errors.Join(err, stop())
	}
	agent, err := i.agent(place, program, config)
	if err != nil {
		return errors.Join(err, stop())
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Wait() }()
	if err := service.Start(ctx); err != nil {
		return errors.Join(err, endAgent(agent, ended))
	}
	log.Info("instance started", "instance", i.ID, "host", i.Host, "address", place.Address())
	select {
	case <-ctx.Done():
	case <-service.Done():
		err = service.Failed()
	case <-poor:
		err = errors.New("its credits are no longer counted")
	case how := <-ended:
		ended <- how
		err = fmt.Errorf("its agent ended by itself: %w", errors.Join(how, errors.New("see above")))
	}
	return errors.Join(err, stop(), endAgent(agent, ended))
}

// instanceService is the part of an instance that answers its clients.
type instanceService interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Done() <-chan struct{}
	Failed() error
}

func (i Instance) service(place kernel.Place, program string) instanceService {
	dir := filepath.Join(i.Dir, i.Host)
	if i.Calendar != "" {
		return &kernel.Calendar{Place: place, Dir: dir, Data: i.Calendar, Disk: i.Disk}
	}
	if i.Work {
		return &kernel.Worker{Place: place, Dir: dir, Program: program, Disk: i.Disk, Memory: i.Memory}
	}
	return &kernel.Nginx{Place: place, Dir: dir, Files: i.Files}
}

// agent starts the agent or Probe in the instance's namespace and control group. The command writes to the standard error of this process,
// and ends when this process ends.
func (i Instance) agent(place kernel.Place, program, config string) (*exec.Cmd, error) {
	args := []string{"agent", "--config", config, "--instance", i.ID}
	if i.Training {
		args = []string{"lab", "probe", "--config", config}
	}
	if i.Aside {
		place = place.Aside()
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	endWithParent(cmd)
	return cmd, place.Start(cmd)
}

func endAgent(agent *exec.Cmd, ended <-chan error) error {
	_ = agent.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
		return nil
	case <-time.After(stopWait):
		_ = agent.Process.Kill()
		<-ended
		return errors.New("its agent had to be killed")
	}
}

// Probe answers probes on a machine in training. On the next port it reports how much the service has used, measured as the agent would
// measure it.
func Probe(ctx context.Context, path string, log *slog.Logger) error {
	file, err := daemon.Drivers().Load(path)
	if err != nil {
		return err
	}
	server, err := daemon.NewProbeServer(file, log)
	if err != nil {
		return err
	}
	sensors, probes, err := daemon.Sensors(file, server.BytesSent)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", file.Probe.Listen)
	if err != nil {
		return fmt.Errorf("opening the probe server (probe.listen): %w", err)
	}
	if err := server.Start(listener); err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(ending) // downloads that are still open are broken off
	}()
	m := &meter{sensors: sensors}
	stopMeter, err := daemon.ServeHTTP("the meter (agent.metrics)", file.Agent.Metrics, file.Web, m, log)
	if err != nil {
		return err
	}
	defer stopMeter()
	ctx, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { m.look(ctx) })
	defer looking.Wait()
	defer stop()
	return probes.Run(ctx)
}

// meter reports what the machine's sensors measure, and how much of the machine's resources the service has used since the first request
// to the meter. Each request ends a window of the sensors.
type meter struct {
	mu      sync.Mutex
	sensors *sensor.Set
	used    map[quell.Resource]float64
}

// meterReading is the meter's answer.
type meterReading struct {
	Seconds     map[quell.Resource]float64 `json:"seconds"`            // of the whole resource, since the first request to the meter
	Observation quell.Observation          `json:"observation"`        // since the previous request to the meter
	Failures    []string                   `json:"failures,omitempty"` // errors of sensors; their readings are missing
}

// look lets the sensors take subsamples of the machine, as often as the agent does, until ctx ends.
func (m *meter) look(ctx context.Context) {
	subsamples := tick.NewSubsamples(m, nil)
	for subsamples.Until(ctx, time.Now().Add(time.Hour)) {
	}
}

// Subsample lets the sensors take subsamples of the machine. If a sample is being taken, it waits for the end of that.
func (m *meter) Subsample() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sensors.Subsample()
}

func (m *meter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	obs, failures := m.sensors.Sample(time.Now())
	used := make(map[quell.Resource]float64, len(obs.Utilization)) // no entry if the reading is missing: the sum would be too small
	for r, u := range obs.Utilization {
		used[r] = m.used[r] + u*obs.WindowS
	}
	m.used = used
	answer := meterReading{Seconds: used, Observation: obs}
	for _, f := range failures {
		answer.Failures = append(answer.Failures, fmt.Sprintf("%s: %v", f.Sensor, f.Err))
	}
	_ = json.NewEncoder(w).Encode(answer)
}
