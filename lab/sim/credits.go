package sim

import (
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
)

// A burstable instance: as long as it has credits, its resource works at full speed; without credits, at the baseline. On a processor every
// core is slowed down equally. Neighbours' work spends no credits.

// bucket is the credits of one instance.
type bucket struct {
	bucket  credit.Bucket // uses are in cores, or in whole resources
	balance float64       // below 0: used in advance; it is repaid before the limit ends or, where it is sold, before new credits are saved
	charged float64       // credits that were used in advance, and are too many to be repaid
	used    float64       // core-seconds that service and probes had used at the last count
	limited bool
	seen    *float64 // the balance that the provider will show next; nil: none yet
	shown   *float64 // the balance that it shows; nil: none yet
}

// counting is the period at which credits are counted, in seconds.
const counting = 1.0

// telling is the period of Options.Credits.
const telling = time.Minute

// newTokenBucket returns the credits of an instance that starts, or nil if the scenario has none.
func (s *simulation) newTokenBucket(in *instance) *bucket {
	c := s.Scenario.Instances.Credits
	if c == nil {
		return nil
	}
	whole := s.servers(in, kindOf(c.Resource))
	p := &bucket{balance: c.Launch, bucket: credit.Bucket{
		Baseline: c.Baseline * whole, Burst: whole, PerUse: 1.0 / 60, Cap: c.Cap, Launch: c.Launch,
	}}
	if in.number < len(c.Balance) {
		p.balance = c.Balance[in.number]
	}
	p.used = s.usedBy(in, kindOf(c.Resource))
	return p
}

// returnBucket ends the limit of an instance's machine.
func (s *simulation) returnBucket(in *instance) {
	if in.bucket != nil && in.bucket.limited {
		s.w.limit(in.host, kindOf(s.Scenario.Instances.Credits.Resource), 1)
		in.bucket.limited = false
	}
}

// servers is how many cores an instance has; for other resources 1.
func (s *simulation) servers(in *instance, k kind) float64 {
	return s.w.stations[s.w.hosts[in.host].stations[k]].servers
}

// usedBy is what service and probes have used on an instance's machine so far, in core-seconds.
func (s *simulation) usedBy(in *instance, k kind) float64 {
	return (s.w.peek(in.host, k, ownService) + s.w.peek(in.host, k, ownProbe)) * s.servers(in, k)
}

// scheduleCredits puts the counting of credits on the agenda, if instances have any.
func (s *simulation) scheduleCredits() {
	c := s.Scenario.Instances.Credits
	if c == nil {
		return
	}
	every := func(seconds float64, do func()) {
		var again func()
		again = func() {
			s.w.agenda.add(s.w.now+seconds, again)
			do()
		}
		s.w.agenda.add(seconds, again)
	}
	every(counting, func() { s.countCredits(kindOf(c.Resource)) })
	if c.Shown > 0 {
		every(c.Shown.Seconds()/2, s.showCredits)
	}
	if s.Options.Credits != nil {
		every(telling.Seconds(), func() {
			if at := s.w.now - s.zero; at >= 0 && s.w.now <= s.end {
				s.Options.Credits(duration(at), s.balances())
			}
		})
	}
}

// countCredits takes what was used since the last count from the balances, and limits instances without credits.
func (s *simulation) countCredits(k kind) {
	for _, in := range s.members {
		p := in.bucket
		if in.state == quell.Failed {
			continue
		}
		used := s.usedBy(in, k)
		if next := p.balance - p.bucket.Drain((used-p.used)/counting)*counting; next < 0 {
			p.balance = next
		} else {
			p.balance = p.bucket.After(p.balance, (used-p.used)/counting, counting)
		}
		p.used = used
		if s.Scenario.Instances.Credits.Surplus > 0 {
			p.charge()
			continue
		}
		if empty := p.balance <= 0; empty != p.limited {
			p.limited = empty
			share := 1.0
			if empty {
				share = p.bucket.Baseline / p.bucket.Burst
			}
			s.w.limit(in.host, k, share)
		}
	}
}

// charge sells what was used in advance beyond a full balance, as AWS does in unlimited mode. The rest may still be repaid by what is
// earned.
func (p *bucket) charge() {
	if owed := -p.balance - p.bucket.Cap; owed > 0 {
		p.charged += owed
		p.balance += owed
	}
}

// surplus is what use beyond the credits costs, in dollars, if all instances end now; nil if it is not sold.
func (s *simulation) surplus() *float64 {
	c := s.Scenario.Instances.Credits
	if c == nil || c.Surplus == 0 {
		return nil
	}
	credits := 0.0
	for _, in := range s.instances {
		credits += in.bucket.charged + max(0, -in.bucket.balance)
	}
	dollars := credits / 60 * c.Surplus
	return &dollars
}

// showCredits is called twice in each period in which the provider renews what it shows. It shows the balances as they were half a period
// ago, as providers do.
func (s *simulation) showCredits() {
	show := s.showing
	s.showing = !show
	for _, in := range s.members {
		if p := in.bucket; show {
			p.shown = p.seen
		} else {
			now := max(0, p.balance)
			p.seen = &now
		}
	}
}

// balances are the credits of the running instances by host.
func (s *simulation) balances() map[string]float64 {
	balances := make(map[string]float64, len(s.members))
	for _, in := range s.members {
		if in.state != quell.Failed {
			balances[s.Scenario.Hosts[in.host].ID] = max(0, in.bucket.balance)
		}
	}
	return balances
}
