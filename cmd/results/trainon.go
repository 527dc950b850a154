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
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// The plan of the training on a machine of the hand-made fleet.
const (
	trainOnSeed = 1
	trainOnPlan = `  training: true
train:
  resource: network
  plan: custom
  levels: [0%, 10%, 20%, 30%, 40%, 50%, 60%]
  interference: [0%, 15%, 30%]
  run: 10s
  repeat: 1
  max_repeat: 1
`
)

// trainOnData are the figures of the page, which are kept in docs/results/train-on.json.
type trainOnData struct {
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
	Sent       float64 `json:"sent"`       // requests that were answered, times the bytes of the file, as a part of the link
	ProbeMS    float64 `json:"probeMS"`
	MeanMS     float64 `json:"meanMS"` // of the response times; 0: without requests
}

// Off is how far the row's use is from what the requests carried.
func (r trainOnRow) Off() float64 { return r.Use - r.Sent }

func trainOnFile(dir string) string { return filepath.Join(dir, "train-on.json") }

// trainOnPage trains on a machine of a fleet that serves users meanwhile, and writes the page.
func trainOnPage(ctx context.Context, dir string) error {
	d, err := playTrainOn(ctx)
	if err != nil {
		return err
	}
	if err := writeJSON(trainOnFile(dir), d); err != nil {
		return err
	}
	return trainOnPagePart(ctx, dir, "page")
}

// trainOnPagePart writes the page from its stored figures.
func trainOnPagePart(_ context.Context, dir, part string) error {
	if part != "page" {
		return fmt.Errorf("the page of trainings on own machines has no part %q", part)
	}
	var d trainOnData
	if found, err := readJSON(trainOnFile(dir), &d); err != nil || !found {
		return errors.Join(err, errors.New("no figures are stored: go run ./cmd/results train-on"))
	}
	return writePage(dir, "train-on", newTrainOnFigures(d))
}

// playTrainOn puts Quell beside the hand-made fleet behind HAProxy, and trains on the first of its machines.
func playTrainOn(ctx context.Context) (d *trainOnData, err error) {
	set := frontsSettings()
	set.Link, set.Load, set.Swing = 40e6, 0.2, 0
	with := haproxyFront
	with.agent = strings.ReplaceAll(trainOnPlan, "%", "%%") + "# of %v\n"
	f, err := newStrangerFleet(filepath.Join("bin", "quell"), with, set)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := errors.Join(f.serve(), f.awaitFront(ctx)); err != nil {
		return nil, err
	}
	loading, stop := context.WithCancel(ctx)
	load := strangerLoad{seed: trainOnSeed}
	var users sync.WaitGroup
	users.Go(func() { f.offer(loading, &load) })
	defer users.Wait()
	defer stop()
	if err := f.watchInCalm(ctx); err != nil { // until it is known what the others can take
		return nil, err
	}
	d = &trainOnData{Measured: here().Machine, Service: set}
	rows, began := filepath.Join(f.dir, "rows.jsonl"), time.Now()
	said, err := f.output(exec.Command(f.program, "train", "--on", f.names[0], "--yes", "--url", "/file", "--out", rows, "--config",
		filepath.Join(f.dir, "quell", "edge.yaml")))
	fmt.Fprintf(os.Stderr, "train-on: %s\n", said)
	if err != nil {
		return nil, fmt.Errorf("quell train --on: %w", err)
	}
	d.TookS = time.Since(began).Seconds()
	stop()
	users.Wait()
	d.Requests, d.Failed = int(load.requests.Load()), int(load.failed.Load())
	if err := d.read(rows, set); err != nil {
		return nil, err
	}
	said, err = exec.Command(f.program, "fit", rows, "--service", "shop", "--instance-type", "hand-made", "--out",
		filepath.Join(f.dir, "models.json")).CombinedOutput()
	report, _, _ := strings.Cut(string(said), "\nmodels written") // to a file that is gone
	d.Said = report
	return d, err
}

// read takes the figures from the rows.
func (d *trainOnData) read(path string, set strangerSettings) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	rows, err := model.ReadTraining(file, "line ")
	if err != nil {
		return err
	}
	for _, r := range rows {
		row := trainOnRow{Level: r.Level, Use: r.Utilization, Others: r.Interfering, ProbeMS: r.ProbeMS.Mean,
			Sent: float64(r.Requests-r.Errors) * float64(8*set.File) / r.DurationS / set.Link}
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

// trainOnFigures are the figures of the page.
type trainOnFigures struct {
	trainOnData
	Alone, Disturbed trainOnGap // without and with an interferer
}

// trainOnGap is how far the rows' use is from what the requests carried.
type trainOnGap struct {
	Rows         int
	Mean, Most   float64 // of the differences' size
	Interference float64 // mean of the use by the interferer
}

func newTrainOnFigures(d trainOnData) trainOnFigures {
	f := trainOnFigures{trainOnData: d}
	for _, r := range d.Rows {
		gap := &f.Alone
		if r.Disturbing > 0 {
			gap = &f.Disturbed
		}
		gap.Rows++
		gap.Mean += math.Abs(r.Off())
		gap.Most = max(gap.Most, math.Abs(r.Off()))
		gap.Interference += r.Others
	}
	for _, gap := range []*trainOnGap{&f.Alone, &f.Disturbed} {
		gap.Mean /= float64(max(1, gap.Rows))
		gap.Interference /= float64(max(1, gap.Rows))
	}
	return f
}
