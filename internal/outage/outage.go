// Package outage logs a repeated failure once when it begins, and once when it is over.
package outage

import "log/slog"

// Log tracks one repeated action. It is not safe for concurrent use.
type Log struct {
	Logger *slog.Logger
	What   string // as in "publishing"

	failed int // failures in a row
}

// Report takes the result of one attempt: nil if it succeeded.
func (l *Log) Report(err error) {
	switch {
	case err != nil && l.failed == 0:
		l.Logger.Warn(l.What+" failed", "error", err)
	case err == nil && l.failed > 0:
		l.Logger.Info(l.What+" works again", "failures", l.failed)
	}
	if err == nil {
		l.failed = 0
		return
	}
	l.failed++
}
