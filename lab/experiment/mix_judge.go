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

// shares judges the looks at HAProxy. Seconds in which an instance gets no requests are not judged, nor is the time of three sampling
// periods after it has come back, in which its weight may rise step by step.
func (r *MixRecord) shares() []MixShare {
	settling := time.Duration(3 * r.SamplingS * float64(time.Second))
	found, since, run := map[string]*MixShare{}, map[string]time.Time{}, map[string]int{}
	for _, look := range r.Looks {
		equal := equalWeight(look.Weights)
		maps.DeleteFunc(since, func(id string, _ time.Time) bool { return look.Weights[id] == 0 })
		for id, w := range look.Weights {
			if w == 0 {
				continue
			}
			if _, known := since[id]; !known {
				since[id] = look.At
			}
			if look.At.Sub(since[id]) < settling {
				continue
			}
			if found[id] == nil {
				found[id] = &MixShare{Instance: id, Cuts: r.Cuts[id], Lame: id == mixLameID}
			}
			found[id].add(float64(w)/equal, run)
		}
	}
	var shares []MixShare
	for _, id := range slices.Sorted(maps.Keys(found)) {
		shares = append(shares, *found[id])
	}
	return shares
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
func (s *MixShare) add(part float64, run map[string]int) {
	s.Mean = (s.Mean*float64(s.Judged) + part) / float64(s.Judged+1)
	s.Judged++
	if part >= 1-mixTolerance {
		run[s.Instance] = 0
		return
	}
	s.Below++
	run[s.Instance]++
	s.Longest = max(s.Longest, run[s.Instance])
}

// Wrong lists what must not be: an instance without a fault that lost more than a tenth of its share over the run, and one that was stopped
// while somebody else, or itself, had taken it out.
func (r *MixRecord) Wrong() (wrong []string) {
	for _, s := range r.Shares {
		if !s.Lame && s.Mean < 1-mixTolerance {
			wrong = append(wrong, fmt.Sprintf("%s has no fault, and got %.2f of an equal share", s.Instance, s.Mean))
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
