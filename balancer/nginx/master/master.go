// Package master controls nginx by its master process: it lets nginx check its configuration, reloads it, and watches the workers. nginx
// tells nobody whether a reload worked; it shows by the workers.
package master

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quellhq/quell/internal/program"
	"github.com/quellhq/quell/internal/tick"
)

const (
	takeOver    = 10 * time.Second      // until new workers must have replaced the old ones
	takeLook    = 20 * time.Millisecond // between two looks at the workers
	urgentEvery = time.Second           // shortest time between two reloads
	// mostOld is how many generations of old workers may still finish their requests before a reload that is not urgent waits for them.
	mostOld = 2
)

// How nginx's processes are called.
const (
	masterTitle = "nginx: master process"
	workerTitle = "nginx: worker process"
	endingTitle = "shutting down"
)

// Master is nginx's master process. Its methods must not be called concurrently.
type Master struct {
	PIDFile  string        // has its number
	CheckBy  []string      // program that checks nginx's configuration
	ReloadBy []string      // program that reloads nginx; empty: the signal HUP
	Every    time.Duration // shortest time between two reloads that are not urgent
	Longest  time.Duration // how long a check or a reload may take; nginx resolves names while it checks

	reloaded   time.Time // when nginx was last told to reload
	told       bool      // and it is not known yet whether it did
	before     []string  // the workers that took new requests then
	cut        error     // why the program that told it was ended; nil: it was not
	lastActive []string  // the workers that took new requests when they were last listed
}

// Workers lists the workers that take new requests, and counts those that only finish old ones.
func (m *Master) Workers() (active []string, old int, err error) {
	pid, err := m.pid()
	if err != nil {
		return nil, 0, err
	}
	children, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", strconv.Itoa(pid), "children"))
	if err != nil {
		return nil, 0, m.gone(pid)
	}
	for child := range strings.FieldsSeq(string(children)) {
		switch title := title(child); {
		case !strings.HasPrefix(title, workerTitle):
		case strings.Contains(title, endingTitle):
			old++
		default:
			active = append(active, child)
		}
	}
	m.lastActive = active
	return active, old, nil
}

// title returns how a process calls itself; empty if there is none.
func title(pid string) string {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	if err != nil {
		return ""
	}
	return string(text)
}

// pid returns the number of the master process, which runs.
func (m *Master) pid() (int, error) {
	text, err := os.ReadFile(m.PIDFile)
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("nginx does not run: there is no %s; if nginx's pid line names another file, set balancer.nginx.pid", m.PIDFile)
	}
	if err != nil {
		return 0, fmt.Errorf("number of nginx's master process: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 1 {
		return 0, fmt.Errorf("nginx does not run: %s has no number of a process", m.PIDFile)
	}
	if !strings.HasPrefix(title(strconv.Itoa(pid)), masterTitle) {
		return 0, m.gone(pid)
	}
	return pid, nil
}

// gone says that the process in the file is no master of nginx, and names the workers that a killed one left.
func (m *Master) gone(pid int) error {
	left := slices.DeleteFunc(slices.Clone(m.lastActive), func(w string) bool { return !strings.HasPrefix(title(w), workerTitle) })
	if len(left) == 0 {
		return fmt.Errorf("nginx does not run: process %d, which %s names, is no master process of nginx", pid, m.PIDFile)
	}
	return fmt.Errorf("nginx's master process %d (%s) is gone, and its workers go on with the last weights: end them with kill -QUIT %s, "+
		"then start nginx", pid, m.PIDFile, strings.Join(left, " "))
}

// TooSoon returns whether a reload has to wait, and why, if that is worth a word. again says that it is not known whether nginx did
// the last one: it gets its time for that.
func (m *Master) TooSoon(urgent, again bool, now time.Time) (wait bool, why error) {
	shortest := m.Every
	switch {
	case urgent:
		shortest = min(urgentEvery, m.Every)
	case again:
		shortest = min(takeOver, m.Every)
	}
	if now.Sub(m.reloaded) < shortest {
		return true, nil
	}
	active, old, err := m.Workers()
	if err != nil || urgent || again || old < mostOld*max(1, len(active)) {
		return false, nil
	}
	return true, fmt.Errorf("%d old workers of nginx still finish requests: weights wait for them; worker_shutdown_timeout in nginx's "+
		"configuration limits how long they may take", old)
}

// Check lets nginx check its whole configuration. It must end within the step: the file has the new text meanwhile.
func (m *Master) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.Longest)
	defer cancel()
	err := m.run(ctx, m.CheckBy)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("nginx's configuration cannot be checked in the time of a step, so its servers stay as they are. Most often names in "+
			"it are resolved slowly: write addresses, raise `sampling` (a step has a period, but 5 s to 1 min), or set balancer.nginx.test to a "+
			"faster check: %w", err)
	}
	return err
}

// Tell tells nginx to reload. After an error nginx was not told. A program that was cut off may have told it, so that is no error.
func (m *Master) Tell(ctx context.Context) error {
	before, _, err := m.Workers()
	if err != nil {
		return err
	}
	err = m.tell(ctx)
	if cut := new(program.CutError); err != nil && !errors.As(err, &cut) {
		return err
	}
	m.told, m.before, m.cut, m.reloaded = true, before, err, time.Now()
	return nil
}

// Await waits until new workers take the requests. After an error it is not known whether nginx does what it was told: it may do it later.
func (m *Master) Await(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, takeOver)
	defer cancel()
	for tick.Sleep(within, takeLook) {
		if m.Renewed() {
			return nil
		}
	}
	switch {
	case m.cut != nil:
		return fmt.Errorf("whether nginx reloads is not known: %w", m.cut)
	case ctx.Err() != nil:
		return fmt.Errorf("nginx was told to reload, and its new workers have not come yet: %w", ctx.Err())
	}
	return errors.New("nginx was told to reload, and its workers stayed: its error log says why")
}

// Renewed returns whether new workers take the requests since nginx was last told to reload, if that was not known yet.
func (m *Master) Renewed() bool {
	if !m.told {
		return false
	}
	now, _, err := m.Workers()
	kept := slices.ContainsFunc(now, func(w string) bool { return slices.Contains(m.before, w) })
	if err == nil && len(now) > 0 && !kept {
		m.told = false
	}
	return !m.told
}

func (m *Master) tell(ctx context.Context) error {
	if len(m.ReloadBy) > 0 {
		return m.run(ctx, m.ReloadBy)
	}
	pid, err := m.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		return fmt.Errorf("telling nginx (process %d) to reload: %w; run the controller as root, or set balancer.nginx.reload", pid, err)
	}
	return nil
}

func (m *Master) run(ctx context.Context, argv []string) error {
	_, err := program.Run(ctx, argv, nil, program.Limits{Time: m.Longest, OutputMiB: 1})
	return err
}
