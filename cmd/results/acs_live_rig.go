package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/sensor"
)

// acsTimes are how long the parts of a run last.
type acsTimes struct {
	start    time.Duration // without acs, until measuring begins
	settle   time.Duration // with acs
	solo     time.Duration // more of that for each tenant, if acs has solo runs
	measured time.Duration
	many     time.Duration // measured of eight tenants, the slowest of which do few units of work per second
	alone    time.Duration // measured of a tenant that runs alone
}

// acsLiveTimes let acs settle for ten periods after the programs have started.
var acsLiveTimes = acsTimes{start: 2 * time.Second, settle: 12 * time.Second, solo: 2 * time.Second, measured: 15 * time.Second,
	many: 20 * time.Second, alone: 7 * time.Second}

// of returns when measuring begins in a run, and how long it lasts.
func (t acsTimes) of(p acsPlay) (settle, measured time.Duration) {
	if measured = t.measured; len(p.mix) >= 8 {
		measured = t.many
	}
	switch {
	case len(p.mix) == 1:
		return t.start, t.alone
	case p.mode.policy == "":
		return t.start, measured
	case p.mode.tells:
		return t.settle + time.Duration(len(p.mix))*t.solo, measured
	}
	return t.settle, measured
}

// takes is about how long a run lasts.
func (t acsTimes) takes(p acsPlay) time.Duration {
	const more = 1500 * time.Millisecond // to start and to stop the programs
	settle, measured := t.of(p)
	return settle + measured + more
}

// acsRig plays tenants on this machine.
type acsRig struct {
	dir     string // files of the programs
	program string // of quell
	times   acsTimes

	// The agent holds the one end of a pipe, and this process the other one. So the agent ends when this process is killed.
	pipe, end *os.File
}

// newACSRig checks that all programs are there, and writes the files that they work on.
func newACSRig(program string, mixes []acsMix, times acsTimes) (*acsRig, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the live part needs root, for control groups")
	}
	for _, mix := range mixes {
		for _, w := range mix {
			p, ok := programOf(w.Program)
			if !ok {
				return nil, fmt.Errorf("there is no program %q", w.Program)
			}
			if _, err := exec.LookPath(p.needs); err != nil {
				return nil, fmt.Errorf("the live part: %w", err)
			}
		}
	}
	program, err := filepath.Abs(program)
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		return nil, fmt.Errorf("the live part needs the program (make build): %w", err)
	}
	r := &acsRig{program: program, times: times}
	if r.pipe, r.end, err = os.Pipe(); err != nil {
		return nil, err
	}
	if r.dir, err = os.MkdirTemp("", "quell-acs-"); err == nil {
		err = r.files()
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *acsRig) close() error {
	return errors.Join(os.RemoveAll(r.dir), r.end.Close(), r.pipe.Close())
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
	for i := range 12 {
		fmt.Fprintf(&unit, "int f%d(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i] * %d; return s; }\n", i, i)
	}
	for name, content := range map[string]string{"text": text.String(), "rows.sql": sql.String(), "unit.c": unit.String()} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// play runs a mix, and measures its rates of work once it has settled.
func (r *acsRig) play(ctx context.Context, p acsPlay) (run acsLiveRun, err error) {
	settle, measured := r.times.of(p)
	run = acsLiveRun{Title: p.mode.title, Repeat: p.repeat, Tenants: p.mix, SettleS: settle.Seconds(), MeasuredS: measured.Seconds()}
	watch := &acsWatch{}
	if p.mode.policy != "" {
		if watch.agent, err = r.agent(p.mode); err != nil {
			return run, err
		}
		defer func() { err = errors.Join(err, watch.agent.stop()) }()
	}
	list, err := r.tenants(p, watch.agent)
	defer func() { err = stopTenants(list, err) }()
	if err != nil {
		return run, err
	}
	watch.began = time.Now()
	if err := watch.until(ctx, settle); err != nil {
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
	if err := watch.until(ctx, settle+measured); err != nil {
		return run, err
	}
	for _, t := range list {
		rate, err := t.units.rate()
		if err != nil {
			return run, fmt.Errorf("%s: %w", t.what, err)
		}
		run.Rates = append(run.Rates, rate)
	}
	if err := run.account(used.Sample(time.Now())); err != nil {
		return run, err
	}
	if p.mode.groups && len(run.Processors) != len(p.mix) {
		return run, fmt.Errorf("%d of %d tenants have a group: some have ended", len(run.Processors), len(p.mix))
	}
	run.Moments = watch.seen
	return run, errors.Join(watch.check(), run.disturbed())
}

// errDisturbed is the error of a run that other programs disturbed.
var errDisturbed = errors.New("the machine is not quiet")

// disturbed returns an error if programs outside of the tenants' groups, or the hypervisor, took too much of the processors.
func (run acsLiveRun) disturbed() error {
	const mostOthers, mostSteal = 0.4, 0.05 // processors, and a part of their time
	switch {
	case run.Others != nil && *run.Others > mostOthers:
		return fmt.Errorf("%w: other programs used %.2f processors, more than %v", errDisturbed, *run.Others, mostOthers)
	case run.Steal > mostSteal:
		return fmt.Errorf("%w: the hypervisor kept %.1f%% of the processors' time, more than %v%%", errDisturbed, 100*run.Steal, 100*mostSteal)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// account stores what processors were used for while the run was measured.
func (run *acsLiveRun) account(s quell.Snapshot, failures []sensor.Failure) error {
	for _, f := range failures {
		return fmt.Errorf("reading %s: %w", f.Sensor, f.Err)
	}
	run.Steal = s.Machine.CPU.Steal
	others := s.Machine.Sched.RunS / s.Machine.WindowS
	for _, in := range s.Instances {
		if in.Observation == nil {
			return fmt.Errorf("the group %s is new: a tenant has begun again", in.ID)
		}
		processors := in.Observation.Sched.RunS / in.Observation.WindowS
		run.Processors, others = append(run.Processors, processors), others-processors
	}
	if len(run.Processors) > 0 {
		others = max(0, others)
		run.Others = &others
	}
	return nil
}

// acsGroups begins the paths of the tenants' groups, and acsGroup the names by which an agent knows them.
const (
	acsGroups = "/quell/" + acsGroup
	acsGroup  = "results-"
)

// acsAgent is a running agent with policy acs.
type acsAgent struct {
	dir string
	cmd *exec.Cmd
	log *bytes.Buffer
}

// agent starts an agent that has no memory of earlier runs.
func (r *acsRig) agent(mode acsMode) (*acsAgent, error) {
	dir, err := os.MkdirTemp(r.dir, "agent-")
	if err != nil {
		return nil, err
	}
	a := &acsAgent{dir: dir, log: &bytes.Buffer{}}
	config := filepath.Join(dir, "agent.yaml")
	text := fmt.Sprintf("data: data\nagent: {policy: {name: acs, %s, sampling: 1s, records: records, progress: %s,\n"+
		"  groups: [{cgroup: '%s*'}]}}\n", mode.policy, a.socket(), acsGroups)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	a.cmd = exec.Command(r.program, "agent", "--config", config)
	a.cmd.Dir, a.cmd.Stdout, a.cmd.Stderr = dir, a.log, a.log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is for this process only
	lifeline.Give(a.cmd, r.pipe)
	return a, a.cmd.Start()
}

// socket is where the agent hears of progress.
func (a *acsAgent) socket() string { return filepath.Join(a.dir, "progress") }

// stop ends the agent, which lifts its limits.
func (a *acsAgent) stop() error {
	err := a.cmd.Process.Signal(syscall.SIGTERM)
	if err = errors.Join(err, a.cmd.Wait()); err != nil {
		err = fmt.Errorf("the agent: %w\n%s", err, a.log)
	}
	return err
}

// acsWatch records what an agent does.
type acsWatch struct {
	agent *acsAgent // nil: there is none
	began time.Time
	last  host.Status
	seen  []acsMoment
}

// until waits until the run has lasted this long.
func (w *acsWatch) until(ctx context.Context, at time.Duration) error {
	const often = 500 * time.Millisecond // so that no decision is missed
	for {
		left := at - time.Since(w.began)
		if err := wait(ctx, min(left, often)); err != nil || left <= often {
			return err
		}
		w.look(ctx)
	}
}

// look records the agent's last decision. An agent that has just been started does not answer.
func (w *acsWatch) look(ctx context.Context) {
	if w.agent == nil {
		return
	}
	data, err := host.Ask(ctx, filepath.Join(w.agent.dir, "data", "agent"))
	if err != nil {
		return
	}
	var s host.Status
	if err := json.Unmarshal(data, &s); err != nil || s.Plan == nil || s.Decisions == w.last.Decisions {
		return
	}
	w.last = s
	w.seen = append(w.seen, newACSMoment(s, time.Since(w.began)))
}

// newACSMoment takes the decision from an agent's status. During a solo run, groups have weights and caps; it takes the weights.
func newACSMoment(s host.Status, at time.Duration) acsMoment {
	m := acsMoment{AtS: at.Seconds(), Limits: map[string]float64{}, Caps: map[string]float64{}}
	for _, reason := range s.Plan.Reasons {
		if reason.Instance == "" {
			m.Code = reason.Code
			break
		}
	}
	for _, l := range s.Plan.Limits {
		if _, known := m.Limits[l.Instance]; !known || l.Unit == quell.WeightUnit {
			m.Limits[l.Instance] = l.Value
		}
		if l.Unit != quell.WeightUnit {
			m.Caps[l.Instance] = l.Value
		}
	}
	return m
}

// check returns why the run does not count.
func (w *acsWatch) check() error {
	switch {
	case w.agent == nil:
		return nil
	case len(w.seen) == 0:
		return errors.New("the agent never answered")
	case len(w.last.NotLimited) > 0:
		return fmt.Errorf("the agent could not limit groups: %v", w.last.NotLimited)
	}
	return nil
}

// acsTenant is a tenant that runs.
type acsTenant struct {
	what  string
	cmd   *exec.Cmd
	errs  *bytes.Buffer // what it wrote about errors
	units *unitCount
	done  chan struct{} // closed when its output has ended
}

// tenants starts the tenants of a run. If one cannot be started, it returns those that were.
func (r *acsRig) tenants(p acsPlay, agent *acsAgent) (list []*acsTenant, err error) {
	socket := ""
	if p.mode.tells {
		socket = agent.socket()
	}
	for i, w := range p.mix {
		t, err := r.tenant(i, w, p.mode.groups, socket)
		if err != nil {
			return list, err
		}
		list = append(list, t)
	}
	return list, nil
}

// tenant starts a tenant, in a group of its own or not. Its workers write a dot for each unit of work that is done, and something else if
// one failed. They end when nobody reads them any more. A socket is told of each unit, if it is not empty.
func (r *acsRig) tenant(i int, w acsWorker, group bool, socket string) (*acsTenant, error) {
	p, ok := programOf(w.Program)
	if !ok {
		return nil, fmt.Errorf("there is no program %q", w.Program)
	}
	loop := fmt.Sprintf("{ while %s > /dev/null; do printf . || exit; %s done; printf !; } & ", p.command, sleeping(p.pause))
	args := []string{"sh", "-c", strings.Repeat(loop, w.Workers) + "wait"}
	name := fmt.Sprintf("%s%02d", acsGroups, i)
	if group {
		args = append([]string{r.program, "run", "--name", filepath.Base(name), "--progress", "/nonexistent", "--"}, args...)
	}
	t := &acsTenant{what: w.String(), cmd: exec.Command(args[0], args[1:]...), errs: &bytes.Buffer{}, units: &unitCount{},
		done: make(chan struct{})}
	t.cmd.Dir, t.cmd.Stderr = r.dir, t.errs
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

// stopTenants ends the tenants of a run, and adds to its error what they wrote about theirs.
func stopTenants(list []*acsTenant, err error) error {
	failed := err != nil
	for _, t := range list {
		err = errors.Join(err, t.stop())
		if failed && t.errs.Len() > 0 {
			err = errors.Join(err, fmt.Errorf("%s wrote: %s", t.what, t.errs))
		}
	}
	return err
}

// stop ends a tenant with all of its processes. quell run ends those of its group.
func (t *acsTenant) stop() error {
	if err := syscall.Kill(-t.cmd.Process.Pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
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
	failed      bool // a unit, at any time
	silent      bool // nobody is told any more
	units       int
	first, last time.Time
}

// follow counts dots until the end.
func (u *unitCount) follow(out io.Reader, socket, group string) {
	in := bufio.NewReader(out)
	for {
		done, err := in.ReadByte()
		if err != nil {
			return
		}
		if done != '.' {
			u.fail()
			continue
		}
		u.add(time.Now())
		if socket != "" && !u.silenced() {
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

func (u *unitCount) fail() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failed = true
}

func (u *unitCount) silence() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.silent = true
}

func (u *unitCount) silenced() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.silent
}

// total returns how many units were done since begin.
func (u *unitCount) total() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.units
}

func (u *unitCount) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counting = true
}

// rate returns the units per second between the first and the last one since begin.
func (u *unitCount) rate() (float64, error) {
	const least = 3 // a cap at the floor of the literal rule leaves some tenants that few
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counting = false
	switch {
	case u.failed:
		return 0, errors.New("a unit of work failed")
	case u.units < least || !u.last.After(u.first):
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
