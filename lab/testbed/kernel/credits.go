package kernel

import (
	"math"
	"time"

	"github.com/quellhq/quell/credit"
)

// counting is how often an emulated instance's credits are counted.
const counting = 100 * time.Millisecond

// Purse is the credits of processor time of an emulated burstable instance: a token bucket that allows as many processors as its balance
// pays for. Time is an argument, so a purse does not depend on a clock.
type Purse struct {
	bucket  credit.Bucket // in processors
	balance float64
	at      time.Time
	used    float64 // processor time at the last count, in seconds
	counted bool
}

// NewPurse returns a purse with a balance. The bucket's burst is the number of processors that an instance with credits has.
func NewPurse(b credit.Bucket, balance float64) *Purse { return &Purse{bucket: b, balance: balance} }

// Balance is the number of credits at the last count.
func (p *Purse) Balance() float64 { return p.balance }

// Count takes what was used since the last count from the balance. used is the processor time since any fixed moment, in seconds. It
// returns how many processors the instance may use during the next period: all of them, or as many as spend the whole balance by the end
// of the period, which are at least those of the baseline. If a clock or a counter goes back, nothing is counted.
func (p *Purse) Count(now time.Time, used float64, period time.Duration) (processors float64) {
	seconds := now.Sub(p.at).Seconds()
	if p.counted && seconds > 0 && used >= p.used {
		p.balance = p.bucket.After(p.balance, (used-p.used)/seconds, seconds)
	}
	p.at, p.used, p.counted = now, used, true
	return math.Min(p.bucket.Burst, p.bucket.Lasting(p.balance, period.Seconds()))
}
