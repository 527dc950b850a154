package served

import (
	"strconv"
	"time"

	"github.com/quellhq/quell/setting"
)

// Settings say where the service's metrics are, and which of them count.
type Settings struct {
	URL       string        // of the metrics
	Histogram Selector      // durations of requests, classic or native
	Errors    Selector      // a counter of failed requests, or a histogram of them; without a name errors are not measured
	Unit      time.Duration // of the histogram's values
}

// Keys is the table of their keys.
func (s *Settings) Keys() setting.Table {
	selector := func(dst *Selector) setting.Value {
		return setting.Parsed(dst, `a metric of Prometheus, with labels if only some of it counts: request_seconds{path="/buy"}`,
			ParseSelector, Selector.String)
	}
	const seconds, milliseconds, microseconds = "s", "ms", "us"
	units := map[time.Duration]string{time.Second: seconds, time.Millisecond: milliseconds, time.Microsecond: microseconds}
	parse := func(text string) (time.Duration, error) {
		for unit, name := range units {
			if name == text {
				return unit, nil
			}
		}
		return 0, strconv.ErrSyntax
	}
	return setting.Table{
		setting.Req("url", setting.Text(&s.URL).Then(URLProblem), "where the service shows metrics of Prometheus"),
		setting.Req("histogram", selector(&s.Histogram), "histogram of how long requests take, classic or native"),
		setting.Opt("errors", selector(&s.Errors), "counter of failed requests, or a histogram of them").Or("failed requests are not counted"),
		setting.Opt("unit", setting.Parsed(&s.Unit, "s, ms or us", parse, func(u time.Duration) string { return units[u] }),
			"unit of the histogram's values"),
	}
}
