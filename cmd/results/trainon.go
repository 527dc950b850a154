package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// trainOnSeed is the seed of the users' requests.
const trainOnSeed = 1

// trainOnKind is a training that the page has.
type trainOnKind struct {
	resource quell.Resource
	work     string  // the query of each request; empty: nginx sends a file
	each     float64 // seconds of the whole resource that a request takes, as is known without the agent; 0: it is not known
	levels   string
}

// trainOnKinds are the trainings of the page, in its order.
var trainOnKinds = []trainOnKind{
	{resource: quell.Network, levels: "0%, 10%, 20%, 30%, 40%, 50%, 60%"},
	{resource: quell.CPU, work: "cpu=5ms&bytes=1000", each: 0.005 / trainOnCores, levels: "0%, 15%, 30%, 45%"},
	{resource: quell.Disk, work: "disk=4&bytes=1000", each: 4.0 / trainOnOperations, levels: "0%, 15%, 30%, 45%"},
	{resource: quell.Memory, work: "memory=3ms&bytes=1000", levels: "0%, 15%, 30%, 45%"},
}

// Of each machine, if requests do work.
const (
	trainOnCores      = 0.5
	trainOnOperations = 400 // of the disk, in a second
)

// settings are those of the fleet.
func (k trainOnKind) settings() strangerSettings {
	set := frontsSettings()
	set.Link, set.Load, set.Swing = 40e6, 0.2, 0
	if k.work == "" {
		return set
	}
	set.Work, set.Cores, set.DiskIOPS, set.File, set.Calm = k.work, trainOnCores, trainOnOperations, 1000, 10*time.Second
	set.Load = trainOnRate * 8 * float64(set.File) / set.Link
	return set
}

// trainOnRate is how many requests of users each machine gets in a second, if requests do work.
const trainOnRate = 20

// seconds returns how much of the whole resource a request takes; 0: it is not known.
func (k trainOnKind) seconds(set strangerSettings) float64 {
	if k.work == "" {
		return float64(8*set.File) / set.Link
	}
	return k.each
}

// agent are the lines of the agent's section, and the plan.
func (k trainOnKind) agent() string {
	probes := ""
	if k.work != "" {
		probes = fmt.Sprintf("  cgroup: self\n  probes: [%s]\n", k.resource)
	}
	return probes + fmt.Sprintf(`  training: true
train:
  resource: %s
  plan: custom
  levels: [%s]
  interference: [0%%, 15%%, 30%%]
  run: 10s
  repeat: 1
  max_repeat: 1
`, k.resource, k.levels)
}

// trainOnData are the figures of the page, which are kept in docs/results/train-on.json.
type trainOnData map[quell.Resource]*trainOnPlay

// trainOnPlay is a training that was played.
type trainOnPlay struct {
	Measured string           `json:"measured"` // the machine
	Service  strangerSettings `json:"service"`
	TookS    float64          `json:"tookS"`    // the whole command
	Requests int              `json:"requests"` // of the users meanwhile, to the other machines
	Failed   int              `json:"failed"`
	Rows     []trainOnRow     `json:"rows"`
	Said     string           `json:"said"` // by quell fit
}

// trainOnRow is a run of the training: what was wanted, what the row says, and what the link carried for the requests.
type trainOnRow struct {
	Level      float64 `json:"level"`      // use by requests that was wanted
	Disturbing float64 `json:"disturbing"` // use by the interferer that was wanted
	Use        float64 `json:"use"`        // by requests, as the row has it
	Others     float64 `json:"others"`     // by the interferer, as the row has it
	Sent       float64 `json:"sent"`       // requests that were answered, times what one takes
	ProbeMS    float64 `json:"probeMS"`
	MeanMS     float64 `json:"meanMS"` // of the response times; 0: without requests
}

// Off is how far the row's use is from what the requests carried.
func (r trainOnRow) Off() float64 { return r.Use - r.Sent }

func trainOnFile(dir string) string { return filepath.Join(dir, "train-on.json") }

// trainOnPage trains on a machine of a fleet that serves users meanwhile, each resource in turn, and writes the page.
func trainOnPage(ctx context.Context, dir string) error {
	for _, k := range trainOnKinds {
		if err := trainOnPagePart(ctx, dir, string(k.resource)); err != nil {
			return err
		}
	}
	return nil
}

// trainOnPagePart plays the training of one resource, and writes the page; with page, it writes the page from its stored figures.
func trainOnPagePart(ctx context.Context, dir, part string) error {
	d := trainOnData{}
	if _, err := readJSON(trainOnFile(dir), &d); err != nil {
		return err
	}
	if part != "page" {
		i := slices.IndexFunc(trainOnKinds, func(k trainOnKind) bool { return string(k.resource) == part })
		if i < 0 {
			return fmt.Errorf("the page of trainings on own machines has no part %q", part)
		}
		p, err := trainOnKinds[i].play(ctx)
		if err != nil {
			return err
		}
		d[trainOnKinds[i].resource] = p
		if err := writeJSON(trainOnFile(dir), d); err != nil {
			return err
		}
	}
	if d[quell.Network] == nil {
		return errors.New("no figures are stored: go run ./cmd/results train-on")
	}
	return writePage(dir, "train-on", newTrainOnFigures(d))
}

// play puts Quell beside the hand-made fleet behind HAProxy, and trains on the first of its machines.
func (k trainOnKind) play(ctx context.Context) (d *trainOnPlay, err error) {
	set := k.settings()
	with := haproxyFront
	with.agent = strings.ReplaceAll(k.agent(), "%", "%%") + "# of %v\n"
	f, err := newStrangerFleet(filepath.Join("bin", "quell"), with, set)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := errors.Join(f.serve(), f.awaitFront(ctx)); err != nil {
		return nil, err
	}
	load := strangerLoad{seed: trainOnSeed}
	stop := f.startUsers(ctx, &load)
	defer stop()
	if err := f.watchInCalm(ctx); err != nil { // until it is known what the others can take
		return nil, err
	}
	d = &trainOnPlay{Measured: here().Machine, Service: set}
	rows, began := filepath.Join(f.dir, "rows.jsonl"), time.Now()
	args := []string{"train", "--on", f.names[0], "--yes", "--url", set.path(), "--out", rows,
		"--config", filepath.Join(f.dir, "quell", "edge.yaml")}
	if k.work != "" {
		args = append(args, "--force") // the calm is too short to learn what the others can take; they can take this
	}
	said, err := f.output(exec.Command(f.program, args...))
	fmt.Fprintf(os.Stderr, "train-on: %s\n", said)
	if err != nil {
		return nil, fmt.Errorf("quell train --on: %w", err)
	}
	d.TookS = time.Since(began).Seconds()
	stop()
	d.Requests, d.Failed = int(load.requests.Load()), int(load.failed.Load())
	if err := d.read(rows, k.seconds(set)); err != nil {
		return nil, err
	}
	said, err = exec.Command(f.program, "fit", rows, "--service", "shop", "--instance-type", "hand-made", "--out",
		filepath.Join(f.dir, "models.json")).CombinedOutput()
	report, _, _ := strings.Cut(string(said), "\nmodels written") // to a file that is gone
	d.Said = report
	return d, err
}

// read takes the figures from the rows. each is how much of the resource a request takes; 0: as much as in the rows without an interferer.
func (d *trainOnPlay) read(path string, each float64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	rows, err := model.ReadTraining(file, "line ")
	if err != nil {
		return err
	}
	if each == 0 {
		each = eachOf(rows)
	}
	for _, r := range rows {
		row := trainOnRow{Level: r.Level, Use: r.Utilization, Others: r.Interfering, ProbeMS: r.ProbeMS.Mean,
			Sent: float64(r.Requests-r.Errors) * each / r.DurationS}
		if r.InterferingLevel != nil {
			row.Disturbing = *r.InterferingLevel
		}
		if ms, ok := r.LatencyMS.Of(quell.Mean); ok {
			row.MeanMS = ms
		}
		d.Rows = append(d.Rows, row)
	}
	slices.SortFunc(d.Rows, func(a, b trainOnRow) int {
		return cmp.Or(cmp.Compare(a.Disturbing, b.Disturbing), cmp.Compare(a.Level, b.Level))
	})
	return nil
}

// eachOf is how much of the resource a request took without an interferer, beside what the machine used without requests.
func eachOf(rows []model.TrainingRow) float64 {
	var idle, busy, window, requests float64
	for _, r := range rows {
		switch {
		case r.Interfering > 0:
		case r.Level == 0:
			idle = r.Utilization
		default:
			busy, window, requests = busy+r.Utilization*r.DurationS, window+r.DurationS, requests+float64(r.Requests-r.Errors)
		}
	}
	return max(0, busy-idle*window) / max(1, requests)
}

// trainOnFigures are the figures of the page.
type trainOnFigures struct {
	Network *trainOnShown
	Others  []*trainOnShown // whose requests do work
}

// trainOnShown is a training as the page shows it.
type trainOnShown struct {
	*trainOnPlay
	Resource         quell.Resource
	Alone, Disturbed trainOnGap // without and with an interferer
}

// trainOnGap is how far the rows' use is from what the requests carried.
type trainOnGap struct {
	Rows         int
	Mean, Most   float64 // of the differences' size
	Signed       float64 // mean of the differences
	Interference float64 // mean of the use by the interferer
}

func newTrainOnFigures(d trainOnData) trainOnFigures {
	var f trainOnFigures
	for _, k := range trainOnKinds {
		if d[k.resource] == nil {
			continue
		}
		shown := newTrainOnShown(k, d[k.resource])
		if k.work == "" {
			f.Network = shown
		} else {
			f.Others = append(f.Others, shown)
		}
	}
	return f
}

func newTrainOnShown(k trainOnKind, p *trainOnPlay) *trainOnShown {
	f := &trainOnShown{trainOnPlay: p, Resource: k.resource}
	for _, r := range p.Rows {
		gap := &f.Alone
		if r.Disturbing > 0 {
			gap = &f.Disturbed
		}
		gap.Rows++
		gap.Mean += math.Abs(r.Off())
		gap.Most = max(gap.Most, math.Abs(r.Off()))
		gap.Signed += r.Off()
		gap.Interference += r.Others
	}
	for _, gap := range []*trainOnGap{&f.Alone, &f.Disturbed} {
		n := float64(max(1, gap.Rows))
		gap.Mean, gap.Signed, gap.Interference = gap.Mean/n, gap.Signed/n, gap.Interference/n
	}
	return f
}
