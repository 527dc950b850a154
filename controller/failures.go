package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell/internal/outage"
)

// failed counts an error of one part of the controller. It logs the error only when it is new, because the same error would repeat each
// period.
func (c *core) failed(part string, err error) {
	if c.counts.failures == nil {
		c.counts.failures, c.counts.last = map[string]int{}, map[string]failure{}
	}
	c.counts.failures[part]++
	now := failure{err.Error(), c.now()}
	if last := c.counts.last[part]; outage.Kind(last.text) != outage.Kind(now.text) || c.over(last) {
		if part == "look" && !c.looked { // normal, for example, before the balancer was first started
			c.log.Warn("nothing is started or changed until scaler and balancer answer", "error", err)
		} else {
			c.log.Error("part failed", "part", part, "error", err)
		}
	}
	c.counts.last[part] = now
}

// forgive logs which failures have ended, and forgets them.
func (c *core) forgive() {
	for _, part := range slices.Sorted(maps.Keys(c.counts.last)) {
		if f := c.counts.last[part]; c.over(f) {
			c.recovered(part, f)
		}
	}
}

func (c *core) recovered(part string, f failure) {
	c.log.Info("part works again", "part", part, "last_failure", f.at, "failures", c.counts.failures[part])
	delete(c.counts.last, part)
}

// over returns whether a failure last occurred so long ago that it is no longer a problem.
func (c *core) over(f failure) bool {
	return c.now().Sub(f.at) > max(10*time.Second, 3*c.opts.Service.Sampling)
}

// counts are totals since the start, for metrics.
type counts struct {
	decisions int
	failures  map[string]int
	last      map[string]failure // by part
}

type failure struct {
	text string
	at   time.Time
}

// watchMeter counts a period in which not all requests were measured.
func (c *core) watchMeter() {
	if c.opts.Measured == nil {
		return
	}
	if err := c.opts.Measured(); err != nil {
		c.failed("measure", err)
	} else if f, ok := c.counts.last["measure"]; ok {
		c.recovered("measure", f)
	}
}
