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

// Notice tracks a condition that is no failure, such as a change by a person. It logs one line when the condition begins and one when it
// ends. It is not safe for concurrent use.
type Notice struct {
	Logger     *slog.Logger
	Begun, End string

	on bool
}

// Observe takes whether the condition holds now. args are attributes of the log lines.
func (n *Notice) Observe(on bool, args ...any) {
	switch {
	case on && !n.on:
		n.Logger.Warn(n.Begun, args...)
	case !on && n.on:
		n.Logger.Info(n.End, args...)
	}
	n.on = on
}
