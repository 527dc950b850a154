package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/training"
	"github.com/quellhq/quell/interfere"
	"github.com/quellhq/quell/sensor"
)

// newTrainee returns this machine as one that trainings use, if its owner allows that.
func (r *reporter) newTrainee() *training.Machine {
	return training.New(training.Options{Refuse: r.refuseTraining, Open: r.openMeter, Start: r.startInterferer, Logger: r.log})
}

// refuseTraining returns why no training may use this machine now.
func (r *reporter) refuseTraining() error {
	g := r.present.Load()
	switch {
	case g == nil || g.server == nil:
		return errors.New("it has no service")
	case !g.file.Agent.Training:
		return errors.New("this machine may not be trained on: set agent.training to true in its configuration, and reload its agent, if that " +
			"is meant")
	case r.outlets.count() > 1:
		return errors.New("several services use this machine: out of the rotation of one of them, it still has requests of the others")
	}
	return nil
}

// openMeter opens sensors and probes like those of the agent, which go on meanwhile.
func (r *reporter) openMeter() (m training.Meter, err error) {
	g := r.present.Load()
	sensors, probes, err := Sensors(g.file, g.server.BytesSent)
	if err != nil {
		return m, err
	}
	all := g.file.Agent.Cgroup == "" || g.file.Agent.Cgroup == sensor.OwnCgroup // the interferer is in the control group that is measured
	counts := func(r quell.Resource) bool {
		return all && (r == quell.CPU || r == quell.Disk || r == quell.Memory && sensors.Substitute() != "")
	}
	return training.Meter{Sample: sensors.Sample, Run: probes.Run, Close: func() { _ = sensors.Close() },
		Feels: slices.Clone(g.file.Agent.Probing.Resources), Counts: counts}, nil
}

// startInterferer starts this program as an interferer.
func (r *reporter) startInterferer(resource quell.Resource, use float64, lasts time.Duration) (training.Interferer, error) {
	file := r.present.Load().file
	cores := cmp.Or(file.Agent.Capacity[quell.CPU], float64(runtime.NumCPU()))
	o := interfere.Options{Resource: resource, Use: use, Cores: cores, Operations: file.Agent.Capacity[quell.Disk], Folder: file.ProbeDir(),
		Lasts: lasts, Seed: rand.Uint64()}
	if err := o.Check(); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	child, err := interfere.Start(exec.Command(program, o.Args()...))
	if err != nil {
		return nil, err
	}
	return child, nil
}
