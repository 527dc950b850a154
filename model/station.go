package model

import (
	"math"
	"slices"

	"github.com/quellhq/quell"
)

// Station says how long requests take on the instances of a group behind a balancer, by a law that is learned in place. A balancer that
// looks for an idle instance makes the group one station: a request waits only if all instances are busy. With n instances of pooling g,
// and E the waiting factor of M/M/m,
//
//	mean response time  R = R0 / (1-V) * s            V: the neighbours' use of the instance's resource
//	slowness            s = (1 + E(n^g, u))^k         u: the use of the group, its load over what the neighbours leave of all instances
//	percentile          R * ratio(s)
//
// Pooling is 0 if each instance has a queue of its own, as behind a hash or random choice. Then E is that of a single server, u/(1-u), and
// u is the instance's own use. With a pooling of 1 all instances are one station, and only the use of the group counts. Between them, u is
// the mean of both, weighted by the pooling.
//
// Where there is data, it corrects the law. It is immutable; its methods allocate nothing.
type Station struct {
	pooling, exponent float64
	busy              line // logarithm of the metric, in milliseconds, over the logarithm of slowness
	beside            line // logarithm of the stretch by neighbours, over their use of the resource
	held              float64
	taken, disturbed  float64 // typical use by neighbours, and how often they are felt
}

// line is a function that is linear between points and rises. Beyond the last point it goes on with the slope of end.
type line struct {
	points []linePoint
	end    float64
}

type linePoint struct{ x, y float64 }

func (l *line) at(x float64) float64 {
	i := l.piece(func(p linePoint) bool { return p.x <= x })
	p := l.points[i]
	if i+1 == len(l.points) {
		return p.y + l.end*(x-p.x)
	}
	next := l.points[i+1]
	return p.y + (next.y-p.y)*max(x-p.x, 0)/(next.x-p.x)
}

// inverse returns the largest x at which the line is at most y; false if it is above y everywhere.
func (l *line) inverse(y float64) (x float64, ok bool) {
	if l.points[0].y > y {
		return 0, false
	}
	i := l.piece(func(p linePoint) bool { return p.y <= y })
	p := l.points[i]
	if i+1 == len(l.points) {
		return p.x + (y-p.y)/l.end, true
	}
	next := l.points[i+1]
	return p.x + (next.x-p.x)*(y-p.y)/(next.y-p.y), true
}

// piece returns the index of the last point for which below is true, at least 0.
func (l *line) piece(below func(linePoint) bool) int {
	low, high := 0, len(l.points)
	for high-low > 1 {
		if mid := (low + high) / 2; below(l.points[mid]) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// The points at which laws are corrected: logarithms of slowness, and uses by neighbours.
var (
	busyPoints   = []float64{0, 0.04, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.4, 1.8, 2.3, 3}
	besidePoints = []float64{0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9}
)

const (
	// besideEnd is the slope of a neighbour's stretch beyond besidePoints.
	besideEnd = 10
	// maxUse bounds the use of a group in predictions, so that they are finite.
	maxUse = 0.99
)

// station returns the law with its corrections for a metric; nil if the metric was not learned.
func (w *Together) station(metric quell.Metric) *Station {
	start := w.Ratio
	if metric != w.Metric {
		if metric != quell.Mean {
			return nil
		}
		start = 1
	}
	s := &Station{pooling: w.Pooling, exponent: w.Exponent, held: w.Held, taken: w.Taken, disturbed: w.Disturbed,
		busy: line{end: 1}, beside: line{end: besideEnd}}
	ratio := RatioOf(metric, start)
	for i, x := range busyPoints {
		s.busy.points = append(s.busy.points, linePoint{x, math.Log(w.R0MS) + x + math.Log(ratio.At(math.Exp(x))) + at(w.Busy, i)})
	}
	for i, taken := range besidePoints {
		s.beside.points = append(s.beside.points, linePoint{taken, -w.Neighbour*math.Log1p(-taken) + at(w.Beside, i)})
	}
	s.busy.rise()
	s.beside.rise()
	return s
}

// at returns the i-th of the corrections; there may be fewer.
func at(list []float64, i int) float64 {
	if i < len(list) {
		return list[i]
	}
	return 0
}

// rise makes the line rise everywhere, because more use and more neighbours never make responses faster. Corrections
// almost do that already.
func (l *line) rise() {
	const least = 1e-6
	for i := 1; i < len(l.points); i++ {
		l.points[i].y = max(l.points[i].y, l.points[i-1].y+least*(l.points[i].x-l.points[i-1].x))
	}
}

// slowness returns the logarithm of the slowness of an instance.
func (s *Station) slowness(q *Queue, c Crowd) float64 {
	return s.exponent * q.log1p(min(s.pooling*c.Use+(1-s.pooling)*c.Own, maxUse))
}

// ResponseMS predicts the metric of the response time, in milliseconds, of an instance whose neighbours use the part taken of its resource.
// The queue is that of groups of this size.
func (s *Station) ResponseMS(q *Queue, c Crowd, taken float64) float64 {
	return min(math.Exp(s.busy.at(s.slowness(q, c))+s.beside.at(taken)), maxValue)
}

// Patience returns the largest waiting factor of a group (see WaitFactor) at which an instance beside neighbours stays within the
// threshold; false if it misses the threshold without load.
func (s *Station) Patience(taken, thresholdMS float64) (waiting float64, ok bool) {
	log, ok := s.busy.inverse(math.Log(thresholdMS) - s.beside.at(taken))
	return math.Expm1(max(log, 0) / s.exponent), ok
}

// TakenExplaining returns the neighbours' use that explains a response time; 0 if none is needed, at most nearly all.
func (s *Station) TakenExplaining(q *Queue, c Crowd, ms float64) float64 {
	taken, ok := s.beside.inverse(math.Log(ms) - s.busy.at(s.slowness(q, c)))
	if !ok {
		return 0
	}
	return min(max(taken, 0), maxUse)
}

// UnloadedMS returns the metric of the response time without load and neighbours, in milliseconds.
func (s *Station) UnloadedMS() float64 { return math.Exp(s.busy.points[0].y) }

// within returns the station that takes at most unloadedMS without load, and otherwise waits as before.
func (s *Station) within(unloadedMS float64) *Station {
	shift := math.Log(unloadedMS) - s.busy.points[0].y
	if shift >= 0 {
		return s
	}
	next := *s
	next.busy.points = slices.Clone(s.busy.points)
	for i := range next.busy.points {
		next.busy.points[i].y += shift
	}
	return &next
}

// Pooling returns how far the group is one station, from 0 to 1.
func (s *Station) Pooling() float64 { return s.pooling }

// Held returns the largest use of the group at which the objective was seen to hold; 0 if none was seen.
func (s *Station) Held() float64 { return s.held }

// Queue is a table of how long requests wait in groups of one size (WaitFactor), by the use of the group. Computing that anew for each of
// thousands of instances would take longer than all the rest of a decision.
type Queue struct{ logs []float64 } // log(1 + waiting factor), at equal steps of log(1/(1-use)), from a use of 0 to maxUse

// queueStep is the step of the table. With one server the logarithm is a straight line, and with more it is nearly one where they are busy.
const queueStep = 0.05

// NewQueue returns the table of a number of servers; see Station.Servers.
func NewQueue(servers float64) *Queue {
	q, last := &Queue{}, -math.Log1p(-maxUse)
	for i := 0; float64(i-1)*queueStep < last; i++ {
		q.logs = append(q.logs, math.Log1p(WaitFactor(servers, -math.Expm1(-float64(i)*queueStep))))
	}
	return q
}

// log1p returns log(1 + waiting factor) at a use of at most maxUse.
func (q *Queue) log1p(use float64) float64 {
	at := max(-math.Log1p(-use), 0) / queueStep
	i := min(int(at), len(q.logs)-2)
	return q.logs[i] + (at-float64(i))*(q.logs[i+1]-q.logs[i])
}

// UseAt returns the use at which requests wait for a multiple of their service time, at most lawTop.
func (q *Queue) UseAt(waiting float64) float64 {
	log := math.Log1p(waiting)
	i, _ := slices.BinarySearch(q.logs, log)
	switch {
	case i == 0:
		return 0
	case i == len(q.logs):
		return lawTop
	}
	at := float64(i-1) + (log-q.logs[i-1])/(q.logs[i]-q.logs[i-1])
	return min(-math.Expm1(-at*queueStep), lawTop)
}

// Servers returns how many servers a group of a size is like.
func (s *Station) Servers(size float64) float64 {
	return min(math.Pow(max(size, 1), s.pooling), maxServers)
}
