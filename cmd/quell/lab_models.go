package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
	"github.com/quellhq/quell/train"
)

// needsModels returns whether one of the selected runs, or the command itself, needs models.
func (o *labRun) needsModels(sc *scenario.Scenario) bool {
	return o.validate || o.probing || slices.ContainsFunc(o.chosen(sc), trained)
}

// labTraining has all values on which models depend. Scenarios for which these are the same share models.
type labTraining struct {
	Plan     train.Plan
	Resource quell.Resource
	Others   []quell.Resource `json:",omitempty"` // resources that are trained after Resource
	Network  float64
	Cores    float64 `json:",omitzero"` // processors of a host; 0: not limited
	DiskIOPS float64 `json:",omitzero"` // the disk's operations per second; 0: not limited
	Workload scenario.Workload
	Budget   float64
	Spacing  time.Duration // mean time between probes of the network
}

// labProbeBudget is the share of the link that probes may use, in training and in the runs.
const labProbeBudget = 0.02

func (o *labRun) training() labTraining {
	w := o.scenario.Workload
	w.Load, w.Step, w.Recorded = 0, nil, nil
	if w.Arrivals == scenario.Ramp || w.Kind == scenario.Video {
		w.Arrivals = scenario.Poisson // as in PRIMA's paper: the runs test whether the models also hold for other arrivals
	}
	if w.Kind == scenario.Users { // no number of users corresponds to a level: instead the same requests arrive independently
		w.Kind, w.Arrivals, w.Users, w.Think = scenario.Classes, scenario.Poisson, 0, 0
	}
	w.System, w.CacheStretch = 0, 0 // only simulated machines have these
	host, felt := experiment.KernelHost(o.scenario, o.scenario.Hosts[0]), experiment.Felt(o.scenario)
	t := labTraining{
		Plan: labPlan(), Resource: felt[0], Others: felt[1:], Network: host.Network, Cores: host.Cores, DiskIOPS: host.DiskIOPS,
		Workload: w,
		Budget:   labProbeBudget, Spacing: experiment.LabProbeSpacing,
	}
	if len(felt) > 1 || felt[0] != quell.Network {
		t.Plan = machineLabPlan()
	}
	switch {
	case w.Kind == scenario.Video:
		t.Plan = sessionLabPlan()
	case w.Application != "":
		t.Plan = applicationLabPlan()
	}
	if o.quick {
		t.Plan = quickLabPlan()
	}
	return t
}

// labPlan covers loads from zero, which an instance without traffic has, to the largest that a queue on the link can carry, each
// with several levels of interference.
func labPlan() train.Plan {
	p := train.Full()
	p.Levels = []float64{0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}
	p.Interference = []float64{0, 0.1, 0.2, 0.3, 0.45, 0.6}
	p.Run, p.Repeat, p.MaxRepeat = 20*time.Second, 3, 5
	return p
}

// sessionLabPlan has fewer cells than labPlan, because its runs are long: the number of sessions takes long to become steady. It
// has no low levels apart from zero, because at a low level there are too few sessions.
func sessionLabPlan() train.Plan {
	p := labPlan()
	p.Levels, p.Interference = []float64{0, 0.2, 0.35, 0.5, 0.65}, []float64{0, 0.15, 0.3, 0.45, 0.6}
	p.Repeat, p.MaxRepeat = 1, 2
	return p
}

// machineLabPlan is for resources that are probed on the machine itself. When a host has used up its quota it stops at once, so the
// cells end at that point. Response times beside such stops vary much, so each cell has several runs.
func machineLabPlan() train.Plan {
	p := labPlan()
	p.Levels, p.Interference = []float64{0, 0.15, 0.3, 0.45, 0.6, 0.75}, []float64{0, 0.25, 0.5, 0.75}
	p.Most, p.Run, p.Repeat, p.MaxRepeat = 1, 14*time.Second, 4, 4
	return p
}

// applicationLabPlan is for real applications. Their policies judge by response times, so no cell is without load. At each load the
// strongest neighbours leave hardly anything: steady ones that leave more do not slow a disk. Near that point queues take seconds to grow,
// so runs are long.
func applicationLabPlan() train.Plan {
	p := labPlan()
	p.Levels, p.Interference, p.Most = []float64{0.15, 0.3, 0.45, 0.6}, []float64{0, 0.25, 0.5, 0.65, 0.8}, train.Busiest
	p.Run, p.WarmUp, p.Repeat, p.MaxRepeat = 30*time.Second, 4*time.Second, 3, 3
	return p
}

// overfullDisk is the largest sum of an application's and a neighbour's use in cells of the disk. Response times tell of a disk only when
// it is nearly full, so without such cells hardly any row would show a contended disk.
const overfullDisk = 1.1

func quickLabPlan() train.Plan {
	p := train.Quick()
	p.Levels, p.Interference = []float64{0, 0.2, 0.4, 0.6}, []float64{0, 0.2, 0.4}
	p.Run, p.Repeat, p.MaxRepeat = 3*time.Second, 1, 1
	return p
}

// key is the name of the models' folder.
func (t labTraining) key() (string, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6]), nil
}

// prepareModels trains on the lab's own machines, all at once, unless the folder already has models from the same inputs.
func (o *labRun) prepareModels(ctx context.Context, program string, machines experiment.Machines, errs io.Writer) (string, error) {
	if o.models != "" {
		if _, err := loadModels(o.models); err != nil { // otherwise only a controller's log would report the mistake, after the scenario
			return "", err
		}
		return filepath.Abs(o.models)
	}
	if !o.needsModels(o.scenario) {
		return "", nil
	}
	t := o.training()
	key, err := t.key()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(o.out, "models", key)
	path := filepath.Join(dir, "models.json")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	rows, err := o.trainAll(ctx, t, dir, program, machines, errs)
	if err != nil {
		return "", err
	}
	models, report, err := model.Fit(rows, model.FitOptions{Service: o.scenario.Service.Name, InstanceType: "lab",
		Metric: o.scenario.Service.SLO.Metric, At: time.Now().UTC()})
	if err != nil {
		return "", err
	}
	if err := report.Write(errs); err != nil {
		return "", err
	}
	return path, modelfile.Save(models, path)
}

// trainAll trains one resource after the other.
func (o *labRun) trainAll(
	ctx context.Context, t labTraining, dir, program string, machines experiment.Machines, errs io.Writer,
) (rows []model.TrainingRow, err error) {
	levels, most := t.Plan.Levels, t.Plan.Most
	for _, r := range t.felt() {
		t.Plan.Levels, t.Plan.Most = experiment.Fills(o.scenario, r, levels), most
		if r == quell.Disk && t.Workload.Application != "" {
			t.Plan.Most = overfullDisk
		}
		fmt.Fprintf(errs, "Training the %s on %d machines.\n", r, len(o.scenario.Hosts))
		of, err := o.train(ctx, t, r, dir, program, machines, errs)
		if err != nil {
			return nil, err
		}
		rows = append(rows, of...)
	}
	return rows, nil
}

// felt are the resources whose models are trained, in order.
func (t labTraining) felt() []quell.Resource {
	return append([]quell.Resource{t.Resource}, t.Others...)
}

// rowsFile is the file with the rows of a resource.
func rowsFile(dir string, t labTraining, r quell.Resource) string {
	if r == t.Resource {
		return filepath.Join(dir, "training.jsonl")
	}
	return filepath.Join(dir, fmt.Sprintf("training-%s.jsonl", r))
}

// train makes the runs of a plan on all of the lab's machines at once. It keeps the rows in dir, so that an interrupted training
// can continue.
func (o *labRun) train(
	ctx context.Context, t labTraining, r quell.Resource, dir, program string, machines experiment.Machines, errs io.Writer,
) (rows []model.TrainingRow, err error) {
	store, err := train.OpenStore(rowsFile(dir, t, r), t.settings(r, o.scenario.Seed), false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	bar := newProgressBar(errs)
	defer bar.finish()
	return o.hosts(t, dir, program, machines).Run(ctx, store.In(train.Options{Plan: t.Plan, Resource: r, Progress: bar.show}))
}

// host is one of the machines.
func (t labTraining) host() scenario.Host {
	return scenario.Host{Network: t.Network, Cores: t.Cores, DiskIOPS: t.DiskIOPS}
}

// settings are the values on which the rows depend.
func (t labTraining) settings(r quell.Resource, seed uint64) train.Settings {
	s := t.Plan.Settings()
	maps.Copy(s, train.Settings{
		"resource": string(r), "network": fmt.Sprintf("%gbps", t.Network),
		"cores": fmt.Sprint(t.Cores), "disk_iops": fmt.Sprint(t.DiskIOPS), "workload": fmt.Sprintf("%+v", t.Workload),
		"probe.budget": fmt.Sprint(t.Budget), "probe.spacing": t.Spacing.String(), "seed": fmt.Sprint(seed), "only": fmt.Sprint(t.Plan.Only),
	})
	if len(t.Others) > 0 {
		s["probed"] = fmt.Sprint(t.felt())
	}
	return s
}

// hosts are the lab's machines as a training uses them; their files are below dir.
func (o *labRun) hosts(t labTraining, dir, program string, machines experiment.Machines) experiment.Training {
	var ids []string
	for _, h := range o.scenario.Hosts {
		ids = append(ids, h.ID)
	}
	return experiment.Training{
		Resources: t.felt(), Bandwidth: t.Network, Workload: t.Workload, Budget: t.Budget, Seed: o.scenario.Seed, Spacing: t.Spacing,
		Kernel: &experiment.KernelHosts{Program: program, Dir: filepath.Join(dir, "lab"), Prefix: o.prefix, Hosts: ids, Machines: machines,
			Host: t.host()},
	}
}
