package policy

import (
	"cmp"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/setting"
)

// LimitedByCredits names a limiter: the instance's credits would not last.
const LimitedByCredits = "credits"

// CreditSettings say how a policy considers the credits of burstable instances.
//
// A balance comes from the provider (Observation.Credits). If it shows none but Type is set, the balance is integrated from the measured
// use, and found to be empty when the instance is slow at its baseline. How fast credits are earned and spent comes from the table of
// types, if Type or the scaler names the type; else it is learned from how shown balances change with use.
type CreditSettings struct {
	Last time.Duration // capacity is at most the use at which the credits last this long; 0: credits are ignored
	Type string        // instance type of all instances; "": as the scaler reports
	Own  *credit.Table // types of the user's own; nil: none

	// Unlimited says that instances are not slowed down without credits, but cost money. Then credits limit no capacity. Shares are by credits
	// all the same: use beyond the credits is sold as soon as one instance has none, while others have some. Nil: for processors it is so if
	// an instance was seen to use more than its baseline while the provider shows no credits; if nothing was seen, as the table of types says.
	Unlimited *bool
}

// Refuse reports a type that no table has. at and types are the places of its name and of the user's own table.
func (s *CreditSettings) Refuse(d *setting.Decoder, at, types, name string) {
	if name == "" || !d.Sound(at, types) {
		return
	}
	if _, err := s.table().Find(name); err != nil {
		d.Refuse(at, "", "%v", err)
	}
}

func (s *CreditSettings) table() *credit.Table {
	if s.Own == nil {
		return credit.Shipped()
	}
	return credit.Shipped().With(s.Own)
}

// TypeOf returns a type of the user's own or of Quell's table.
func (s *CreditSettings) TypeOf(name string) (entry credit.Type, ok bool) {
	if name == "" {
		return entry, false
	}
	if s.Own != nil {
		if entry, ok = s.Own.Type(name); ok {
			return entry, true
		}
	}
	return credit.Shipped().Type(name)
}

// TypeOf returns what is known of the type of instances whose policy considers credits: the type in its settings, or else the listed one.
func (t Table) TypeOf(p quell.Policy, listed string) (credit.Type, bool) {
	var s CreditSettings
	if r, settings, err := t.find(p); err == nil {
		s = r.credits(settings)
	}
	return s.TypeOf(cmp.Or(s.Type, listed))
}

// Unslowed returns whether an instance's processors run at full speed without credits, too, because more are sold. If the settings do not
// say so, it is what was seen (sold; nil if nothing was), and else what the table of types says.
func (s *CreditSettings) Unslowed(instanceType string, sold *bool) bool {
	switch {
	case s.Unlimited != nil:
		return *s.Unlimited
	case sold != nil:
		return *sold
	}
	entry, ok := s.TypeOf(cmp.Or(s.Type, instanceType))
	return ok && entry.CPU != nil && entry.CPU.Unlimited
}

// BucketOf returns the published credits of an instance, with uses as fractions of the resource. ok is false if its type is not known, or
// too little is published of it.
func (s *CreditSettings) BucketOf(instanceType string, r quell.Resource) (b credit.Bucket, ok bool) {
	if s.Type != "" {
		instanceType = s.Type
	}
	entry, ok := s.TypeOf(instanceType)
	if !ok {
		return b, false
	}
	b = entry.Buckets()[r]
	if b.Burst == 0 || !b.Limits() {
		return credit.Bucket{}, false
	}
	return b.Per(b.Burst), true
}

// CreditTracks is what is remembered of an instance's credits.
type CreditTracks map[quell.Resource]credit.Track

// TokenBucket is one kind of credits of an instance in a decision.
type TokenBucket struct {
	Resource quell.Resource
	Bucket   credit.Bucket
	Track    credit.Track
	Rate     float64 // load of the instance for each unit of use
	Most     float64 // largest balance: the cap or, if it is not known, the largest that was shown
	Fresh    float64 // balance of a new instance; 0: none, or not known
}

// MaxForeseen is the longest time of which a plan says how long credits last.
const MaxForeseen = 365 * 24 * time.Hour

// BalanceOf is what a plan says of a balance.
func BalanceOf(f credit.Forecast, baseline float64) quell.Balance {
	return quell.Balance{
		Left: f.Left.Middle(), Low: f.Left.Low, High: f.Left.High, Baseline: baseline,
		DepletedS: foreseen(f.Depleted), SoonestS: foreseen(f.Soonest), LatestS: foreseen(f.Latest),
	}
}

// foreseen returns a time in seconds, or nil if it is too far away to be worth a forecast.
func foreseen(seconds *float64) *float64 {
	if seconds == nil || *seconds > MaxForeseen.Seconds() {
		return nil
	}
	return seconds
}
