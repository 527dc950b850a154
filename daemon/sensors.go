package daemon

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/probe/local"
	"github.com/quellhq/quell/sensor"
)

// Sensors makes the sensors of a configuration's agent, and its probes; some of the sensors report the results of running probes.
// exclude returns how many of the bytes that the machine has sent are not the service's. more are sampled after all others.
func Sensors(file *config.File, exclude func() uint64, more ...sensor.Sensor) (*sensor.Set, *local.Probes, error) {
	o, probes, err := sensorOptions(file)
	if err != nil {
		return nil, nil, err
	}
	o.Exclude, o.More = exclude, append(o.More, more...)
	sensors, err := sensor.New(o)
	return sensors, probes, err
}

// unprobed are the options of sensors without probes.
func unprobed(file *config.File) sensor.Options {
	a := &file.Agent
	o := sensor.Options{
		Root: os.DirFS(a.Root), Interface: a.Interface, Capacity: capacities(file), DiskBytes: float64(a.DiskBytes), Cgroup: a.Cgroup,
		Wanted: a.Probing.Resources, Link: publishedLink(file),
	}
	if a.Counters {
		o.Events = sensor.KernelEvents(a.Root)
	}
	return o
}

// capacities returns the configured capacities of this machine. Without a capacity of its own network, it has that of every instance.
func capacities(file *config.File) map[quell.Resource]float64 {
	own := file.Agent.Capacity
	if _, known := own[quell.Network]; known || file.Probe.Capacity == 0 {
		return own
	}
	all := maps.Clone(own)
	quell.Put(&all, quell.Network, file.Probe.Capacity)
	return all
}

// publishedLink returns what is published of the network of this machine's type, if the configuration names the type.
func publishedLink(file *config.File) sensor.Link {
	listed := ""
	members, _ := file.Scaler.Listed()
	if i := slices.IndexFunc(members, func(m quell.Member) bool { return m.ID == file.Agent.Instance }); i >= 0 {
		listed = members[i].Type
	}
	kind, ok := table.All.TypeOf(file.Service.Policy, listed)
	if !ok || kind.Network == nil {
		return sensor.Link{}
	}
	return sensor.Link{Type: kind.Name, Baseline: kind.Network.Baseline, Burst: kind.Network.Burst}
}

func sensorOptions(file *config.File) (o sensor.Options, probes *local.Probes, err error) {
	a := &file.Agent
	o = unprobed(file)
	settings := a.Probing
	settings.Folder = file.ProbeDir()
	probes, err = local.New(local.Options{
		Settings: settings, Period: file.Service.Sampling, Cores: a.Capacity[quell.CPU], Operations: a.Capacity[quell.Disk], Root: o.Root,
		Seed: rand.Uint64(),
	})
	if err == nil {
		o.More = probes.Sensors()
	}
	return o, probes, err
}

// Signals measures this machine with the sensors and probes of a configuration's agent, for two periods of the given length, and returns
// which signals the machine offers.
func Signals(ctx context.Context, file config.File, period time.Duration) ([]sensor.Signal, error) {
	file.Service.Sampling = period
	o, probes, err := sensorOptions(&file)
	if err != nil {
		return nil, err
	}
	requests, err := ownRequests(&file, period)
	if err != nil {
		return nil, err
	}
	o.More = append(o.More, requests.sensors()...)
	sensors, err := sensor.New(o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sensors.Close() }() // they were only read
	probing, stop := context.WithCancel(ctx)
	stopped := make(chan error)
	go func() { stopped <- probes.Run(probing) }()
	defer func() { stop(); <-stopped }()
	sensors.Sample(time.Now()) // sets the starting point
	if !tick.NewSubsamples(sensors, nil).Until(ctx, time.Now().Add(2*period)) {
		return nil, ctx.Err()
	}
	obs, failures := sensors.Sample(time.Now())
	return sensor.Signals(o, &obs, failures), nil
}

// fastSensors makes the sensors that are read once per period of the fast policy; nil if that policy does not use them. Each set of sensors
// measures from its own last reading.
func fastSensors(file *config.File, exclude func() uint64) (*sensor.Set, error) {
	if file == nil || !table.All.UsesAgents(file.Service.Policy.Fast) {
		return nil, nil
	}
	requests, err := ownRequests(file, file.Service.Policy.Fast.Sampling)
	if err != nil {
		return nil, err
	}
	o := unprobed(file)
	o.Exclude, o.More = exclude, requests.sensors()
	return sensor.New(o)
}
