package haproxy

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/internal/tick"
)

// LogAt returns where HAProxy's log arrives, "" if it is not read.
func (s *Settings) LogAt() string { return s.Log }

// AwaitLog reads HAProxy's log in place of a controller, until requests are measured or ctx ends, and returns what it saw. It is an error
// if HAProxy served requests that could not be measured in two periods in a row, or at the end.
func (s *Settings) AwaitLog(ctx context.Context, in balancer.Service, period time.Duration) (string, error) {
	in.Logger = slog.New(slog.DiscardHandler)
	driver, err := s.reader(s.Sockets, in)
	if err != nil {
		return "", err
	}
	defer driver.Close()
	o, err := s.monitoring(in)
	if err != nil {
		return "", err
	}
	m := newMonitor(driver, o)
	go m.listen()
	defer o.Log.Close()
	m.counts(ctx) // of before
	began, wrong := time.Now(), false
	for tick.Sleep(ctx, period) {
		w := window{m.counts(ctx), m.takeLog(), period}
		m.check(ctx, &w)
		switch err := m.err(); {
		case err != nil && wrong:
			return "", err
		case err != nil:
			wrong = true
		case w.log.lines > 0:
			return fmt.Sprintf("%d requests measured", w.log.lines), nil
		default:
			wrong = false
		}
	}
	if err := m.err(); err != nil {
		return "", err
	}
	return fmt.Sprintf("no request came within %s, so nothing is known of the log", time.Since(began).Round(time.Second)), nil
}
