package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell/internal/lifeline"
	"github.com/quellhq/quell/internal/webcheck"
)

// startOne starts an instance. If it fails, nothing remains except that the id is not used again.
func (d *Driver) startOne(ctx context.Context) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if d.closed {
		return "", ErrClosed
	}
	freed := d.ledger.FreedSlots
	r, ok := d.ledger.reserve(d.opts.Prefix, d.opts.Slots, d.opts.Now())
	if !ok {
		return "", fmt.Errorf("%w (there are %d)", ErrFull, d.opts.Slots)
	}
	in, err := d.spawn(r)
	if err != nil {
		d.ledger.cancel(r, freed)
		d.saveOrWarn()
		return "", err
	}
	d.follow(in)
	return r.ID, nil
}

// spawn stores the reservation before the fork, so that no id is used twice, and the process id right after the fork.
func (d *Driver) spawn(r *record) (*running, error) {
	r.Type = d.opts.Type
	if err := d.assignPorts(r); err != nil {
		return nil, err
	}
	d.saveOrWarn() // a failure is ignored: a full disk must not prevent a replacement
	cmd, err := d.fork(r)
	if err != nil {
		return nil, err
	}
	if err := d.noteProcess(r, cmd.Process.Pid); err != nil {
		syscall.Kill(-cmd.Process.Pid, unix.SIGKILL)
		cmd.Wait()
		return nil, err
	}
	d.opts.Logger.Info("instance started", "instance", r.ID, "pid", r.PID, "address", r.Address, "slot", r.Slot)
	return newRunning(r, cmd), nil
}

func (d *Driver) assignPorts(r *record) error {
	n := 1
	if d.opts.uses("{probe_port}") {
		n = 2
	}
	ports, err := pickPorts(n, d.opts.Ports, d.ledger.ports())
	if err != nil {
		return err
	}
	r.Port = ports[0]
	if n == 2 {
		r.ProbePort = ports[1]
	}
	r.Address, r.ProbeAddress = expandOne(d.opts.Address, r), expandOne(d.opts.ProbeAddress, r)
	return nil
}

func (d *Driver) fork(r *record) (*exec.Cmd, error) {
	log, err := d.folder.openLog(r.ID)
	if err != nil {
		d.opts.Logger.Warn("what an instance says is not kept", "instance", r.ID, "error", err)
		log, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", r.ID, err)
	}
	defer log.Close()
	args := expand(d.opts.Command, r)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = lifeline.Without(os.Environ())
	own, err := marks(d.opts.Dir, r)
	if err != nil {
		return nil, fmt.Errorf("marking %s: %w", r.ID, err)
	}
	cmd.Env = append(append(cmd.Env, expand(d.opts.Env, r)...), own...)
	if d.opts.Lifeline != nil {
		lifeline.Give(cmd, d.opts.Lifeline)
	}
	if err := cmd.Start(); err != nil {
		os.Remove(d.folder.log(r.ID))
		return nil, fmt.Errorf("running the command of %s: %w", r.ID, err)
	}
	return cmd, nil
}

func (d *Driver) noteProcess(r *record, pid int) error {
	identity, _, err := identify(pid)
	if err != nil {
		return fmt.Errorf("noting the process of %s: %w", r.ID, err)
	}
	r.PID, r.ProcessStart = pid, identity
	d.saveOrWarn()
	return nil
}

// adopt takes over the instances of the previous driver.
func (d *Driver) adopt() error {
	l, seen, err := d.folder.load()
	if err != nil {
		return err
	}
	d.ledger = l
	if seen.IsZero() {
		d.passOverLogs()
	}
	if _, err := d.seek(); err != nil {
		d.opts.Logger.Warn("instances that are not listed are not looked for", "error", err)
	}
	now := d.opts.Now()
	if seen.After(now) {
		seen = now
	}
	var found []*running
	ended := map[int]string{}
	for _, r := range slices.Clone(l.Instances) {
		r.locate()
		r.Started = now.Add(-max(0, now.Sub(r.Started))) // from here on by this process's monotonic clock, even if the wall clock is set
		alive, err := r.alive()
		switch {
		case err != nil:
			return fmt.Errorf("adopting %s: %w", r.ID, err)
		case alive:
			found = append(found, newRunning(r, nil))
		default:
			if r.Exited == nil && r.PID != 0 {
				ended[r.PID] = r.ID
			}
			d.missing(r, seen)
		}
	}
	d.endRemains(ended)
	if err := d.folder.save(l, now); err != nil {
		return err
	}
	d.firstLook(found)
	d.takeUp(found)
	return nil
}

// passOverLogs keeps ids from being used again when instances.json was lost, because each instance has left a log.
func (d *Driver) passOverLogs() {
	names, _ := filepath.Glob(d.folder.log("*")) // no error: the pattern is valid
	for _, name := range names {
		d.ledger.passOver(d.opts.Prefix, strings.TrimSuffix(filepath.Base(name), ".log"))
	}
}

// missing records that an instance ended, or that its start was interrupted, while no driver ran.
func (d *Driver) missing(r *record, seen time.Time) {
	if r.Exited == nil {
		d.opts.Logger.Warn("instance is gone since the last run", "instance", r.ID, "pid", r.PID, "last_seen", seen)
		d.ledger.exit(r, seen)
	}
	if r.Stopping {
		d.forget(r)
	}
}

// endRemains kills processes that were left behind by instances that ended while no driver ran. A process is killed only if it is in such
// an instance's process group and has its mark, so no other program is hit.
func (d *Driver) endRemains(ended map[int]string) {
	if len(ended) == 0 {
		return
	}
	found, err := findMarked(d.opts.Dir)
	if err != nil {
		d.opts.Logger.Warn("what ended instances left behind is not looked for", "error", err)
	}
	for _, m := range found {
		if id, of := ended[m.group]; of && id == m.ID {
			syscall.Kill(-m.group, unix.SIGKILL)
		}
	}
}

// firstLook checks at once which adopted instances are ready. Otherwise all would be reported as starting, and a controller might act on
// that.
func (d *Driver) firstLook(found []*running) {
	done := make(chan struct{})
	for _, in := range found {
		go func() {
			in.ready = d.answers(d.ctx, in.Address) == nil
			done <- struct{}{}
		}()
	}
	for range found {
		<-done
	}
}

func (d *Driver) takeUp(found []*running) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, in := range found {
		d.opts.Logger.Info("instance adopted", "instance", in.ID, "pid", in.PID, "ready", in.ready)
		d.follow(in)
		if in.Stopping {
			d.work.Go(func() { d.end(in) })
		}
	}
}

// tryWithin limits the time of one readiness check.
const tryWithin = 2 * time.Second

func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// answers returns why the instance is not ready, nil if it is.
func (d *Driver) answers(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+d.opts.Ready.Path, nil)
	if err != nil {
		return err
	}
	d.opts.Ready.Request.Fill(req)
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text := "it answers " + resp.Status
		if hint := webcheck.Refused(req, resp.StatusCode, "scaler.ready"); hint != "" {
			text += "; " + hint
		}
		return errors.New(text)
	}
	return nil
}
