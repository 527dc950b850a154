package daemon

import (
	"log/slog"
	"strings"

	"github.com/quellhq/quell/config"
)

// logReload logs which changes a reload applied, and which changes since the process's start it could not apply.
func logReload(log *slog.Logger, process string, started, before, now *config.File, advice string) {
	applied := config.Reloads(now, process, config.Changed(before, now))
	remaining := config.Restarts(now, process, config.Changed(started, now))
	if len(remaining) > 0 {
		log.Warn(strings.Join(remaining, ", ")+" changed since the start: "+advice, "keys", remaining)
	}
	if len(applied) == 0 {
		log.Info("reloaded: no key changed that a reload applies")
		return
	}
	log.Info("reloaded", "changed", strings.Join(applied, ", "))
}
