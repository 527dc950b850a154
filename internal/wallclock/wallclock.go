// Package wallclock gives tests a clock whose wall time can be set while a process runs: differences by the wall clock change,
// differences by the monotonic clock do not.
package wallclock

import (
	"sync"
	"time"
	"unsafe"
)

// Clock is the clock of a process. It runs as fast as time.Now, which in a synctest bubble is the bubble's clock. It is safe for
// concurrent use.
type Clock struct {
	mu    sync.Mutex
	began time.Time
	ahead time.Duration // how far the wall clock is set ahead
}

// New returns a clock whose wall time is that of time.Now.
func New() *Clock { return &Clock{began: time.Now().Add(-time.Second)} }

// Set moves the wall clock forward by that duration.
func (c *Clock) Set(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
}

// Now returns what time.Now would return in the process with this clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return join(now.Round(0).Add(c.ahead), now.Sub(c.began))
}

// Wall returns the wall time, without a monotonic reading.
func (c *Clock) Wall() time.Time { return c.Now().Round(0) }

// join makes a time.Time with both readings, which no function of package time does. The layout of time.Time since Go 1.9 is: a bit
// that says that there are both readings, 33 bits of seconds since 1885, 30 bits of nanoseconds; then the monotonic reading.
func join(wall time.Time, monotonic time.Duration) (t time.Time) {
	const (
		both     = 1 << 63
		from1885 = 2682288000 // seconds before 1970
	)
	layout := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t))
	layout.wall = both | uint64(wall.Unix()+from1885)<<30 | uint64(wall.Nanosecond())
	layout.ext = int64(monotonic)
	return t
}
