package nginx

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
	programTime = 30 * time.Second      // of a check or a reload; nginx resolves names while it checks
	takeOver    = 10 * time.Second      // until new workers must have replaced the old ones
	takeLook    = 20 * time.Millisecond // between two looks at the workers
)

// master is nginx's master process.
type master struct {
	pidFile      string
	test, reload []string
}

// workers lists the workers that take new requests, and counts those that only finish old ones.
func (m *master) workers() (active []string, old int, err error) {
	pid, err := m.pid()
	if err != nil {
		return nil, 0, err
	}
	children, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", strconv.Itoa(pid), "children"))
	if err != nil {
		return nil, 0, fmt.Errorf("nginx does not run: %s names process %d: %w", m.pidFile, pid, err)
	}
	for child := range strings.FieldsSeq(string(children)) {
		title, err := os.ReadFile(filepath.Join("/proc", child, "cmdline"))
		switch {
		case err != nil || !strings.HasPrefix(string(title), "nginx: worker process"):
		case strings.Contains(string(title), "shutting down"):
			old++
		default:
			active = append(active, child)
		}
	}
	return active, old, nil
}

func (m *master) pid() (int, error) {
	text, err := os.ReadFile(m.pidFile)
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("nginx does not run: there is no %s (balancer.nginx.pid)", m.pidFile)
	}
	if err != nil {
		return 0, fmt.Errorf("number of nginx's master process: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 1 {
		return 0, fmt.Errorf("nginx does not run: %s has no number of a process", m.pidFile)
	}
	return pid, nil
}

// check lets nginx check its whole configuration.
func (m *master) check(ctx context.Context) error {
	_, err := program.Run(ctx, m.test, nil, program.Limits{Time: programTime, OutputMiB: 1})
	return err
}

// renew reloads nginx and waits until new workers take the requests. nginx tells nobody whether a reload worked; it shows by the workers.
func (m *master) renew(ctx context.Context) error {
	before, _, err := m.workers()
	if err != nil {
		return err
	}
	if err := m.tell(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, takeOver)
	defer cancel()
	for tick.Sleep(ctx, takeLook) {
		now, _, err := m.workers()
		kept := slices.ContainsFunc(now, func(w string) bool { return slices.Contains(before, w) })
		if err == nil && len(now) > 0 && !kept {
			return nil
		}
	}
	return errors.New("nginx was told to reload, and its workers stayed: its error log says why")
}

func (m *master) tell(ctx context.Context) error {
	if len(m.reload) > 0 {
		_, err := program.Run(ctx, m.reload, nil, program.Limits{Time: programTime, OutputMiB: 1})
		return err
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
