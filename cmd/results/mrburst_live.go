package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
)

// burstSettings are an emulated burstable instance, its load, and the objective.
type burstSettings struct {
	Link     float64       `json:"link"`     // bit/s with credits
	Baseline float64       `json:"baseline"` // bit/s without
	Credits  float64       `json:"credits"`  // of the network, of a new instance: megabits
	CPU      float64       `json:"cpu"`      // baseline of its processor
	CPUOf    float64       `json:"cpu_of"`   // credits of the processor, of a new instance
	File     int64         `json:"file"`     // bytes
	Users    []int         `json:"users"`    // one number after the other
	Each     time.Duration `json:"each"`     // for how long
	Margin   float64       `json:"margin"`

	Objective time.Duration `json:"objective"` // of the 95th percentile of downloads in a window
	Window    time.Duration `json:"window"`    // that is judged
	Longest   time.Duration `json:"longest"`   // of a run
}

// burstLive scales the experiment of MRburst, section 4, down: credits last for 40 s at full speed instead of some minutes.
var burstLive = burstSettings{
	Link: 100e6, Baseline: 12e6, Credits: 40 * 88, CPU: 0.2, CPUOf: 2, File: 256 << 10, Users: []int{50, 20, 35, 10, 45, 25},
	Each: 30 * time.Second, Margin: 0.12, Objective: 2500 * time.Millisecond, Window: 10 * time.Second, Longest: 4 * time.Minute,
}

// usersAt is the number of users at a time since the beginning.
func (s burstSettings) usersAt(at time.Duration) int {
	if at < 0 {
		at = 0
	}
	return s.Users[int(at/s.Each)%len(s.Users)]
}

// burstMode is who limits what the instance uses.
type burstMode string

const (
	burstDefault burstMode = "default"  // nobody
	burstCPU     burstMode = "CPU only" // mrburst that knows and limits the processor only, as CEDULE does
	burstAll     burstMode = "MRburst"  //
	burstFixed   burstMode = "fixed"    // one limit of the network, all the time
	burstProfile burstMode = "profile"  // the profiler
)

// burstPiece is a part of the live measurement that is played in one go.
type burstPiece struct {
	name     string
	mode     burstMode
	limit    float64 // bit/s, of mode fixed
	users    int     // a constant number; 0: as in the settings
	replaces bool    // an instance without credits is replaced by a new one
}

// Title names the piece on the page.
func (p burstPiece) Title() string {
	if p.mode == burstFixed {
		return fmt.Sprintf("%.0f Mbit/s all the time", p.limit/1e6)
	}
	return string(p.mode)
}

// burstPieces are all pieces, in the order in which they are played.
func burstPieces() []burstPiece {
	list := []burstPiece{
		{name: "profile", mode: burstProfile},
		{name: "default", mode: burstDefault},
		{name: "cpu", mode: burstCPU},
		{name: "mrburst", mode: burstAll},
	}
	for _, limit := range []float64{30e6, 45e6, 55e6, 70e6} {
		list = append(list, burstPiece{name: fmt.Sprintf("search-%.0f", limit/1e6), mode: burstFixed, limit: limit})
	}
	return append(list,
		burstPiece{name: "constant", mode: burstAll, users: 35},
		burstPiece{name: "replace-default", mode: burstDefault, replaces: true},
		burstPiece{name: "replace-cpu", mode: burstCPU, replaces: true},
		burstPiece{name: "replace-mrburst", mode: burstAll, replaces: true})
}

// burstPiecesOf returns the pieces with this name: live-mrburst is one of them, live are all.
func burstPiecesOf(part string) (list []burstPiece, again, ok bool) {
	name, live := strings.CutPrefix(part, "live")
	if !live {
		return nil, false, false
	}
	if name == "" {
		return burstPieces(), false, true
	}
	i := slices.IndexFunc(burstPieces(), func(p burstPiece) bool { return "-"+p.name == name })
	if i < 0 {
		return nil, false, false
	}
	return burstPieces()[i : i+1], true, true
}

// burstRun is one run, as its record has it.
type burstRun struct {
	Piece      string          `json:"piece"`
	LastedS    float64         `json:"lasted_s"`
	DepletedS  *float64        `json:"depleted_s,omitempty"` // when the first instance was slowed down for lack of credits; absent: never
	Windows    []burstWindow   `json:"windows"`
	Forecasts  []burstForecast `json:"forecasts,omitempty"`
	Replaced   []float64       `json:"replaced,omitempty"` // seconds since the beginning
	Others     float64         `json:"others"`             // processors that other work on the machine used
	Operations float64         `json:"operations"`         // of the disk, per second
	Downloads  int             `json:"downloads"`
	Profile    string          `json:"profile,omitempty"` // what the profiler said at its end
}

// burstWindow is a window that is judged.
type burstWindow struct {
	AtS     float64      `json:"at_s"` // its beginning
	Users   int          `json:"users"`
	N       int          `json:"n"` // downloads that ended in it
	Failed  int          `json:"failed,omitempty"`
	P95MS   *float64     `json:"p95_ms,omitempty"`  // absent: no download ended
	Mbits   float64      `json:"mbit_s"`            // sent
	Limited []burstLimit `json:"limited,omitempty"` // the limits that were in force, in turn
}

// burstLimit is a limit; a resource of "" means none.
type burstLimit struct {
	Resource quell.Resource `json:"resource"`
	Value    float64        `json:"value"`
}

// burstForecast is what the agent said of when the network's credits run out.
type burstForecast struct {
	AtS   float64 `json:"at_s"`
	SaidS float64 `json:"said_s"` // since the beginning
}

// burstRecords is a folder with a record of each piece that was played, and the profile.
type burstRecords string

// burstLiveRecords is where the records are.
var burstLiveRecords = burstRecords(filepath.Join(labDir, "mrburst"))

func (r burstRecords) file(piece string) string { return filepath.Join(string(r), piece+".json") }

func (r burstRecords) read(piece string) (run burstRun, found bool, err error) {
	found, err = readJSON(r.file(piece), &run)
	return run, found, err
}

// profile is the path of the profile that the profiler made.
func (r burstRecords) profile() string { return filepath.Join(string(r), "profile.jsonl") }

// rows reads that profile.
func (r burstRecords) rows() (rows []credit.ProfileRow, err error) {
	data, err := os.ReadFile(r.profile())
	if err != nil {
		return nil, fmt.Errorf("the profile is not measured yet: go run ./cmd/results mrburst:live-profile: %w", err)
	}
	for line := range bytes.Lines(data) {
		var row credit.ProfileRow
		if err := quell.DecodeStrict(line, &row); err != nil {
			return nil, fmt.Errorf("%s: %w", r.profile(), err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// playBurst plays pieces: those that have no record, or, if again, all of them. Then it takes over all records into the page's figures.
func playBurst(ctx context.Context, pieces []burstPiece, again bool, d *burstData) (err error) {
	if err := os.MkdirAll(string(burstLiveRecords), 0o755); err != nil {
		return err
	}
	rig, err := newBurstRig(filepath.Join("bin", "quell"), burstLive, burstLiveRecords)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	for _, p := range pieces {
		if _, found, err := burstLiveRecords.read(p.name); err != nil {
			return err
		} else if found && !again {
			continue
		}
		fmt.Fprintf(os.Stderr, "mrburst: %s, at most %v\n", p.name, burstLive.Longest+time.Minute)
		run, err := rig.play(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := writeJSON(burstLiveRecords.file(p.name), run); err != nil {
			return err
		}
	}
	return d.collect(burstLiveRecords)
}

// collect replaces the live figures by those of the records, if there are any.
func (d *burstData) collect(records burstRecords) error {
	live := &burstLiveData{Machine: here().Machine, Settings: burstLive}
	for _, p := range burstPieces() {
		run, found, err := records.read(p.name)
		if err != nil {
			return err
		}
		if found {
			live.Runs = append(live.Runs, run)
		}
	}
	if len(live.Runs) == 0 {
		return nil
	}
	d.Live = live
	rows, err := records.rows()
	if err != nil {
		return err
	}
	profile, err := credit.NewProfile(rows)
	if err == nil {
		live.Off = live.off(profile)
	}
	return err
}
