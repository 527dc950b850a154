package kernel

import (
	"math"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
)

// counting is how often an emulated instance's credits are counted.
const counting = 100 * time.Millisecond

// Burstable is an instance whose use of one resource costs credits.
type Burstable struct {
	Prefix      string
	Host        string
	Resource    quell.Resource // CPU, Network (what the instance sends) or Disk
	Folder      string         // for Disk: a folder on the disk whose operations cost credits
	TokenBucket *TokenBucket
	Counted     func(Counted) // called after each count; may be nil
}

// Counted is what a count of credits found.
type Counted struct {
	At      time.Time
	Used    float64 // since a fixed moment: processor seconds, bits or operations
	Balance float64 // credits
	Slow    bool    // the instance is slowed down for lack of credits
}

// TokenBucket is the credits that an emulated burstable instance has of one resource: a token bucket that allows as much use as its
// balance pays for. Time is an argument, so a bucket does not depend on a clock.
type TokenBucket struct {
	bucket  credit.Bucket
	balance float64
	at      time.Time
	used    float64 // at the last count
	counted bool
	slow    bool
}

// NewTokenBucket returns a bucket with a balance. The bucket's burst is what an instance with credits may use: processors, bit/s, or
// operations per second.
func NewTokenBucket(b credit.Bucket, balance float64) *TokenBucket {
	return &TokenBucket{bucket: b, balance: balance}
}

// Balance is the number of credits at the last count.
func (p *TokenBucket) Balance() float64 { return p.balance }

// Slow returns whether the last count slowed the instance down to less than half of what credits buy. It stays true until the instance may
// use everything again.
func (p *TokenBucket) Slow() bool { return p.slow }

// Count takes what was used since the last count from the balance. used is the amount since any fixed moment: processor seconds, bits or
// operations. It returns how much the instance may use per second during the next period: all there is, or as much as spends the whole
// balance by the end of the period, which is at least the baseline. If a clock or a counter goes back, nothing is counted.
func (p *TokenBucket) Count(now time.Time, used float64, period time.Duration) (allowed float64) {
	seconds := now.Sub(p.at).Seconds()
	if p.counted && seconds > 0 && used >= p.used {
		p.balance = p.bucket.After(p.balance, (used-p.used)/seconds, seconds)
	}
	p.at, p.used, p.counted = now, used, true
	allowed = math.Min(p.bucket.Burst, p.bucket.Lasting(p.balance, period.Seconds()))
	half := (p.bucket.Baseline + p.bucket.Burst) / 2
	p.slow = allowed < half || p.slow && allowed < p.bucket.Burst
	return allowed
}
