package tell

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
)

// Noise is an instance that something else than its requests slows, in words.
type Noise struct {
	Instance string
	What     string    // what slows it, and how much
	Since    time.Time // when it was first noticed without a gap; zero: not known
	Once     bool      // only the last decision noticed it: it may be chance
	Costs    string    // its response time and the others'; "": not known
	Done     string    // what Quell does about it
	Do       string    // what a person can do
	share    float64   // part of the resource that others use; 0: not known
}

// noisy are the codes of reasons that make an instance noisy, the surest first.
var noisy = []string{"interference", "own_work", "outlier"}

// Noisy returns the instances that neighbours, or work of their own, slow. Those that were seen more than once come
// first, and then those of whose resource the most is used.
func (w Words) Noisy() (all []Noise) {
	reasons := map[string]quell.Reason{}
	for _, r := range w.why {
		if before, known := reasons[r.Instance]; slices.Contains(noisy, r.Code) && r.Instance != "" &&
			(!known || slices.Index(noisy, r.Code) < slices.Index(noisy, before.Code)) {
			reasons[r.Instance] = r
		}
	}
	times := w.times()
	for i := range w.Instances {
		row := &w.Instances[i]
		r, found := reasons[row.ID]
		if !found || row.Stale {
			continue
		}
		n := Noise{Instance: row.ID, Costs: compared(row, times), Done: w.done(row)}
		if r.Since != nil {
			n.Since, n.Once = *r.Since, !r.Since.Before(w.At)
		}
		resource, origin := "", ""
		switch r.Code {
		case "own_work":
			n.What, n.Do = r.Text, "It is the machine's own work: stop it, move it, or run it at another time."
		case "interference":
			resource, origin, n.share = felt(row)
			n.What = neighbour(resource, n.share, r.Text)
			n.Do = remedy(resource, origin)
		default:
			n.What, n.Do = r.Text, "Look at what else runs on this machine or on its host, and at its errors."
		}
		if row.Held == nil {
			n.Do += " Meanwhile quell drain " + row.ID + " takes it out."
		}
		all = append(all, n)
	}
	slices.SortStableFunc(all, func(a, b Noise) int {
		if a.Once != b.Once {
			return map[bool]int{false: -1, true: 1}[a.Once]
		}
		return cmp.Compare(b.share, a.share)
	})
	return all
}

// felt returns the resource on which neighbours are felt most, the cause of waiting if it is the processors, and the part of the resource
// that they use, 0 if that is not known. Without any severity or use, the resource is "".
func felt(row *controller.InstanceStatus) (resource, origin string, share float64) {
	severest := 0.0
	for _, r := range slices.Sorted(maps.Keys(row.Interference)) {
		switch x := row.Interference[r]; {
		case x.Hidden != nil && *x.Hidden > share:
			resource, origin, share = string(r), x.Origin, *x.Hidden
		case share == 0 && x.Severity != nil && *x.Severity > severest:
			resource, origin, severest = string(r), x.Origin, *x.Severity
		}
	}
	return resource, origin, share
}

// neighbour says what neighbours use; why is what the policy says, for those of which only that is known.
func neighbour(resource string, share float64, why string) string {
	switch {
	case resource == "":
		return "neighbours slow it: " + why
	case share == 0:
		return "neighbours slow its " + words(resource) + "; how much they use is not known yet"
	}
	return fmt.Sprintf("neighbours use about %.0f%% of its %s", 100*share, words(resource))
}

// words names a resource to a person.
func words(resource string) string {
	switch quell.Resource(resource) {
	case quell.CPU:
		return "processors"
	case quell.Memory:
		return "memory bandwidth"
	}
	return resource
}

// remedy says what a person can do about neighbours.
func remedy(resource, origin string) string {
	switch {
	case origin == quell.NeighboursCause:
		return "Other programs of the same machine run instead of it: top on that machine names them. Stop, move or limit them."
	case origin == quell.HypervisorCause:
		return "Other virtual machines of the same host get its processors. If it lasts, start another machine in its place."
	case resource == "":
		return "Look at what else runs on this machine and on its host. If it lasts, start another machine in its place."
	}
	return fmt.Sprintf("Look at what else uses the %s of its host. If that is out of your reach and lasts, start another machine "+
		"in its place.", words(resource))
}

// times are the response times of all instances, sorted.
func (w Words) times() (all []float64) {
	for i := range w.Instances {
		if ms := w.Instances[i].LatencyMS; ms != nil {
			all = append(all, *ms)
		}
	}
	slices.Sort(all)
	return all
}

// compared says how much slower than the others an instance is, from all sorted response times; "" if that is not known.
func compared(row *controller.InstanceStatus, all []float64) string {
	if row.LatencyMS == nil {
		return ""
	}
	if len(all) < 2 {
		return "Its response time is " + MS(*row.LatencyMS) + "."
	}
	own, _ := slices.BinarySearch(all, *row.LatencyMS)
	middle := (len(all) - 1) / 2 // among the others
	if own <= middle {
		middle++
	}
	return fmt.Sprintf("Its response time is %s; the others' median is %s.", MS(*row.LatencyMS), MS(all[middle]))
}

// done says what Quell does about an instance.
func (w Words) done(row *controller.InstanceStatus) string {
	set, byHand := w.Overrides[row.ID]
	switch {
	case row.Held != nil:
		return "It gets no new requests: " + w.Held(row) + "."
	case byHand:
		return fmt.Sprintf("Its weight is set by hand to %.1f%%.", 100*set) + got(row)
	case row.Now == nil || row.Would == nil:
		return ""
	}
	now, would := *row.Now, *row.Would
	const same = 0.05 // of a weight
	switch equal := w.equal(); {
	case w.idle() && would < now*(1-same):
		return fmt.Sprintf("Quell changes nothing at present; it would lower its weight from %.1f%% to %.1f%%.", 100*now, 100*would) + got(row)
	case w.idle():
		return "Quell changes nothing at present."
	case row.Cut != nil:
		return fmt.Sprintf("A fast policy leaves it %.0f%% of its weight.", 100**row.Cut) + got(row)
	case would < equal*(1-same):
		return fmt.Sprintf("Quell sets its weight to %.1f%%; an equal one is %.1f%%.", 100*would, 100*equal) + got(row)
	}
	return fmt.Sprintf("Quell leaves its weight at %.1f%%: the objective holds there.", 100*would)
}

// equal is the weight of each instance if all have the same.
func (w Words) equal() float64 {
	sharing := 0
	for i := range w.Instances {
		if w.Instances[i].Now != nil {
			sharing++
		}
	}
	return 1 / float64(max(1, sharing))
}

// got says which part of the requests an instance got; "" if that is not known.
func got(row *controller.InstanceStatus) string {
	if row.Share == nil {
		return ""
	}
	return fmt.Sprintf(" It got %.1f%% of the requests.", 100**row.Share)
}
