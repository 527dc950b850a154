package experiment

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/train"
)

// KernelHosts are a lab's machines for a training. Each has an instance, which gets its load directly, without a balancer.
type KernelHosts struct {
	Program  string   // path of the quell binary
	Dir      string   // folder of configuration, content and logs
	Prefix   string   // prefix of the lab's names
	Hosts    []string // ids
	Machines Machines
	Host     scenario.Host // size of every host; a resource of size 0 is not limited

	workload  scenario.Workload // the training's workload
	resources []quell.Resource  // the training's resources
	procs     group
	token     string // the probe servers refuse probes without it
	lifeline  [2]*os.File
}

// start starts the instances and returns them as the training's targets. stop must be called, also after an error.
func (k *KernelHosts) start(ctx context.Context) (targets []train.Target, err error) {
	if k.lifeline[0], k.lifeline[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(k.Dir, 0o755); err != nil {
		return nil, err
	}
	k.procs.dir = k.Dir
	if err := prepareApplication(ctx, k.workload, k.Dir); err != nil {
		return nil, err
	}
	config, err := k.configure()
	if err != nil {
		return nil, err
	}
	for _, host := range k.Hosts {
		t, err := k.startHost(ctx, host, config)
		if err != nil {
			return nil, fmt.Errorf("training on %s: %w", host, err)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

func (k *KernelHosts) startHost(ctx context.Context, host, config string) (*kernelTarget, error) {
	place, err := kernel.PlaceOf(k.Prefix, host, kernel.Instance)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(k.Program, append([]string{
		"lab", "instance", "--training", "--config", config, "--prefix", k.Prefix, "--host", host, "--id", host,
		"--dir", filepath.Join(k.Dir, "hosts"),
	}, contentArgs(k.workload, k.Dir)...)...)
	tie(cmd, k.lifeline[0])
	if err := k.procs.launch(host, cmd, (*exec.Cmd).Start); err != nil {
		return nil, err
	}
	t := &kernelTarget{host: host, address: place.Address().String(), machines: k.Machines, probed: k.resources,
		instance: k.procs.procs[len(k.procs.procs)-1]}
	return t, t.await(ctx, k.procs.exited)
}

// stop ends the instances.
func (k *KernelHosts) stop() error {
	err := k.procs.Stop()
	for _, f := range k.lifeline {
		if f != nil {
			f.Close()
		}
	}
	return errors.Join(err, os.RemoveAll(calendarData(k.Dir)))
}

// configure writes the configuration of the probe servers and meters.
func (k *KernelHosts) configure() (path string, err error) {
	k.token = rand.Text()
	path = filepath.Join(k.Dir, "quell.yaml")
	file := daemon.Drivers().Defaults()
	file.Service.Name = "training"
	file.Service.SLO.Metric, file.Service.SLO.Threshold = quell.Mean, time.Second
	file.Probe.From, file.Probe.Listen, file.Probe.Token = config.FromController, fmt.Sprintf("0.0.0.0:%d", labProbe), k.token
	file.Agent.Metrics = fmt.Sprintf("0.0.0.0:%d", labMeter)
	file.Service.Sampling, file.Data = time.Second, k.Dir
	tell(&file.Agent, k.Host, k.resources)
	return path, os.WriteFile(path, []byte(written(&file)), 0o600)
}

// kernelTarget gives the trainer access to a machine of a lab.
type kernelTarget struct {
	host, address string
	machines      Machines
	probed        []quell.Resource
	instance      *process // web server (or service of dynamic work) and meter
}

// Feels implements train.Target. It says whether the machine's own agent probes the resource, which it does for all but the network.
func (t *kernelTarget) Feels(r quell.Resource) bool {
	return r != quell.Network && slices.Contains(t.probed, r)
}

func (t *kernelTarget) Service() string { return fmt.Sprintf("http://%s:%d", t.address, labInstance) }
func (t *kernelTarget) Probe() string   { return fmt.Sprintf("%s:%d", t.address, labProbe) }

func (t *kernelTarget) Interfere(r quell.Resource, use float64) error {
	return t.machines.Interfere(t.host, map[quell.Resource]float64{r: use})
}

// Carried returns how much of a resource the service has used, which the machine's meter measures as an agent would, and how much the
// neighbour has used, which the lab measures.
func (t *kernelTarget) Carried(r quell.Resource) (train.Carried, error) {
	c, err := t.machines.Carried(t.host, r)
	if err != nil {
		return c, err
	}
	reading, err := t.read()
	if err != nil { // if one part of an instance has ended, the others follow, and that is the error worth reporting
		return c, cmp.Or(t.instance.endedSoon(instanceWait), err)
	}
	own, ok := reading.Seconds[r]
	if !ok {
		return c, fmt.Errorf("the meter of %s has no reading of %s: %s", t.host, r, strings.Join(reading.Failures, "; "))
	}
	c.Own, c.Sensed = own, reading.Observation
	return c, nil
}

// instanceWait is how long the other parts of an instance may take to end after one part has ended.
const instanceWait = 5 * time.Second

// read asks the meter for its reading.
func (t *kernelTarget) read() (reading meterReading, err error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(fmt.Sprintf("http://%s:%d/", t.address, labMeter))
	if err != nil {
		return reading, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return reading, fmt.Errorf("the meter of %s answers %s", t.host, resp.Status)
	}
	return reading, json.NewDecoder(resp.Body).Decode(&reading)
}

// await waits until both the service and the meter answer.
func (t *kernelTarget) await(ctx context.Context, exited func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	client := http.Client{Timeout: time.Second}
	for {
		resp, err := client.Get(t.Service() + "/healthz")
		if err == nil {
			resp.Body.Close()
			_, err = t.read()
		}
		if err == nil {
			return nil
		}
		if err := exited(); err != nil {
			return err
		}
		if !tick.SleepUntil(ctx, time.Now().Add(50*time.Millisecond)) {
			return fmt.Errorf("the instance on %s does not answer: %w; see the logs", t.host, err)
		}
	}
}
