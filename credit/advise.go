package credit

import (
	"cmp"
	"math"
	"slices"

	"github.com/quellhq/quell"
)

// Advice says what a rented group must be able to do.
type Advice struct {
	Steps       []Step  // the demand, which repeats itself
	Seconds     float64 // for how long it repeats
	Utilization float64 // up to this utilisation of its processors an instance holds the objective, while it has credits
	Miss        float64 // part of the time in which the objective may be missed
	Most        int     // instances
	Full        bool    // instances begin with full balances instead of launch credits
}

// Offer is an instance type that can be rented, in one mode.
type Offer struct {
	Type
	UnlimitedMode bool // without credits it is not slowed down, and what it uses beyond them is billed
}

// Offers lists the types of a table that have a price, burstable ones in each mode. Types whose largest balance is not known are left out.
// keep selects types by name.
func (t *Table) Offers(keep func(name string) bool) (list []Offer) {
	for _, name := range t.Names() {
		entry := t.types[name]
		if entry.Price == 0 || entry.VCPUs == 0 || !keep(name) {
			continue
		}
		c := entry.CPU
		if c == nil || c.Cap != nil {
			list = append(list, Offer{Type: entry})
		}
		if c != nil && c.Cap != nil && c.Surplus > 0 {
			list = append(list, Offer{entry, true})
		}
	}
	return list
}

// Mode is the offer's mode as a word.
func (o Offer) Mode() string {
	switch {
	case o.CPU == nil:
		return "not burstable"
	case o.UnlimitedMode:
		return "unlimited"
	}
	return "standard"
}

// Rented is what a number of identical instances do under a demand that they share equally.
type Rented struct {
	Offer
	Number  int
	Hourly  float64  // dollars for an hour, all together
	Surplus float64  // the part of it that is for use beyond the credits
	Missed  float64  // part of the time in which the objective is missed
	Busiest float64  // highest utilisation of an instance
	Least   *Balance // the smallest balance of an instance, after the first day if it runs longer; nil: not burstable
	Course  []Balance
}

// Balance is the credits of an instance at a time. In unlimited mode it is below 0 if credits were used in advance.
type Balance struct{ Seconds, Credits float64 }

const (
	coursePoints = 400          // at most, of a course
	firstDay     = 24 * 60 * 60 // seconds in which the first balance may still have an effect
)

// Rent computes what a number of instances do. A standard instance that has no credits misses the objective while it needs more than its
// baseline. What it could not do then is not done later.
func (a Advice) Rent(o Offer, number int) Rented {
	r := Rented{Offer: o, Number: number}
	if len(a.Steps) == 0 {
		return r
	}
	account := newAccount(o, a.Full)
	every := math.Max(1, a.Seconds/coursePoints)
	for now, missed := 0.0, 0.0; now < a.Seconds; {
		for _, s := range a.Steps {
			seconds := math.Min(s.Seconds, a.Seconds-now)
			if seconds <= 0 {
				break
			}
			use := s.Use / float64(number)
			r.Busiest = math.Max(r.Busiest, use/o.VCPUs)
			slow := account.spend(math.Min(use, o.VCPUs), seconds)
			if use > a.Utilization*o.VCPUs {
				slow = seconds
			}
			missed += slow
			now += seconds
			r.note(account, now, every)
		}
		r.Missed = missed / now
	}
	r.Surplus = float64(number) * account.bill() / (a.Seconds / 3600)
	r.Hourly = float64(number)*o.Price + r.Surplus
	return r
}

// note adds a balance to the course, unless the last one is recent.
func (r *Rented) note(a *account, now, every float64) {
	if a.bucket == nil {
		return
	}
	b := Balance{now, a.balance}
	if n := len(r.Course); n == 0 || now-r.Course[n-1].Seconds >= every {
		r.Course = append(r.Course, b)
	}
	if r.Least == nil || b.Credits < r.Least.Credits || r.Least.Seconds <= firstDay && now > firstDay {
		r.Least = &b
	}
}

// account is the credits of one instance.
type account struct {
	bucket  *Bucket // nil: not burstable
	price   float64 // of a credit; 0: none are sold
	balance float64 // below 0: used in advance
	charged float64 // credits that were used in advance, and are too many to be repaid
}

func newAccount(o Offer, full bool) *account {
	if o.CPU == nil {
		return &account{}
	}
	b := o.Buckets()[quell.CPU]
	a := &account{bucket: &b, balance: b.Launch}
	if full {
		a.balance = math.Max(b.Cap, b.Launch)
	}
	if o.UnlimitedMode {
		a.price = o.CPU.Surplus / 60
		if !full {
			a.balance = 0 // launch credits exist in standard mode only
		}
	}
	return a
}

// spend uses processors for a time, and returns for how long the instance is too slow for that.
func (a *account) spend(use, seconds float64) (slow float64) {
	switch {
	case a.bucket == nil:
		return 0
	case a.price > 0:
		a.advance(use, seconds)
		return 0
	}
	if until, ok := a.bucket.Depletion(a.balance, use); ok && until < seconds {
		slow = seconds - until
	}
	a.balance = a.bucket.After(a.balance, use, seconds)
	return slow
}

// advance uses credits that are earned later, up to a full balance. More than that is billed (AWS, unlimited mode).
func (a *account) advance(use, seconds float64) {
	next := a.balance - a.bucket.Drain(use)*seconds
	if next > a.balance {
		next = math.Min(next, math.Max(a.bucket.Cap, a.balance))
	}
	a.balance = next
	if owed := -a.balance - a.bucket.Cap; owed > 0 {
		a.charged += owed
		a.balance += owed
	}
}

// bill is what is owed in dollars if the instance ends now.
func (a *account) bill() float64 { return a.price * (a.charged + math.Max(0, -a.balance)) }

// Cheapest returns the number of instances of an offer that holds the objective for the least money. ok is false if not even the largest
// number holds it.
func (a Advice) Cheapest(o Offer) (best Rented, ok bool) {
	low, high := 1, a.Most
	if a.Rent(o, high).Missed > a.Miss {
		return Rented{}, false
	}
	for low < high { // the more instances, the less is missed
		if middle := (low + high) / 2; a.Rent(o, middle).Missed <= a.Miss {
			high = middle
		} else {
			low = middle + 1
		}
	}
	best = a.Rent(o, low)
	for n := low + 1; best.Surplus > 0 && n <= a.Most && float64(n)*o.Price < best.Hourly; n++ {
		if more := a.Rent(o, n); more.Hourly < best.Hourly {
			best = more
		}
	}
	return best, true
}

// Rank returns the cheapest number of each offer, the cheapest first. Offers that cannot hold the objective are left out.
func (a Advice) Rank(offers []Offer) (list []Rented) {
	for _, o := range offers {
		if best, ok := a.Cheapest(o); ok {
			list = append(list, best)
		}
	}
	slices.SortStableFunc(list, func(a, b Rented) int { return cmp.Or(cmp.Compare(a.Hourly, b.Hourly), cmp.Compare(a.Number, b.Number)) })
	return list
}
