package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/ice"
	"github.com/quellhq/quell/policy/table"
)

// iceSeeds is the number of simulated runs of each kind.
const iceSeeds = 5

// icePart is a part of the page in the simulator.
type icePart struct {
	name     string
	simulate func(*iceFigures, context.Context) error
}

// iceParts are in the order of the page. The figures of parts that are not simulated again are read from ice.json.
var iceParts = []icePart{
	{"training", (*iceFigures).train},
	{"accuracy", (*iceFigures).accuracy},
	{"reactions", (*iceFigures).reactions},
	{"calm", (*iceFigures).calmHours},
	{"hour", (*iceFigures).hour},
	{"beside", (*iceFigures).beside},
	{"sticky", (*iceFigures).sticky},
}

// iceStreams is the part that is played on the lab's machines, only on request.
var iceStreams = icePart{"threads", func(f *iceFigures, ctx context.Context) (err error) {
	f.Threads, err = playICEThreads(ctx)
	return err
}}

// iceGuest is the part that is played in a virtual machine, only on request.
var iceGuest = icePart{"lvs", func(f *iceFigures, ctx context.Context) (err error) {
	f.LVS, err = playICEOverLVS(ctx)
	return err
}}

// icePage simulates all parts. The lab's parts are played only on request, because they need root and a quiet machine.
func icePage(ctx context.Context, dir string) error { return writeICE(ctx, dir, iceParts...) }

// icePagePart simulates one part, or plays those parts of the lab that have no records yet (live), or one of them. If the name is page, it
// only writes the page.
func icePagePart(ctx context.Context, dir, name string) error {
	if name == "page" {
		return writeICE(ctx, dir)
	}
	for _, p := range append(slices.Clone(iceParts), iceGuest, iceStreams) {
		if p.name == name {
			return writeICE(ctx, dir, p)
		}
	}
	if err := playICE(ctx, name); err != nil {
		return err
	}
	return writeICE(ctx, dir)
}

// writeICE simulates parts and writes the page.
func writeICE(ctx context.Context, dir string, parts ...icePart) error {
	f := iceFigures{Seeds: iceSeeds, Onsets: iceOnsets}
	path := filepath.Join(dir, "ice.json")
	if _, err := readJSON(path, &f); err != nil {
		return err
	}
	for _, part := range parts {
		if err := part.simulate(&f, ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Fprintf(os.Stderr, "ice: %s done\n", part.name)
		if err := writeJSON(path, f); err != nil { // now, so that an interrupted call loses one part only
			return err
		}
	}
	var err error
	if f.Live, err = iceLab().figures(here(), dir); err != nil {
		return err
	}
	return writePage(dir, "ice", &f)
}

// iceFigures are the figures of the page. Those of the simulator are kept in ice.json, those of the lab in its records.
type iceFigures struct {
	Seeds      int           `json:"-"`
	Onsets     int           `json:"-"`
	Trainings  []iceTraining `json:"trainings"`
	Accuracies []iceAccuracy `json:"accuracies"`
	Reactions  []iceReaction `json:"reactions"`
	Calm       []iceCalm     `json:"calm"`
	Hours      []iceHour     `json:"hours"`
	Beside     []iceBeside   `json:"beside"`
	Sticky     []iceSticky   `json:"sticky"`
	LVS        []lvsPhase    `json:"lvs,omitempty"`

	Threads [][]experiment.ThreadResult `json:"threads,omitempty"` // by play

	Live labFigures `json:"-"`

	models *model.Models // trained on the machines of ice-hour
}

// icePolicy returns ICE with a floor.
func icePolicy(floor float64) quell.Policy {
	p := table.All.Whole(quell.Policy{Name: "ice"})
	settings := p.Settings.(ice.Settings)
	settings.Floor = floor
	p.Settings = settings
	return p
}

// withICE returns a policy with ICE beside it.
func withICE(main quell.Policy, floor float64) quell.Policy {
	main.Fast = quell.Fast{Name: "ice", Settings: icePolicy(floor).Settings, Sampling: time.Second}
	return main
}

// iceFloor is the floor of the settings' defaults.
func iceFloor() float64 {
	return table.All.Whole(quell.Policy{Name: "ice"}).Settings.(ice.Settings).Floor
}
