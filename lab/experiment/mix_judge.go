package experiment

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// MixShare is what happened to an instance's share while HAProxy sent it new requests.
type MixShare struct {
	Instance string  `json:"instance"`
	Lame     bool    `json:"lame,omitempty"` // it refuses connections for moments: this is a fault
	Judged   int     `json:"judged"`         // seconds that were judged
	Mean     float64 `json:"mean"`           // its share over the mean of those without a fault, on average
	Below    int     `json:"below"`          // seconds in which it had less than nine tenths of an equal share
	Longest  int     `json:"longest"`        // the most of them in a row
	Cuts     int     `json:"cuts"`           // plans that held it back as an outlier
}

// mixTolerance is the part of an equal share that an instance without a fault may lose.
const mixTolerance = 0.1

// mixSeen is what is known of an instance while the looks are judged.
type mixSeen struct {
	MixShare
	since time.Time // since when it gets requests; zero: it is out, and should be
	out   time.Time // when it was last seen out as it should be; zero: never since it was started
	row   int       // seconds below in a row
	// absent are seconds in which it got nothing, though nobody had taken it out. They count once it is known that it is not being stopped.
	absent int
}

// shares judges the looks at HAProxy. The time of three sampling periods after an instance has come back is not judged, because its weight
// may rise step by step then. Seconds in which it gets no requests are below, except while and shortly after something else takes it out,
// and before it is stopped.
func (r *MixRecord) shares() []MixShare {
	settling := time.Duration(3 * r.SamplingS * float64(time.Second))
	seen := map[string]*mixSeen{}
	var before time.Time
	for _, look := range r.Looks {
		for id, w := range look.Weights {
			if w > 0 && seen[id] == nil {
				seen[id] = &mixSeen{MixShare: MixShare{Instance: id, Cuts: r.Cuts[id], Lame: id == mixLameID}}
			}
		}
		equal := equalWeight(look.Weights)
		for id, s := range seen {
			if r.stopped(id, before, look.At) {
				s.since, s.out, s.absent, s.row = time.Time{}, time.Time{}, 0, 0
			}
			s.look(look.At, float64(look.Weights[id])/equal, r.taken(id, look.At, settling), settling)
		}
		before = look.At
	}
	var shares []MixShare
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		if seen[id].settle(); seen[id].Judged > 0 {
			shares = append(shares, seen[id].MixShare)
		}
	}
	return shares
}

// stopped tells whether the scaler stopped an instance between two looks.
func (r *MixRecord) stopped(id string, after, until time.Time) bool {
	return slices.ContainsFunc(r.Ends, func(e MixEnd) bool { return e.Instance == id && e.At.After(after) && !e.At.After(until) })
}

// taken tells whether an act keeps an instance out, or did until shortly before.
func (r *MixRecord) taken(id string, at time.Time, settling time.Duration) bool {
	return slices.ContainsFunc(r.Acts, func(a MixAct) bool {
		return a.Instance == id && a.Lost == "" && !at.Before(a.From) && !at.After(a.To.Add(settling))
	})
}

// look judges a second in which the instance had this part of an equal share.
func (s *mixSeen) look(at time.Time, part float64, taken bool, settling time.Duration) {
	switch {
	case part > 0:
		s.settle()
		if s.since.IsZero() {
			s.since = at
		}
	case taken:
		s.settle()
		s.since, s.out, s.row = time.Time{}, at, 0
		return
	case s.since.IsZero() && s.out.IsZero(): // it was stopped
		return
	case s.since.IsZero(): // it did not come back
		s.since = s.out
	}
	switch {
	case at.Sub(s.since) < settling:
	case part > 0:
		s.add(part)
	default:
		s.absent++
	}
}

// settle counts the seconds in which it got nothing.
func (s *mixSeen) settle() {
	for ; s.absent > 0; s.absent-- {
		s.add(0)
	}
}

var mixLameID = fmt.Sprintf("web-%d", mixLame)

// equalWeight is the mean weight of the instances without a fault that get requests.
func equalWeight(weights map[string]int) float64 {
	sum, n := 0, 0
	for id, w := range weights {
		if w > 0 && id != mixLameID {
			sum, n = sum+w, n+1
		}
	}
	return float64(sum) / float64(max(1, n))
}

// add adds a second with this part of an equal share.
func (s *mixSeen) add(part float64) {
	s.Mean = (s.Mean*float64(s.Judged) + part) / float64(s.Judged+1)
	s.Judged++
	if part >= 1-mixTolerance {
		s.row = 0
		return
	}
	s.Below++
	s.row++
	s.Longest = max(s.Longest, s.row)
}

// Wrong lists what must not be: an instance without a fault that lost more than a tenth of its share over the run, or for more than two
// sampling periods in a row, or that was held back as an outlier; and one that was stopped while somebody else, or itself, had taken it
// out.
func (r *MixRecord) Wrong() (wrong []string) {
	for _, s := range r.Shares {
		if !s.Lame && s.Mean < 1-mixTolerance {
			wrong = append(wrong, fmt.Sprintf("%s has no fault, and got %.2f of an equal share", s.Instance, s.Mean))
		}
		if !s.Lame && float64(s.Longest) > 2*r.SamplingS {
			wrong = append(wrong, fmt.Sprintf("%s has no fault, and had less than nine tenths of an equal share for %d s in a row",
				s.Instance, s.Longest))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.Cuts)) {
		if id != mixLameID && r.Cuts[id] > 0 {
			wrong = append(wrong, fmt.Sprintf("%s has no fault, and %d plans held it back as an outlier", id, r.Cuts[id]))
		}
	}
	for _, e := range r.Ends {
		if e.Held != "" && !e.Anyway {
			wrong = append(wrong, fmt.Sprintf("%s was stopped during: %s", e.Instance, e.Held))
		}
	}
	return wrong
}

// excuse notes which of the stopped instances got no requests before the act that took them out, either. HAProxy does not tell a person's
// weight of 0 from the one that a server was added with.
func (r *MixRecord) excuse() {
	for i := range r.Ends {
		e := &r.Ends[i]
		for _, a := range r.Acts {
			if a.Instance == e.Instance && a.Act == e.Held && !e.At.Before(a.From) && !e.At.After(a.To) {
				e.Anyway = r.weightBefore(a.From, e.Instance) == 0
			}
		}
	}
}

// weightBefore returns an instance's weight in the last look before a time.
func (r *MixRecord) weightBefore(at time.Time, id string) (weight int) {
	for _, look := range r.Looks {
		if look.At.After(at) {
			break
		}
		weight = look.Weights[id]
	}
	return weight
}

// Happened returns the acts that took place, as HAProxy shows.
func (r *MixRecord) Happened() (acts []MixAct) {
	for _, a := range r.Acts {
		if a.Lost == "" && a.Seen {
			acts = append(acts, a)
		}
	}
	return acts
}

// named counts the acts whose instance an event of the journal names as held, with the words for that kind of act.
func (r *MixRecord) named() (n int) {
	events := slices.Clone(r.Events)
	for _, a := range r.Happened() {
		i := slices.IndexFunc(events, func(text string) bool {
			return strings.HasPrefix(text, a.Instance+" ") && strings.Contains(text, mixWords[a.Act])
		})
		if i >= 0 {
			events, n = slices.Delete(events, i, i+1), n+1
		}
	}
	return n
}

// mixWords are what the journal says of each kind of act.
var mixWords = map[string]string{
	"maintenance of the tracked server": "which is in maintenance",
	"drain of the tracked server":       "which drains",
	"soft stop":                         "haproxy: it took itself out",
	"weight 0 by hand":                  "its weight is 0",
	"soft stop of the tracked server":   "which took itself out",
	"drain by hand":                     "was taken out of rotation by hand",
}
