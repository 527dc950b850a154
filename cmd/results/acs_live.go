package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// acsProgram is a real program. Its command does one unit of work, which takes 3 to 40 ms of processor time.
type acsProgram struct {
	name    string
	needs   string // the program
	command string // for a shell, in the folder of the files
	pause   string // seconds between two units; "": none
}

var acsPrograms = []acsProgram{
	{"compression", "xz", "xz -1 -c text", ""},
	{"sorting", "sort", "sort -S 4M --parallel=1 text", ""},
	{"compiling", "cc", "cc -O1 -S -o - unit.c", ""},
	{"numbers", "awk", "awk 'BEGIN { for (i = 0; i < 200000; i++) s += sqrt(i); print s }'", ""},
	{"database", "sqlite3", "sqlite3 :memory: < rows.sql", ""},
	{"Fourier transform", "stress-ng", "stress-ng -q --cpu 1 --cpu-method fft --cpu-ops 20", ""},
	{"memory streams", "stress-ng", "stress-ng -q --stream 1 --stream-ops 1 --stream-l3-size 2M", ""},
	{"matrices", "stress-ng", "stress-ng -q --matrix 1 --matrix-ops 60", ""},
	{"bursts of numbers", "awk", "awk 'BEGIN { for (i = 0; i < 200000; i++) s += sqrt(i); print s }'", "0.05"},
	{"bursts of compiling", "cc", "cc -O1 -S -o - unit.c", "0.08"},
	{"mostly idle", "awk", "awk 'BEGIN { for (i = 0; i < 100000; i++) s += sqrt(i); print s }'", "0.25"},
}

// programOf returns the program of that name.
func programOf(name string) (p acsProgram, ok bool) {
	i := slices.IndexFunc(acsPrograms, func(p acsProgram) bool { return p.name == name })
	if i < 0 {
		return p, false
	}
	return acsPrograms[i], true
}

// acsWorker is a tenant: a program, and how many of it work side by side.
type acsWorker struct {
	Program string `json:"program"`
	Workers int    `json:"workers"`
}

func (w acsWorker) String() string { return fmt.Sprintf("%d %s", w.Workers, w.Program) }

// acsMix are the tenants that share the machine.
type acsMix []acsWorker

func (m acsMix) String() string {
	var names []string
	for _, w := range m {
		names = append(names, w.String())
	}
	return strings.Join(names, ", ")
}

// acsLiveMixes are the mixes of real programs.
var acsLiveMixes = []acsMix{
	{{"numbers", 1}, {"sorting", 6}},
	{{"compression", 1}, {"compiling", 8}},
	{{"database", 2}, {"bursts of numbers", 1}},
	{{"Fourier transform", 1}, {"memory streams", 4}},
	{{"numbers", 1}, {"sorting", 2}, {"compression", 4}, {"compiling", 8}},
	{{"database", 1}, {"memory streams", 2}, {"Fourier transform", 4}, {"numbers", 6}},
	{{"bursts of compiling", 2}, {"compression", 2}, {"sorting", 4}, {"matrices", 4}},
	{{"mostly idle", 1}, {"bursts of numbers", 1}, {"compiling", 4}, {"database", 8}},
	{{"numbers", 1}, {"sorting", 1}, {"compression", 2}, {"compiling", 2}, {"database", 4}, {"Fourier transform", 4}, {"matrices", 6},
		{"memory streams", 2}},
	{{"mostly idle", 1}, {"mostly idle", 2}, {"bursts of numbers", 1}, {"bursts of compiling", 2}, {"compression", 1}, {"sorting", 2},
		{"database", 4}, {"matrices", 4}},
	{{"numbers", 1}, {"numbers", 2}, {"numbers", 4}, {"numbers", 8}, {"bursts of numbers", 1}, {"bursts of numbers", 4}, {"sorting", 1},
		{"sorting", 4}},
	{{"memory streams", 1}, {"memory streams", 2}, {"compression", 1}, {"compression", 4}, {"compiling", 1}, {"compiling", 4},
		{"database", 1}, {"database", 4}},
}

// acsMode is how processors are divided in a live run.
type acsMode struct {
	title   string
	piece   string // the piece whose runs use this mode: live, told or beside
	groups  bool   // each tenant has a control group of its own
	policy  string // settings of acs; "": none
	tells   bool   // acs is told of the work that is done
	repeats int
}

// acsModes are the modes of mixes. The goals are about the modes of the piece live; the others are compared with them.
var acsModes = []acsMode{
	{"kernel", "live", true, "", false, 3},
	{"acs", "live", true, "by: weights", false, 3},
	{"acs, told of progress", "told", true, "solo: 10m", true, 3},
	{"no groups", "beside", false, "", false, 1},
	{"literal rule", "beside", true, "rule: literal", false, 1},
}

// acsAloneMode is the mode of runs in which a tenant has the machine to itself. Each piece plays them once, and the piece alone as often as
// this, because all slowdowns of a tenant rest on them.
var acsAloneMode = acsMode{title: "alone", groups: true, repeats: 3}

// acsPiece is a part of the live measurement that is played in one go.
type acsPiece struct {
	mixes []acsMix
	alone acsMode
	modes []acsMode
}

// acsPieceOf returns the piece with this name: live, told and beside play all mixes, live-4 those of four tenants, and live-4-2 the second
// of those. The piece alone only plays their tenants alone.
func acsPieceOf(name string) (p acsPiece, ok bool) {
	piece, which, chosen := strings.Cut(name, "-")
	onlyAlone := piece == acsAloneMode.title
	if p.alone = acsAloneMode; !onlyAlone {
		p.alone.repeats = 1
	}
	for _, mode := range acsModes {
		if mode.piece == piece {
			p.modes = append(p.modes, mode)
		}
	}
	numbers := map[int]int{} // of the last mix, by its tenants
	for _, mix := range acsLiveMixes {
		n := len(mix)
		numbers[n]++
		if !chosen || which == fmt.Sprint(n) || which == fmt.Sprintf("%d-%d", n, numbers[n]) {
			p.mixes = append(p.mixes, mix)
		}
	}
	return p, (len(p.modes) > 0 || onlyAlone) && len(p.mixes) > 0
}

// acsPlay is one run.
type acsPlay struct {
	mix    acsMix
	mode   acsMode
	repeat int
}

func (p acsPlay) String() string {
	return fmt.Sprintf("%s: %v, repeat %d", p.mode.title, p.mix, p.repeat+1)
}

// file is the name of the run's record.
func (p acsPlay) file() string {
	name := fmt.Sprintf("%s %v %d.json", p.mode.title, p.mix, p.repeat)
	return strings.NewReplacer(" ", "-", ",", "").Replace(name)
}

// plays lists the runs of a piece: each tenant alone, then each mix in each mode, one repeat after the other. So whatever changes on the
// machine in that time happens to all modes.
func (p acsPiece) plays() (list []acsPlay) {
	for _, mix := range p.mixes {
		list = append(list, playsAlone(mix, p.alone)...)
		list = append(list, playsOf(mix, p.modes)...)
	}
	return list
}

func playsAlone(mix acsMix, mode acsMode) (list []acsPlay) {
	for _, w := range mix {
		list = append(list, playsOf(acsMix{w}, []acsMode{mode})...)
	}
	return list
}

func playsOf(mix acsMix, modes []acsMode) (list []acsPlay) {
	most := 0
	for _, mode := range modes {
		most = max(most, mode.repeats)
	}
	for repeat := range most {
		for _, mode := range modes {
			if repeat < mode.repeats {
				list = append(list, acsPlay{mix, mode, repeat})
			}
		}
	}
	return list
}

// acsRecords is a folder with a record of each run that was played.
type acsRecords string

// acsLiveRecords is where the records are.
var acsLiveRecords = acsRecords(filepath.Join(labDir, "acs"))

func (r acsRecords) read(p acsPlay) (run acsLiveRun, found bool, err error) {
	found, err = readJSON(filepath.Join(string(r), p.file()), &run)
	return run, found, err
}

// fill plays the runs that have no record yet. takes is about how long a run lasts.
func (r acsRecords) fill(ctx context.Context, list []acsPlay, takes func(acsPlay) time.Duration,
	play func(context.Context, acsPlay) (acsLiveRun, error)) error {
	var missing []acsPlay
	var left time.Duration
	known := map[string]bool{}
	for _, p := range list {
		_, found, err := r.read(p)
		if err != nil {
			return err
		}
		if !found && !known[p.file()] {
			missing, left = append(missing, p), left+takes(p)
		}
		known[p.file()] = true
	}
	if err := os.MkdirAll(string(r), 0o755); err != nil {
		return err
	}
	for i, p := range missing {
		fmt.Fprintf(os.Stderr, "acs: %d of %d runs, %v left: %v\n", i+1, len(missing), left.Round(time.Second), p)
		run, err := playUndisturbed(ctx, p, play)
		if err == nil {
			err = writeJSON(filepath.Join(string(r), p.file()), run)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", p, err)
		}
		left -= takes(p)
	}
	return nil
}

// playUndisturbed repeats a run that was disturbed by other programs.
func playUndisturbed(ctx context.Context, p acsPlay, play func(context.Context, acsPlay) (acsLiveRun, error)) (run acsLiveRun, err error) {
	const tries = 3
	for range tries {
		if run, err = play(ctx, p); !errors.Is(err, errDisturbed) {
			return run, err
		}
		fmt.Fprintf(os.Stderr, "acs: %v\n", err)
	}
	return run, err
}

// play plays the runs of a piece that have no record yet, and takes over all records into the page's figures.
func (p acsPiece) play(ctx context.Context, d *acsData) (err error) {
	dir, err := os.MkdirTemp("", "quell-acs-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "quell")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/quell").CombinedOutput(); err != nil {
		return fmt.Errorf("building quell: %w\n%s", err, out)
	}
	rig, err := newACSRig(program, p.mixes, acsLiveTimes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	if err := acsLiveRecords.fill(ctx, p.plays(), acsLiveTimes.takes, rig.play); err != nil {
		return err
	}
	return d.collect(acsLiveRecords)
}

// collect replaces the figures of real programs by those of the records, if there are any.
func (d *acsData) collect(r acsRecords) error {
	live, err := r.live()
	if err == nil && len(live.Mixes) > 0 {
		d.Live = live
	}
	return err
}

// live reads the records of all mixes that were measured completely: alone, and in all modes and repeats of the piece live. Runs of the
// other pieces are added to these.
func (r acsRecords) live() (*acsLiveData, error) {
	l := &acsLiveData{Machine: here().Machine}
	live, _ := acsPieceOf("live")
	told, _ := acsPieceOf("told")
	beside, _ := acsPieceOf("beside")
	for _, mix := range acsLiveMixes {
		_, whole, err := r.runs(playsAlone(mix, live.alone))
		if err != nil {
			return nil, err
		}
		runs, played, err := r.runs(playsOf(mix, live.modes))
		if err != nil {
			return nil, err
		}
		if !whole || !played {
			continue
		}
		more, _, err := r.runs(playsOf(mix, slices.Concat(told.modes, beside.modes)))
		if err != nil {
			return nil, err
		}
		alone, _, err := r.runs(playsAlone(mix, acsAloneMode))
		if err != nil {
			return nil, err
		}
		for _, run := range alone {
			if !slices.ContainsFunc(l.Alone, func(a acsLiveRun) bool { return a.Tenants[0] == run.Tenants[0] && a.Repeat == run.Repeat }) {
				l.Alone = append(l.Alone, run)
			}
		}
		l.Mixes = append(l.Mixes, acsLiveSize{Tenants: mix, Runs: append(runs, more...)})
	}
	return l, nil
}

// runs reads records, and returns whether all were there.
func (r acsRecords) runs(list []acsPlay) (runs []acsLiveRun, all bool, err error) {
	for _, p := range list {
		run, found, err := r.read(p)
		if err != nil {
			return nil, false, err
		}
		if found {
			runs = append(runs, run)
		}
	}
	return runs, len(runs) == len(list), nil
}

// acsLiveData has the measured figures of the live part.
type acsLiveData struct {
	Machine string        `json:"machine"`
	Alone   []acsLiveRun  `json:"alone"`
	Mixes   []acsLiveSize `json:"mixes"`
}

// acsLiveSize is a mix with its runs.
type acsLiveSize struct {
	Tenants acsMix       `json:"tenants"`
	Runs    []acsLiveRun `json:"runs"`
}

// acsLiveRun is one run, as its record has it.
type acsLiveRun struct {
	Title      string      `json:"title"`
	Repeat     int         `json:"repeat,omitempty"`
	Tenants    acsMix      `json:"tenants"`
	SettleS    float64     `json:"settle_s"` // how long after its start measuring began
	MeasuredS  float64     `json:"measured_s"`
	Rates      []float64   `json:"rates"`                // units of work per second
	Processors []float64   `json:"processors,omitempty"` // that each tenant used; absent without groups
	Others     *float64    `json:"others,omitempty"`     // processors that were used outside of the tenants' groups; absent without groups
	Steal      float64     `json:"steal"`                // part of the processors' time that the hypervisor gave to others
	Moments    []acsMoment `json:"moments,omitempty"`    // what the agent did; absent without an agent
}

// acsMoment is a decision of the agent.
type acsMoment struct {
	AtS    float64            `json:"at_s"`             // since the start of the run
	Code   string             `json:"code"`             // reason of the host
	Limits map[string]float64 `json:"limits,omitempty"` // weights, or else caps
	Caps   map[string]float64 `json:"caps,omitempty"`   // in processors, also those beside weights
}

// runsAlone are the runs in which a tenant has the machine to itself.
func (l *acsLiveData) runsAlone(w acsWorker) []acsLiveRun {
	return slices.DeleteFunc(slices.Clone(l.Alone), func(r acsLiveRun) bool { return r.Tenants[0] != w || len(r.Processors) == 0 })
}

// alone returns the mean rate of work of a tenant that has the machine to itself, and the processors that it uses; 0 if that was not
// measured.
func (l *acsLiveData) alone(w acsWorker) (rate, processors float64) {
	runs := l.runsAlone(w)
	for _, r := range runs {
		rate, processors = rate+r.Rates[0]/float64(len(runs)), processors+r.Processors[0]/float64(len(runs))
	}
	return rate, processors
}
