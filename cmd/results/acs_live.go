package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quellhq/quell/sensor"
)

// acsProgram is a real program. Its command does one unit of work, which takes some 30 ms of processor time.
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
	{"memory streams", "stress-ng", "stress-ng -q --stream 1 --stream-ops 2", ""},
	{"matrices", "stress-ng", "stress-ng -q --matrix 1 --matrix-ops 60", ""},
	{"bursts of numbers", "awk", "awk 'BEGIN { for (i = 0; i < 200000; i++) s += sqrt(i); print s }'", "0.05"},
	{"bursts of compiling", "cc", "cc -O1 -S -o - unit.c", "0.08"},
	{"mostly idle", "awk", "awk 'BEGIN { for (i = 0; i < 100000; i++) s += sqrt(i); print s }'", "0.25"},
}

// acsWorker is a tenant: a program, and how many of it work side by side.
type acsWorker struct {
	Program string `json:"program"`
	Workers int    `json:"workers"`
}

func (w acsWorker) String() string { return fmt.Sprintf("%d %s", w.Workers, w.Program) }

// acsLiveMixes are the mixes of real programs.
var acsLiveMixes = [][]acsWorker{
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
	title  string
	groups bool   // each tenant has a control group of its own
	policy string // settings of acs; "": none
	tells  bool   // acs is told of the work that is done
}

var acsModes = []acsMode{
	{"no groups", false, "", false},
	{"kernel", true, "", false},
	{"acs", true, "window: 3s", false},
	{"acs, told of progress", true, "solo: 10m", true},
	{"literal rule", true, "rule: literal", false},
}

// How long live runs last. A run is measured after acs has settled; the solo runs of eight tenants take 16 s.
const (
	acsLiveSettle   = 25 * time.Second
	acsLiveMeasured = 30 * time.Second
	acsAloneTime    = 10 * time.Second
	acsLiveRepeats  = 3
)

// acsLiveData has the measured figures of the live part.
type acsLiveData struct {
	Machine string        `json:"machine"`
	Load    string        `json:"load"` // the machine's load average before and after
	Alone   []acsLiveRun  `json:"alone"`
	Mixes   []acsLiveSize `json:"mixes"`
}

// acsLiveSize is a mix with its runs.
type acsLiveSize struct {
	Tenants []acsWorker  `json:"tenants"`
	Runs    []acsLiveRun `json:"runs"`
}

// acsLiveRun is one run, as its record has it.
type acsLiveRun struct {
	Title      string      `json:"title"`
	Repeat     int         `json:"repeat,omitempty"`
	Tenants    []acsWorker `json:"tenants"`
	Rates      []float64   `json:"rates"`      // units of work per second
	Processors []float64   `json:"processors"` // that each tenant used; absent without groups
}

// playTenants plays the mixes that have no record yet.
func playTenants(ctx context.Context, d *acsData) error {
	rig, err := newACSRig()
	if err != nil {
		return err
	}
	defer os.RemoveAll(rig.dir)
	before, err := loadAverage()
	if err != nil {
		return err
	}
	live := &acsLiveData{Machine: here().Machine}
	for _, mix := range acsLiveMixes {
		size := acsLiveSize{Tenants: mix}
		for _, w := range mix {
			if _, ok := live.alone(w); ok {
				continue
			}
			run, err := rig.recorded(ctx, []acsWorker{w}, acsMode{title: "alone", groups: true}, 0)
			if err != nil {
				return err
			}
			live.Alone = append(live.Alone, run)
		}
		for _, mode := range acsModes {
			for repeat := range acsLiveRepeats {
				run, err := rig.recorded(ctx, mix, mode, repeat)
				if err != nil {
					return err
				}
				size.Runs = append(size.Runs, run)
			}
		}
		live.Mixes = append(live.Mixes, size)
	}
	after, err := loadAverage()
	if err != nil {
		return err
	}
	live.Load = fmt.Sprintf("%s before and %s after", before, after)
	d.Live = live
	return nil
}

// alone returns the run of a tenant that has the machine to itself.
func (l *acsLiveData) alone(w acsWorker) (acsLiveRun, bool) {
	i := slices.IndexFunc(l.Alone, func(r acsLiveRun) bool { return r.Tenants[0] == w })
	if i < 0 {
		return acsLiveRun{}, false
	}
	return l.Alone[i], true
}

// acsRig runs tenants on this machine.
type acsRig struct {
	dir     string // files of the programs
	program string // bin/quell
}

func newACSRig() (*acsRig, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the live part needs root, for control groups")
	}
	for _, p := range acsPrograms {
		if _, err := exec.LookPath(p.needs); err != nil {
			return nil, fmt.Errorf("the live part: %w", err)
		}
	}
	program, err := filepath.Abs(filepath.Join("bin", "quell"))
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		return nil, fmt.Errorf("the live part needs the program (make build): %w", err)
	}
	dir, err := os.MkdirTemp("", "quell-acs-")
	if err != nil {
		return nil, err
	}
	rig := &acsRig{dir, program}
	return rig, rig.files()
}

// files writes what the programs work on.
func (r *acsRig) files() error {
	rng := rand.New(rand.NewPCG(1, 1))
	var text, sql, unit strings.Builder
	for range 12000 {
		fmt.Fprintf(&text, "%d line %x\n", rng.IntN(1e9), rng.IntN(1e5))
	}
	sql.WriteString("create table t (a integer, b text);\nbegin;\n")
	for i := range 4000 {
		fmt.Fprintf(&sql, "insert into t values (%d, 'row %d');\n", rng.IntN(1e6), i)
	}
	sql.WriteString("commit;\ncreate index i on t (a);\nselect count(*), sum(a) from t where a > 1000;\n")
	for i := range 60 {
		fmt.Fprintf(&unit, "int f%d(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i] * %d; return s; }\n", i, i)
	}
	for name, content := range map[string]string{"text": text.String(), "rows.sql": sql.String(), "unit.c": unit.String()} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// recorded plays a run, or reads its record.
func (r *acsRig) recorded(ctx context.Context, mix []acsWorker, mode acsMode, repeat int) (run acsLiveRun, err error) {
	name := mode.title
	for _, w := range mix {
		name += " " + w.String()
	}
	path := filepath.Join(labDir, "acs", strings.NewReplacer(" ", "-", ",", "").Replace(fmt.Sprintf("%s %d.json", name, repeat)))
	if found, err := readJSON(path, &run); found || err != nil {
		return run, err
	}
	fmt.Fprintf(os.Stderr, "acs: %s, repeat %d\n", name, repeat+1)
	if run, err = r.play(ctx, mix, mode); err != nil {
		return run, fmt.Errorf("%s: %w", name, err)
	}
	run.Repeat = repeat
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return run, err
	}
	return run, writeJSON(path, run)
}

// play runs a mix, and measures its rates of work once it has settled.
func (r *acsRig) play(ctx context.Context, mix []acsWorker, mode acsMode) (run acsLiveRun, err error) {
	settle, measured := acsLiveSettle, acsLiveMeasured
	if len(mix) == 1 {
		settle, measured = 2*time.Second, acsAloneTime
	}
	run = acsLiveRun{Title: mode.title, Tenants: mix}
	socket := filepath.Join(r.dir, "progress")
	if mode.policy != "" {
		stop, failed := r.agent(mode, socket)
		if failed != nil {
			return run, failed
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if !mode.tells {
		socket = ""
	}
	var list []*acsTenant
	defer func() {
		for _, t := range list {
			err = errors.Join(err, t.stop())
		}
	}()
	for i, w := range mix {
		t, failed := r.tenant(i, w, mode.groups, socket)
		if failed != nil {
			return run, failed
		}
		list = append(list, t)
	}
	if err := wait(ctx, settle); err != nil {
		return run, err
	}
	used, err := sensor.NewGroups(os.DirFS("/"), []sensor.Group{{Path: acsGroups + "*"}})
	if err != nil {
		return run, err
	}
	used.Sample(time.Now())
	for _, t := range list {
		t.units.begin()
	}
	if err := wait(ctx, measured); err != nil {
		return run, err
	}
	for _, t := range list {
		rate, err := t.units.rate()
		if err != nil {
			return run, fmt.Errorf("%s: %w", t.what, err)
		}
		run.Rates = append(run.Rates, rate)
	}
	s, failures := used.Sample(time.Now())
	for _, f := range failures {
		return run, fmt.Errorf("reading %s: %w", f.Sensor, f.Err)
	}
	for _, in := range s.Instances {
		if in.Observation != nil {
			run.Processors = append(run.Processors, in.Observation.Sched.RunS/in.Observation.WindowS)
		}
	}
	return run, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// acsGroups begins the paths of the tenants' groups.
const acsGroups = "/quell/results-"

// agent starts an agent with policy acs, until stop.
func (r *acsRig) agent(mode acsMode, socket string) (stop func() error, err error) {
	config := filepath.Join(r.dir, "agent.yaml")
	text := fmt.Sprintf("data: data\nagent: {policy: {name: acs, %s, sampling: 1s, records: records, progress: %s,\n"+
		"  groups: [{cgroup: '%s*'}]}}\n", mode.policy, socket, acsGroups)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	var log strings.Builder
	cmd := exec.Command(r.program, "agent", "--config", config)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() error {
		err := cmd.Process.Signal(syscall.SIGTERM)
		if err = errors.Join(err, cmd.Wait()); err != nil {
			err = fmt.Errorf("the agent: %w\n%s", err, log.String())
		}
		return err
	}, nil
}

// acsTenant is a tenant that runs.
type acsTenant struct {
	what  string
	cmd   *exec.Cmd
	units *unitCount
	done  chan struct{} // closed when its output has ended
}

// tenant starts a tenant, in a group of its own or not. Its workers write a byte for each unit of work that is done. A socket is told of
// each, if it is not empty.
func (r *acsRig) tenant(i int, w acsWorker, group bool, socket string) (*acsTenant, error) {
	at := slices.IndexFunc(acsPrograms, func(p acsProgram) bool { return p.name == w.Program })
	if at < 0 {
		return nil, fmt.Errorf("there is no program %q", w.Program)
	}
	p := acsPrograms[at]
	loop := fmt.Sprintf("while :; do %s > /dev/null 2>&1; printf .; %s done & ", p.command, sleeping(p.pause))
	script := strings.Repeat(loop, w.Workers) + "wait"
	args := []string{"sh", "-c", script}
	name := fmt.Sprintf("%s%02d", acsGroups, i)
	if group {
		args = append([]string{r.program, "run", "--name", filepath.Base(name), "--progress", "/nonexistent", "--"}, args...)
	}
	t := &acsTenant{what: w.String(), cmd: exec.Command(args[0], args[1:]...), units: &unitCount{}, done: make(chan struct{})}
	t.cmd.Dir = r.dir
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(t.done)
		t.units.follow(out, socket, name)
	}()
	return t, nil
}

func sleeping(pause string) string {
	if pause == "" {
		return ""
	}
	return "sleep " + pause + ";"
}

// stop ends a tenant with all of its processes. quell run ends those of its group.
func (t *acsTenant) stop() error {
	if err := syscall.Kill(-t.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		return err
	}
	<-t.done
	_ = t.cmd.Wait() // it was ended by a signal
	return nil
}

// unitCount counts units of work.
type unitCount struct {
	mu          sync.Mutex
	counting    bool
	units       int
	first, last time.Time
}

// follow counts bytes until the end.
func (u *unitCount) follow(out io.Reader, socket, group string) {
	in := bufio.NewReader(out)
	for {
		if _, err := in.ReadByte(); err != nil {
			return
		}
		u.add(time.Now())
		if socket != "" {
			tellProgress(socket, group)
		}
	}
}

func (u *unitCount) add(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.counting {
		return
	}
	if u.units++; u.units == 1 {
		u.first = now
	}
	u.last = now
}

func (u *unitCount) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counting = true
}

// rate returns the units per second between the first and the last one since begin.
func (u *unitCount) rate() (float64, error) {
	const least = 10
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counting = false
	if u.units < least || !u.last.After(u.first) {
		return 0, fmt.Errorf("it did %d units of work, too few to tell a rate", u.units)
	}
	return float64(u.units-1) / u.last.Sub(u.first).Seconds(), nil
}

// tellProgress tells the agent of one unit of work. A message that is lost is missing from one period only.
func tellProgress(socket, group string) {
	c, err := net.Dial("unixgram", socket)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = fmt.Fprintf(c, "progress 1 %s", group)
}

// slowdowns are those of a run's tenants, and the work of all tenants in processor seconds as alone, per second.
func (l *acsLiveData) slowdowns(run acsLiveRun) (list []float64, work float64) {
	for i, w := range run.Tenants {
		alone, ok := l.alone(w)
		if !ok || len(alone.Processors) == 0 {
			continue
		}
		list = append(list, alone.Rates[0]/run.Rates[i])
		work += run.Rates[i] / alone.Rates[0] * alone.Processors[0]
	}
	return list, work
}

// acsLiveRow is a mix with the unfairness of each mode.
type acsLiveRow struct {
	Mix   string
	Cells []string
}

func acsModeTitles() (list []string) {
	for _, m := range acsModes {
		list = append(list, m.title)
	}
	return list
}

// of returns a mix's unfairness under a mode, repeat by repeat.
func (l *acsLiveData) of(mix acsLiveSize, title string) (unfairness, mean, worst, work, rates []float64) {
	for _, run := range mix.Runs {
		if run.Title != title {
			continue
		}
		list, w := l.slowdowns(run)
		sum, most, rate := 0.0, 0.0, 0.0
		for _, s := range list {
			sum, most, rate = sum+s, max(most, s), rate+1/s
		}
		unfairness, mean, worst = append(unfairness, unfair(list)), append(mean, sum/float64(len(list))), append(worst, most)
		work, rates = append(work, w), append(rates, rate)
	}
	return unfairness, mean, worst, work, rates
}

// rows lists the mixes.
func (l *acsLiveData) rows() (rows []acsLiveRow) {
	for _, mix := range l.Mixes {
		var names []string
		for _, w := range mix.Tenants {
			names = append(names, w.String())
		}
		row := acsLiveRow{Mix: strings.Join(names, ", ")}
		for _, title := range acsModeTitles() {
			unfairness, _, _, _, _ := l.of(mix, title)
			row.Cells = append(row.Cells, estimateOf(unfairness).Text(2))
		}
		rows = append(rows, row)
	}
	return rows
}

// tables sums the mixes up by the number of tenants.
func (l *acsLiveData) tables() (tables []acsTable) {
	sizes := map[int][]acsLiveSize{}
	for _, mix := range l.Mixes {
		sizes[len(mix.Tenants)] = append(sizes[len(mix.Tenants)], mix)
	}
	for n, mixes := range sizes {
		size := acsSize{Tenants: n, Mixes: len(mixes)}
		for _, title := range acsModeTitles() {
			run := acsRun{Title: title}
			for _, mix := range mixes {
				unfairness, mean, worst, work, rates := l.of(mix, title)
				kernel, _, _, kernelsWork, kernelsRates := l.of(mix, "kernel")
				own, theirs := estimateOf(unfairness), estimateOf(kernel)
				run.Unfairness = append(run.Unfairness, own.Mean)
				run.Mean, run.Worst = append(run.Mean, estimateOf(mean).Mean), append(run.Worst, estimateOf(worst).Mean)
				run.Work = append(run.Work, estimateOf(work).Mean/estimateOf(kernelsWork).Mean)
				run.Rates = append(run.Rates, estimateOf(rates).Mean/estimateOf(kernelsRates).Mean)
				if own.Mean-own.Half > theirs.Mean+theirs.Half {
					run.Worse++
				}
			}
			size.Runs = append(size.Runs, run)
		}
		tables = append(tables, newACSTable(size))
	}
	slices.SortFunc(tables, func(a, b acsTable) int { return cmp.Compare(a.Tenants, b.Tenants) })
	return tables
}
