package controller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// UnknownSender reports for an instance that the service does not have: most likely an agent with a wrong name.
type UnknownSender struct {
	Instance string       `json:"instance"`
	Source   quell.Source `json:"source"`
	Sender   string       `json:"sender"`
	Since    time.Time    `json:"since"`
	Readings int          `json:"readings"`
}

// strangers are senders whose instance was in no snapshot while they reported.
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

// mostStrange limits the senders that are tracked. Others are not shown.
const mostStrange = 100

// lasting is for how many periods a sender must report before it is shown, so that the last readings of a removed
// instance do not count.
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

// forget removes senders that are silent and those whose instance now exists.
func (s *strangers) forget(now time.Time, period time.Duration, alive map[string]bool) {
	maps.DeleteFunc(s.seen, func(key strangerKey, x *stranger) bool {
		return alive[key.instance] || now.Sub(x.last) > lasting*period
	})
}

// list returns senders that have reported for long enough, in order.
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

// tellStrangers logs, once each, which senders report for unknown instances.
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

// unknown lists which senders report for unknown instances.
func (g *gather) unknown() []UnknownSender {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.strange.list(g.service.Sampling)
}
