package bus

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// natsLogger passes NATS's messages on at debug level. It records errors at which NATS would otherwise end its process. It also reports a
// store that cannot be written, because NATS only logs that and then leaves requests unanswered.
type natsLogger struct {
	log    *slog.Logger
	broken func(error)

	mu     sync.Mutex
	fatals []string
}

// storeFailures are texts that occur in messages about a store that cannot be written.
var storeFailures = []string{"critical write error", "will be disabled", "disabling jetstream"}

func (l *natsLogger) debug(level, format string, v []any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("nats: "+fmt.Sprintf(format, v...), "nats_level", level)
	}
}

func (l *natsLogger) Noticef(format string, v ...any) { l.debug("notice", format, v) }
func (l *natsLogger) Debugf(format string, v ...any)  { l.debug("debug", format, v) }
func (l *natsLogger) Tracef(format string, v ...any)  { l.debug("trace", format, v) }

func (l *natsLogger) Warnf(format string, v ...any) {
	l.debug("warning", format, v)
	l.watch(format, v)
}

func (l *natsLogger) Errorf(format string, v ...any) {
	l.debug("error", format, v)
	l.watch(format, v)
}

func (l *natsLogger) watch(format string, v []any) {
	lower := strings.ToLower(format)
	for _, words := range storeFailures {
		if strings.Contains(lower, words) {
			l.broken(fmt.Errorf(format, v...))
			return
		}
	}
}

func (l *natsLogger) Fatalf(format string, v ...any) {
	l.debug("fatal", format, v)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fatals = append(l.fatals, fmt.Sprintf(format, v...))
}

func (l *natsLogger) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.fatals, "; ")
}
