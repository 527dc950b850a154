package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
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
	Each: 30 * time.Second, Constant: 35, Search: []float64{30e6, 45e6, 48e6, 50e6, 55e6, 70e6},
	Margin: 0.12, Objective: 2500 * time.Millisecond, Window: 10 * time.Second, Longest: 4 * time.Minute,
}

// burstObjects does so with an object store, which needs more of the processor for as many bytes.
var burstObjects = burstSettings{
	Service: burstStore,
	Link:    100e6, Baseline: 12e6, Credits: 40 * 88, CPU: 0.04, CPUOf: 0.08, File: 128 << 10, Users: []int{100, 40, 70, 20, 90, 50},
	Each: 30 * time.Second, Constant: 70, Search: []float64{30e6, 45e6, 48e6, 50e6, 55e6, 70e6},
	Margin: 0.12, Objective: 2500 * time.Millisecond, Window: 10 * time.Second, Longest: 4 * time.Minute,
}

// burstExperiment is a load with its settings.
type burstExperiment struct {
	part    string // of the page, and what the names of its pieces begin with
	set     burstSettings
	records burstRecords
}

// burstSeeds is how many runs a row of the page is to have.
const burstSeeds = 3

// seeded are the settings of a seed: the same numbers of users in another order. The first seed has the order of the settings.
func (s burstSettings) seeded(seed int) burstSettings {
	s.Users = slices.Clone(s.Users)
	if seed > 1 {
		rand.New(rand.NewPCG(uint64(seed), 0)).Shuffle(len(s.Users), func(i, k int) { s.Users[i], s.Users[k] = s.Users[k], s.Users[i] })
	}
	return s
}

// profiled are the records with the profile of a seed: its own, or that of the seed before.
func (e burstExperiment) profiled(seed int) burstRecords {
	for ; seed > 1; seed-- {
		if _, err := os.Stat(e.records.of(seed).profile()); err == nil {
			return e.records.of(seed)
		}
	}
	return e.records
}

// burstExperiments are all of them.
func burstExperiments() []burstExperiment {
	return []burstExperiment{
		{"live", burstFiles, burstRecords(filepath.Join(labDir, "mrburst"))},
		{"store", burstObjects, burstRecords(filepath.Join(labDir, "mrburst-store"))},
	}
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

// burstWork is what a part of the page has to be played for.
type burstWork struct {
	burstExperiment
	seed   int
	pieces []burstPiece
	again  bool // also those that have a record
}

// burstWorkOf returns the work with a name: live-mrburst is a piece of live, live are all, live-2 and live-2-mrburst those of seed 2.
func burstWorkOf(part string) (w burstWork, ok bool) {
	for _, e := range burstExperiments() {
		name, of := strings.CutPrefix(part, e.part)
		w = burstWork{burstExperiment: e, seed: 1, pieces: e.set.pieces()}
		for seed := 2; seed <= burstSeeds; seed++ {
			if rest, found := strings.CutPrefix(name, fmt.Sprintf("-%d", seed)); found {
				w.seed, name = seed, rest
			}
		}
		i := slices.IndexFunc(w.pieces, func(p burstPiece) bool { return "-"+p.name == name })
		switch {
		case of && name == "":
			return w, true
		case of && i >= 0:
			w.pieces, w.again = w.pieces[i:i+1], true
			return w, true
		}
	}
	return w, false
}

// burstRun is one run, as its record has it.
type burstRun struct {
	Piece      string          `json:"piece"`
	Seed       int             `json:"seed"`
	Machine    string          `json:"machine"`
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

// of is the folder of a seed.
func (r burstRecords) of(seed int) burstRecords {
	if seed == 1 {
		return r
	}
	return burstRecords(filepath.Join(string(r), fmt.Sprintf("seed-%d", seed)))
}

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

// play plays the pieces and records each.
func (w burstWork) play(ctx context.Context) (err error) {
	records := w.records.of(w.seed)
	if err := os.MkdirAll(string(records), 0o755); err != nil {
		return err
	}
	rig, err := newBurstRig(filepath.Join("bin", "quell"), w.burstExperiment, w.seed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	for _, p := range w.pieces {
		if _, found, err := records.read(p.name); err != nil {
			return err
		} else if found && !w.again {
			continue
		}
		fmt.Fprintf(os.Stderr, "mrburst: %s-%s, seed %d, at most %v\n", w.part, p.name, w.seed, w.set.Longest+time.Minute)
		run, err := rig.playPiece(ctx, p)
		if err != nil {
			return fmt.Errorf("%s-%s, seed %d: %w", w.part, p.name, w.seed, err)
		}
		run.Seed = w.seed
		if err := writeJSON(records.file(p.name), run); err != nil {
			return err
		}
	}
	return nil
}

// collect adds the records of what was played here to the figures that are stored, in place of those of the same piece and seed. Stored
// figures of other settings are dropped; more limits to search change none of them. It returns nil if nothing was ever played.
func (e burstExperiment) collect(old *burstLiveData) (*burstLiveData, error) {
	live := &burstLiveData{Settings: e.set}
	if old != nil {
		before, now := old.Settings, e.set
		if before.Search, now.Search = nil, nil; reflect.DeepEqual(before, now) {
			live.Runs, live.Off = old.Runs, old.Off
		}
	}
	for seed := 1; seed <= burstSeeds; seed++ {
		runs, err := e.runs(seed)
		if err != nil {
			return nil, err
		}
		if len(runs) == 0 {
			continue
		}
		for _, r := range runs {
			live.Runs = slices.DeleteFunc(live.Runs, func(l burstRun) bool { return l.Piece == r.Piece && l.Seed == seed })
		}
		live.Runs = append(live.Runs, runs...)
		if err := e.judgeProfile(live, seed); err != nil {
			return nil, err
		}
	}
	if len(live.Runs) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(live.Runs, func(a, b burstRun) int { return cmp.Compare(a.Seed, b.Seed) })
	return live, nil
}

// runs reads the records of a seed.
func (e burstExperiment) runs(seed int) (runs []burstRun, err error) {
	for _, p := range e.set.pieces() {
		run, found, err := e.records.of(seed).read(p.name)
		if err != nil {
			return nil, err
		}
		if found {
			run.Seed, run.Machine = seed, here().Machine
			runs = append(runs, run)
		}
	}
	return runs, nil
}

// judgeProfile enters how far off the predictions of a seed's profile are.
func (e burstExperiment) judgeProfile(live *burstLiveData, seed int) error {
	rows, err := e.profiled(seed).rows()
	if err != nil {
		return err
	}
	profile, err := credit.NewProfile(rows)
	if err != nil {
		return err
	}
	live.Off = slices.DeleteFunc(live.Off, func(o burstOff) bool { return o.Seed == seed })
	if off := live.off(profile, seed); off != nil {
		live.Off = append(live.Off, *off)
	}
	return nil
}
