package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/lab/testbed/kernel"
)

// Constants of playing.
const (
	burstLook    = 250 * time.Millisecond // how often a run is looked at
	burstAfter   = 20 * time.Second       // a run without replacements lasts this long after its instance was slowed down
	burstMigrate = 10.0                   // an instance whose credits are said to last at most this many seconds is replaced
)

// burstPlay is a piece while it is played.
type burstPlay struct {
	rig     *burstRig
	piece   burstPiece
	users   *burstUsers
	present *burstInstance
	old     *burstInstance // that users are leaving; nil: none
	began   time.Time
	run     burstRun

	mu      sync.Mutex
	took    []time.Duration // of the downloads that ended in this window
	failed  int
	window  burstWindow
	sent    float64  // bits before this window
	before  float64  // bits of instances that were replaced
	decided int      // the agent's decisions that were seen
	left    *float64 // seconds for which credits last, as the agent said last
	heeded  int      // windows whose verdict led to a replacement, or came before one
	log     *os.File
}

// play plays a piece.
func (r *burstRig) playPiece(ctx context.Context, piece burstPiece) (run burstRun, err error) {
	p := &burstPlay{rig: r, piece: piece}
	p.run.Piece = piece.name
	if p.log, err = os.Create(filepath.Join(r.dir, "users.log")); err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, p.log.Close()) }()
	if p.present, err = r.start(ctx, burstHosts[0], piece); err != nil {
		return run, err
	}
	defer func() {
		for _, i := range []*burstInstance{p.present, p.old} {
			if i != nil {
				err = errors.Join(err, i.close())
			}
		}
	}()
	client, err := r.lab.Place("", kernel.Client)
	if err != nil {
		return run, err
	}
	usersCtx, breakOff := context.WithCancel(context.WithoutCancel(ctx))
	p.users = &burstUsers{place: client, ctx: usersCtx, report: p.report}
	p.users.server.Store(&p.present.burstServer)
	defer func() {
		breakOff()
		p.users.all.Wait()
	}()
	meters, err := newBurstMeters(r)
	if err != nil {
		return run, err
	}
	p.began = time.Now()
	p.window.Users = p.usersAt(0)
	if piece.mode == burstProfile {
		err = p.profile(ctx)
	} else {
		err = p.follow(ctx)
	}
	p.run.LastedS = time.Since(p.began).Seconds()
	return p.run, errors.Join(err, meters.end(&p.run))
}

// report is told of each download.
func (p *burstPlay) report(took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failed++
		fmt.Fprintf(p.log, "failed %v\n", err)
		fmt.Fprintf(os.Stderr, "mrburst: a download failed after %.0f s: %v\n", time.Since(p.began).Seconds(), err)
		return
	}
	p.run.Downloads++
	p.took = append(p.took, took)
	fmt.Fprintf(p.log, "ms=%.1f\n", took.Seconds()*1000)
}

func (p *burstPlay) usersAt(at time.Duration) int {
	if p.piece.users > 0 {
		return p.piece.users
	}
	return p.rig.set.usersAt(at)
}

// follow plays the load until the end of the run.
func (p *burstPlay) follow(ctx context.Context) error {
	set := p.rig.set
	for {
		at := time.Since(p.began)
		p.users.set(p.usersAt(at))
		p.look(ctx, at)
		if at >= time.Duration(len(p.run.Windows)+1)*set.Window {
			p.judge(at)
		}
		if err := p.replace(ctx, at); err != nil {
			return err
		}
		slowedAt := p.run.DepletedS
		if at >= set.Longest || !p.piece.replaces && slowedAt != nil && at.Seconds() >= *slowedAt+burstAfter.Seconds() {
			return nil
		}
		if err := wait(ctx, burstLook); err != nil {
			return err
		}
	}
}

// look enters what has changed since the last look.
func (p *burstPlay) look(ctx context.Context, at time.Duration) {
	if p.run.DepletedS == nil && p.present.slowed() {
		depleted := at.Seconds()
		p.run.DepletedS = &depleted
	}
	if p.present.agent == nil {
		return
	}
	s, ok := p.present.agent.status(ctx)
	if !ok || s.Decisions == p.decided {
		return
	}
	p.decided = s.Decisions
	now := burstLimit{}
	for _, l := range s.Plan.Limits {
		now = burstLimit{l.Resource, l.Value}
	}
	if n := len(p.window.Limited); n == 0 || p.window.Limited[n-1] != now {
		p.window.Limited = append(p.window.Limited, now)
	}
	if p.left = networkForecast(s.Plan); p.left != nil && p.run.DepletedS == nil {
		p.run.Forecasts = append(p.run.Forecasts, burstForecast{at.Seconds(), at.Seconds() + *p.left})
	}
}

// networkForecast is in how many seconds the network's credits run out, by a plan; nil if they do not.
func networkForecast(plan *quell.Plan) *float64 {
	for _, balances := range plan.Credits {
		if b, known := balances[quell.Network]; known {
			return b.DepletedS
		}
	}
	return nil
}

// judge ends a window.
func (p *burstPlay) judge(at time.Duration) {
	p.mu.Lock()
	w := p.window
	w.N, w.Failed = len(p.took), p.failed
	if w.N > 0 {
		slices.Sort(p.took)
		ms := p.took[(95*w.N+99)/100-1].Seconds() * 1000
		w.P95MS = &ms
	}
	p.took, p.failed = nil, 0
	p.mu.Unlock()
	sent := p.before + p.present.sent()
	if p.old != nil {
		sent += p.old.sent()
	}
	w.Mbits = (sent - p.sent) / (at.Seconds() - w.AtS) / 1e6
	p.sent = sent
	p.run.Windows = append(p.run.Windows, w)
	p.window = burstWindow{AtS: at.Seconds(), Users: p.usersAt(at)}
	if n := len(w.Limited); n > 0 {
		p.window.Limited = w.Limited[n-1:]
	}
}

// missed returns whether the last window missed the objective.
func (p *burstPlay) missed() bool {
	n := len(p.run.Windows)
	return n > 0 && !p.run.Windows[n-1].keeps(p.rig.set.Objective)
}

// keeps returns whether a window keeps the objective.
func (w burstWindow) keeps(objective time.Duration) bool {
	return w.P95MS != nil && *w.P95MS <= objective.Seconds()*1000 && w.Failed == 0
}

// due returns whether the present instance is to be replaced: if mrburst says that its credits run out, and without that, if the last
// window missed the objective.
func (p *burstPlay) due() bool {
	if p.piece.mode != burstAll {
		return p.missed() && len(p.run.Windows) > p.heeded
	}
	return p.left != nil && *p.left <= burstMigrate
}

// replace starts a new instance if the present one is to be replaced. Users go there after their present downloads; then the old one ends.
func (p *burstPlay) replace(ctx context.Context, at time.Duration) error {
	if p.old != nil && p.old.users.Load() == 0 {
		old := p.old
		p.old = nil
		p.before += old.sent()
		if err := old.close(); err != nil {
			return err
		}
	}
	if !p.piece.replaces || p.old != nil || !p.due() {
		return nil
	}
	next := burstHosts[(len(p.run.Replaced)+1)%len(burstHosts)]
	fresh, err := p.rig.start(ctx, next, p.piece)
	if err != nil {
		return err
	}
	p.old, p.present = p.present, fresh
	p.decided, p.left, p.heeded = 0, nil, len(p.run.Windows)+1 // the window in which users move is the old one's, too
	p.run.Replaced = append(p.run.Replaced, at.Seconds())
	p.users.server.Store(&fresh.burstServer)
	return nil
}

// profile lets quell credits profile measure the instance, while the number of users goes through all that occur, beginning with the
// largest.
func (p *burstPlay) profile(ctx context.Context) error {
	r, set := p.rig, p.rig.set
	types, err := r.types(r.dir, burstAll)
	if err != nil {
		return err
	}
	out := filepath.Join(r.dir, "profile.jsonl")
	const window, windows = 2 * time.Second, 3
	cmd := exec.Command(r.program, "credits", "profile", "--group", r.group(p.present.host), "--interface", "eth0",
		"--resources", "network,cpu", "--port", fmt.Sprint(set.Service.port()), "--log", p.log.Name(), "--pattern", `(?P<failed>^failed)|^ms=(?P<ms>[0-9.]+)$`,
		"--objective", set.Objective.String(), "--worst", "3", "--type", "lab", "--types", types, "--cgroup", "self",
		"--window", window.String(), "--windows", fmt.Sprint(windows), "--longest", set.Longest.String(),
		"--idle", set.Longest.String(), "--out", out,
		"--records", filepath.Join(r.dir, "profiled"))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	lifeline.Give(cmd, r.pipe)
	p.users.set(maxUsers(set))
	if err := p.present.place.Start(cmd); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return <-ended
	}
	numbers := slices.Compact(slices.Sorted(slices.Values(set.Users)))
	slices.Reverse(numbers)
	first := set.Longest / 4
	each := (set.Longest - first) / time.Duration(len(numbers))
	for {
		at := time.Since(p.began)
		if later := int(max(0, at-first) / each); later > 0 {
			p.users.set(numbers[min(later, len(numbers)-1)])
		}
		select {
		case err := <-ended:
			return p.keepProfile(err, said.String(), out)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), stop())
		case <-time.After(burstLook):
		}
	}
}

// keepProfile stores the profile where the agents of other pieces find it.
func (p *burstPlay) keepProfile(err error, said, out string) error {
	if err != nil {
		return fmt.Errorf("quell credits profile: %w: %s", err, said)
	}
	p.run.Profile = said
	data, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	return os.WriteFile(p.rig.records.of(p.rig.seed).profile(), data, 0o644)
}
