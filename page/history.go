package page

import (
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// Limits of what is kept. With all of them reached, a history needs about 10 MB.
const (
	mostPoints = 2048 // if more come, older ones are merged in pairs
	keptFor    = 24 * time.Hour
	mostShaded = 48  // instances with interference in one point
	mostMarks  = 500 // decisions and events
	leastShade = 0.02
)

// Point is what is drawn of one period, or of several if they were merged. A value that was not measured is nil.
type Point struct {
	At       int64    `json:"at"`                  // milliseconds since 1970; of the last period
	WorstMS  *float64 `json:"worst_ms,omitempty"`  // the objective's metric of the slowest instance
	Worst    string   `json:"worst,omitempty"`     // that instance
	MiddleMS *float64 `json:"middle_ms,omitempty"` // the median of the instances
	LimitMS  float64  `json:"limit_ms"`            // the objective
	Rate     *float64 `json:"rate,omitempty"`      // requests per second
	Load     *float64 `json:"load,omitempty"`      // summed utilisation
	Capacity *float64 `json:"capacity,omitempty"`  // summed capacity
	Machines int      `json:"machines"`            // that are not failed
	Shades   []Shade  `json:"shades,omitempty"`    // the strongest interference
	periods  int      // how many periods the point stands for
}

// Shade is the interference that one instance feels on one resource.
type Shade struct {
	Instance string         `json:"instance"`
	Resource quell.Resource `json:"resource"`
	// Share is the part of the resource that neighbours use, as estimated. If only the severity SF is known, it is SF/(1+SF): the part of the
	// probe's time that is due to neighbours.
	Share float64 `json:"share"`
}

// Mark is a decision that changed something, or an event.
type Mark struct {
	ID      uint64         `json:"id"` // increases
	At      int64          `json:"at"` // milliseconds since 1970
	Kind    MarkKind       `json:"kind"`
	Text    string         `json:"text"`
	Changes []string       `json:"changes,omitempty"`
	Reasons []quell.Reason `json:"reasons,omitempty"`
	Why     string         `json:"why,omitempty"` // why it was not carried out
}

// MarkKind says what a mark stands for.
type MarkKind string

// Kinds of marks.
const (
	Change MarkKind = "change" // a plan that was carried out
	Advice MarkKind = "advice" // a plan that was not carried out
	Event  MarkKind = "event"  // a command, a reload, and what else is no plan
)

// History holds the points of the last hours and the last marks. The newest points have full resolution; older ones are merged in pairs as
// often as needed. It is not safe for concurrent use.
type History struct {
	points []Point // in order of time
	marks  []Mark
	lastID uint64
}

// Add appends a point. A point that is not newer than the last one is dropped: the clock was set back, or the point came twice.
func (h *History) Add(p Point) {
	if n := len(h.points); n > 0 && p.At <= h.points[n-1].At {
		if h.points[n-1].At-p.At < keptFor.Milliseconds() {
			return
		}
		h.points = nil // the clock was wrong by a day or more
	}
	p.periods = max(p.periods, 1)
	p.Shades = strongest(p.Shades)
	h.points = append(h.points, p)
	oldest := p.At - keptFor.Milliseconds()
	h.points = slices.DeleteFunc(h.points, func(q Point) bool { return q.At < oldest })
	if len(h.points) > mostPoints {
		h.points = thin(h.points)
	}
}

// AddOlder puts points before those that are there, such as points that an earlier process recorded.
func (h *History) AddOlder(points []Point) {
	now := h.points
	h.points = nil
	for _, p := range points {
		if len(now) == 0 || p.At < now[0].At {
			h.Add(p)
		}
	}
	for _, p := range now {
		h.Add(p)
	}
}

// Mark appends a mark and gives it its number. Advice that repeats the last mark is dropped: then Mark returns false.
func (h *History) Mark(m Mark) bool {
	if n := len(h.marks); n > 0 && m.Kind == Advice && h.marks[n-1].Kind == Advice && slices.Equal(m.Changes, h.marks[n-1].Changes) {
		return false
	}
	h.lastID++
	m.ID = h.lastID
	h.marks = append(h.marks, m)
	if len(h.marks) > mostMarks {
		h.marks = slices.Delete(h.marks, 0, len(h.marks)-mostMarks)
	}
	return true
}

// AddOlderMarks puts marks before those that are there. All marks get new numbers.
func (h *History) AddOlderMarks(marks []Mark) {
	now := h.marks
	h.marks = nil
	for _, m := range slices.Concat(marks, now) {
		h.Mark(m)
	}
}

// Points returns the points after a time, in milliseconds. whole is true if points up to that time were merged or dropped, so that who has
// them should forget them: then all points are returned.
func (h *History) Points(after int64) (points []Point, whole bool) {
	i, found := slices.BinarySearchFunc(h.points, after, func(p Point, at int64) int {
		switch {
		case p.At < at:
			return -1
		case p.At > at:
			return 1
		}
		return 0
	})
	if after <= 0 || !found {
		return append([]Point{}, h.points...), true // never nil: browsers expect a list
	}
	return append([]Point{}, h.points[i+1:]...), false
}

// Marks returns the marks with numbers above id.
func (h *History) Marks(id uint64) []Mark {
	if id > h.lastID {
		id = 0 // of another process
	}
	i, _ := slices.BinarySearchFunc(h.marks, id+1, func(m Mark, id uint64) int {
		if m.ID < id {
			return -1
		}
		return int(min(m.ID-id, 1))
	})
	return append([]Mark{}, h.marks[i:]...) // never nil: browsers expect a list
}

// thin halves the older half of the points, by merging neighbours in pairs.
func thin(points []Point) []Point {
	half := len(points) / 2
	merged := make([]Point, 0, len(points)-half/2)
	i := 0
	for ; i+1 < half; i += 2 {
		merged = append(merged, merge(points[i], points[i+1]))
	}
	return append(merged, points[i:]...)
}

// merge makes one point of two neighbours. What must not be overlooked is the larger of both; the rest is the mean by periods.
func merge(a, b Point) Point {
	m := b
	m.periods = a.periods + b.periods
	share := float64(b.periods) / float64(m.periods)
	if b.WorstMS == nil || a.WorstMS != nil && *a.WorstMS > *b.WorstMS {
		m.WorstMS, m.Worst = a.WorstMS, a.Worst
	}
	m.MiddleMS, m.Rate = mean(a.MiddleMS, b.MiddleMS, share), mean(a.Rate, b.Rate, share)
	m.Load, m.Capacity = mean(a.Load, b.Load, share), mean(a.Capacity, b.Capacity, share)
	m.Machines = max(a.Machines, b.Machines)
	m.Shades = strongest(slices.Concat(a.Shades, b.Shades))
	return m
}

// mean returns the weighted mean of two values, or the one that is there.
func mean(a, b *float64, shareOfB float64) *float64 {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	return new(*a + (*b-*a)*shareOfB)
}

// strongest returns the strongest shades, one for each instance and resource, in the order of names.
func strongest(all []Shade) []Shade {
	all = slices.DeleteFunc(slices.Clone(all), func(s Shade) bool { return !(s.Share >= leastShade) })
	byName := func(a, b Shade) int {
		if c := strings.Compare(a.Instance, b.Instance); c != 0 {
			return c
		}
		return strings.Compare(string(a.Resource), string(b.Resource))
	}
	stronger := func(a, b Shade) int {
		switch {
		case a.Share > b.Share:
			return -1
		case a.Share < b.Share:
			return 1
		}
		return byName(a, b)
	}
	slices.SortFunc(all, stronger)
	kept := all[:0:0]
	seen := map[[2]string]bool{}
	for _, s := range all {
		if key := [2]string{s.Instance, string(s.Resource)}; !seen[key] && len(kept) < mostShaded {
			seen[key] = true
			kept = append(kept, s)
		}
	}
	slices.SortFunc(kept, byName)
	return kept
}
