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
	"github.com/quellhq/quell/internal/strictjson"
)

// burstService is what the instances serve with.
type burstService string

const (
	burstFTP   burstService = "vsftpd"    // a file server
	burstStore burstService = "versitygw" // an object store on the disk
)

// login connects a user.
func (s burstService) login(u *burstUsers, address string) (burstSession, error) {
	if s == burstStore {
		return loginStore(u, address)
	}
	return loginFTP(u, address)
}

// port is where it listens.
func (s burstService) port() int {
	if s == burstStore {
		return 80
	}
	return 21
}

// burstSettings are an emulated burstable instance, its load, and the objective.
type burstSettings struct {
	Service burstService `json:"service"`

	Link     float64       `json:"link"`     // bit/s with credits
	Baseline float64       `json:"baseline"` // bit/s without
	Credits  float64       `json:"credits"`  // of the network, of a new instance: megabits
	CPU      float64       `json:"cpu"`      // baseline of its processor
	CPUOf    float64       `json:"cpu_of"`   // credits of the processor, of a new instance
	File     int64         `json:"file"`     // bytes
	Users    []int         `json:"users"`    // one number after the other
	Each     time.Duration `json:"each"`     // for how long
	Constant int           `json:"constant"` // users of the piece whose number never changes
	Search   []float64     `json:"search"`   // limits of the network that are tried to find the best: bit/s
	Margin   float64       `json:"margin"`

	Objective time.Duration `json:"objective"` // of the 95th percentile of downloads in a window
	Window    time.Duration `json:"window"`    // that is judged
	Longest   time.Duration `json:"longest"`   // of a run
}

// burstFiles scales the experiment of MRburst, section 4, with a file server down: credits last for 40 s at full speed instead of some
// minutes.
var burstFiles = burstSettings{
	Service: burstFTP,
	Link:    100e6, Baseline: 12e6, Credits: 40 * 88, CPU: 0.2, CPUOf: 2, File: 256 << 10, Users: []int{50, 20, 35, 10, 45, 25},
	Each: 30 * time.Second, Constant: 35, Search: []float64{30e6, 45e6, 55e6, 70e6},
	Margin: 0.12, Objective: 2500 * time.Millisecond, Window: 10 * time.Second, Longest: 4 * time.Minute,
}

// burstObjects does so with an object store, which needs more of the processor for as many bytes.
var burstObjects = burstSettings{
	Service: burstStore,
	Link:    100e6, Baseline: 12e6, Credits: 40 * 88, CPU: 0.04, CPUOf: 0.08, File: 128 << 10, Users: []int{100, 40, 70, 20, 90, 50},
	Each: 30 * time.Second, Constant: 70, Search: []float64{30e6, 45e6, 55e6, 70e6},
	Margin: 0.12, Objective: 2500 * time.Millisecond, Window: 10 * time.Second, Longest: 4 * time.Minute,
}

// burstExperiment is a load with its settings.
type burstExperiment struct {
	part    string // of the page, and what the names of its pieces begin with
	set     burstSettings
	records burstRecords
}

// burstExperiments are all of them.
var burstExperiments = []burstExperiment{
	{"live", burstFiles, burstRecords(filepath.Join(labDir, "mrburst"))},
	{"store", burstObjects, burstRecords(filepath.Join(labDir, "mrburst-store"))},
}

// fixed is the limit that a piece has all the time; none if it has none.
func (s burstSettings) fixed(piece string) burstLimit {
	for _, p := range s.pieces() {
		if p.name == piece && p.mode == burstFixed {
			return burstLimit{quell.Network, p.limit}
		}
	}
	return burstLimit{}
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

// pieces are all pieces, in the order in which they are played.
func (s burstSettings) pieces() []burstPiece {
	list := []burstPiece{
		{name: "profile", mode: burstProfile},
		{name: "default", mode: burstDefault},
		{name: "cpu", mode: burstCPU},
		{name: "mrburst", mode: burstAll},
	}
	for _, limit := range s.Search {
		list = append(list, burstPiece{name: fmt.Sprintf("search-%.0f", limit/1e6), mode: burstFixed, limit: limit})
	}
	return append(list,
		burstPiece{name: "constant", mode: burstAll, users: s.Constant},
		burstPiece{name: "replace-default", mode: burstDefault, replaces: true},
		burstPiece{name: "replace-cpu", mode: burstCPU, replaces: true},
		burstPiece{name: "replace-mrburst", mode: burstAll, replaces: true})
}

// burstPiecesOf returns the experiment and the pieces with this name: live-mrburst is a piece of live, live are all.
func burstPiecesOf(part string) (e burstExperiment, list []burstPiece, again, ok bool) {
	for _, e := range burstExperiments {
		name, of := strings.CutPrefix(part, e.part)
		all := e.set.pieces()
		i := slices.IndexFunc(all, func(p burstPiece) bool { return "-"+p.name == name })
		switch {
		case of && name == "":
			return e, all, false, true
		case of && i >= 0:
			return e, all[i : i+1], true, true
		}
	}
	return e, nil, false, false
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
		return nil, fmt.Errorf("the profile is not measured yet: go run ./cmd/results mrburst:live-profile, or mrburst:store-profile: %w", err)
	}
	for line := range bytes.Lines(data) {
		var row credit.ProfileRow
		if err := strictjson.Decode(line, &row); err != nil {
			return nil, fmt.Errorf("%s: %w", r.profile(), err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// play plays pieces: those that have no record, or, if again, all of them.
func (e burstExperiment) play(ctx context.Context, pieces []burstPiece, again bool) (err error) {
	if err := os.MkdirAll(string(e.records), 0o755); err != nil {
		return err
	}
	rig, err := newBurstRig(filepath.Join("bin", "quell"), e.set, e.records)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	for _, p := range pieces {
		if _, found, err := e.records.read(p.name); err != nil {
			return err
		} else if found && !again {
			continue
		}
		fmt.Fprintf(os.Stderr, "mrburst: %s-%s, at most %v\n", e.part, p.name, e.set.Longest+time.Minute)
		run, err := rig.play(ctx, p)
		if err != nil {
			return fmt.Errorf("%s-%s: %w", e.part, p.name, err)
		}
		if err := writeJSON(e.records.file(p.name), run); err != nil {
			return err
		}
	}
	return nil
}

// collect reads the records of what was played; nil if there are none.
func (e burstExperiment) collect() (*burstLiveData, error) {
	live := &burstLiveData{Machine: here().Machine, Settings: e.set}
	for _, p := range e.set.pieces() {
		run, found, err := e.records.read(p.name)
		if err != nil {
			return nil, err
		}
		if found {
			live.Runs = append(live.Runs, run)
		}
	}
	if len(live.Runs) == 0 {
		return nil, nil
	}
	rows, err := e.records.rows()
	if err != nil {
		return nil, err
	}
	profile, err := credit.NewProfile(rows)
	if err == nil {
		live.Off = live.off(profile)
	}
	return live, err
}
