// Package credit computes the credits of burstable instances: how balances of processor time, disk operations and network traffic
// change, when they run out, and what is known of a balance that a provider does not show. types.yaml lists the instance types of
// several providers. All functions are pure, except those that read a file.
package credit

import "math"

// Bucket is one kind of credits of an instance: a token bucket (MRburst, section 3.2.1). Uses are amounts of the resource per second. Every
// use in a bucket has the same unit: processors, bit/s, operations per second, or fractions of the resource.
type Bucket struct {
	Baseline float64 `json:"baseline"`         // the use that spends credits as fast as they are earned
	Burst    float64 `json:"burst,omitempty"`  // largest use while there are credits; 0: not known
	Most     float64 `json:"most,omitempty"`   // if the burst is not known: a use that the resource cannot exceed; 0: not known either
	PerUse   float64 `json:"per_use"`          // credits that one unit of use spends in a second: R_c
	Cap      float64 `json:"cap,omitempty"`    // largest balance; 0: not known
	Launch   float64 `json:"launch,omitempty"` // balance of a new instance
}

// Sound returns whether the bucket describes credits: its amounts are finite, earning and spending are above 0, and the baseline is not
// above the burst.
func (b Bucket) Sound() bool {
	for _, v := range []float64{b.Baseline, b.Burst, b.Most, b.PerUse, b.Cap, b.Launch} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return false
		}
	}
	return b.Baseline > 0 && b.PerUse > 0 && (b.Burst == 0 || b.Baseline <= b.Burst)
}

// Limits returns whether the bucket ever runs empty: its baseline is below its burst.
func (b Bucket) Limits() bool { return b.Burst == 0 || b.Baseline < b.Burst }

// Per returns the bucket with uses as fractions of an amount of the resource.
func (b Bucket) Per(whole float64) Bucket {
	b.Baseline, b.Burst, b.Most, b.PerUse = b.Baseline/whole, b.Burst/whole, b.Most/whole, b.PerUse*whole
	return b
}

// Earned returns the credits that are earned in a second: R_e of Eq. 2.
func (b Bucket) Earned() float64 { return b.Baseline * b.PerUse }

// Drain returns the credits that a use takes from the balance in a second. It is negative if the use is below the baseline.
func (b Bucket) Drain(use float64) float64 { return b.PerUse * (use - b.Baseline) }

// After returns the balance after a time, in seconds, at a constant use. A balance does not fall below 0 or grow beyond the cap. Launch
// credits beyond the cap stay until they are spent.
func (b Bucket) After(balance, use, seconds float64) float64 {
	next := math.Max(0, balance-b.Drain(use)*seconds)
	if b.Cap > 0 && next > balance {
		return math.Min(next, math.Max(b.Cap, balance))
	}
	return next
}

// Depletion returns after how many seconds at a constant use a balance is spent: T_d = C / (R_c M - R_e), Eq. 2, where M is the measured
// use and not the limit of the use. ok is false if it never is.
func (b Bucket) Depletion(balance, use float64) (seconds float64, ok bool) {
	drain := b.Drain(use)
	if drain <= 0 {
		return 0, false
	}
	return balance / drain, true
}

// Lasting returns the use at which a balance lasts this many seconds. It is the inverse of Eq. 2: M = (C / T_d + R_e) / R_c.
func (b Bucket) Lasting(balance, seconds float64) (use float64) {
	return b.Baseline + balance/(b.PerUse*seconds)
}
