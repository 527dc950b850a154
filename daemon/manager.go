package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// serviceManager tells systemd about this process, as sd_notify(3) describes. Without a service manager it does nothing.
type serviceManager struct {
	log  *slog.Logger
	self *self
}

// ready says that the process has started, or that a reload is over.
func (m serviceManager) ready() { m.notify(daemon.SdNotifyReady) }

// reload calls f, which returns whether the new configuration is in force, and says that the process reloads meanwhile.
func (m serviceManager) reload(f func() bool) {
	m.reloading()
	m.reloaded(f())
}

// reloading says that a reload begins.
func (m serviceManager) reloading() { m.notify(daemon.SdNotifyReloading) }

// reloaded says that a reload is over, and whether the new configuration is in force.
func (m serviceManager) reloaded(ok bool) {
	m.self.loaded(ok)
	m.ready()
}

// stopping says that the process ends and, with the watchdog, for how long its open work may take.
func (m serviceManager) stopping(within time.Duration) {
	m.notify(fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, within.Microseconds()))
}

// watchdog reports to the service manager (WatchdogSec=) until ctx ends, but only while alive returns nil: systemd restarts a process
// that hangs. alive must return before the watchdog's time is over.
func (m serviceManager) watchdog(ctx context.Context, alive func(context.Context) error) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		m.log.Warn("the service manager's watchdog is not served", "error", err)
	}
	if limit <= 0 {
		return
	}
	turns := time.NewTicker(limit / 3)
	defer turns.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, limit/3)
		err := alive(asked)
		cancel()
		if err == nil {
			m.notify(daemon.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			m.log.Error("this process hangs: the service manager will restart it", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-turns.C:
		}
	}
}

func (m serviceManager) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		m.log.Warn("telling the service manager failed", "socket", os.Getenv("NOTIFY_SOCKET"), "error", err)
	}
}
