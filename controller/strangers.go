package controller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// UnknownSender is a sender of readings about an instance that the service does not have. Most likely it is an agent with a wrong instance
// name.
type UnknownSender struct {
	Instance string       `json:"instance"`
	Source   quell.Source `json:"source"`
	Sender   string       `json:"sender"`
	Since    time.Time    `json:"since"`
	Readings int          `json:"readings"`
}

// strangers are senders whose instance has not been in any snapshot since they began to report.
type strangers struct {
	seen map[strangerKey]*stranger
}

type strangerKey struct {
	instance string
	sender   sender
}

type stranger struct {
	first, last time.Time
	readings    int
	told        bool
}

// mostStrange limits the number of senders that are tracked. Further ones are not shown.
const mostStrange = 100

// lasting is the number of periods for which a sender must report before it is shown, so that the last readings of a removed instance are
// not shown.
const lasting = 3

func (s *strangers) note(r *quell.Reading, at time.Time) {
	key := strangerKey{r.Instance, sender{r.Source, r.Sender}}
	found := s.seen[key]
	if found == nil {
		if len(s.seen) >= mostStrange {
			return
		}
		if s.seen == nil {
			s.seen = map[strangerKey]*stranger{}
		}
		found = &stranger{first: at}
		s.seen[key] = found
	}
	found.last = at
	found.readings++
}

// forget removes senders that no longer report, and senders whose instance now exists.
func (s *strangers) forget(now time.Time, period time.Duration, alive map[string]bool) {
	maps.DeleteFunc(s.seen, func(key strangerKey, x *stranger) bool {
		return alive[key.instance] || now.Sub(x.last) > lasting*period
	})
}

// list returns, in order, the senders that have reported for long enough.
func (s *strangers) list(period time.Duration) []UnknownSender {
	var all []UnknownSender
	for key, x := range s.seen {
		if x.last.Sub(x.first) >= (lasting-1)*period {
			all = append(all, UnknownSender{Instance: key.instance, Source: key.sender.source, Sender: key.sender.name, Since: x.first,
				Readings: x.readings})
		}
	}
	slices.SortFunc(all, func(a, b UnknownSender) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Sender, b.Sender))
	})
	return all
}

// tellStrangers logs which senders report for unknown instances, once for each.
func (g *gather) tellStrangers() {
	for _, u := range g.strange.list(g.service.Sampling) {
		x := g.strange.seen[strangerKey{u.Instance, sender{u.Source, u.Sender}}]
		if x.told {
			continue
		}
		x.told = true
		g.log.Warn("readings come for an instance that the service does not have: correct the name there, or add the instance",
			"instance", u.Instance, "source", u.Source, "sender", u.Sender, "since", u.Since)
	}
}

// unknown returns which senders report for unknown instances.
func (g *gather) unknown() []UnknownSender {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.strange.list(g.service.Sampling)
}
