package tick

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Beat records when a loop last came round, for a watchdog. It is safe for concurrent use.
type Beat struct{ at atomic.Pointer[time.Time] }

// Mark says that the loop came round now.
func (b *Beat) Mark() {
	now := time.Now()
	b.at.Store(&now)
}

// Late returns an error if the loop has stood still for longer than the limit. A loop that has not begun is not late. Setting the wall
// clock has no influence.
func (b *Beat) Late(limit time.Duration) error {
	at := b.at.Load()
	if at == nil {
		return nil
	}
	if still := time.Since(*at); still > limit {
		return fmt.Errorf("its loop has stood still for %s", still.Round(time.Second))
	}
	return nil
}
