package redline

import (
	"fmt"
	"math"

	"github.com/quellhq/quell"
)

const (
	first    = 0.05 // of the share: the first step, because it is not known yet how the balancer follows shares
	leap     = 0.3  // of an instance's part of the requests: a step that raises it by more ends the test
	steepest = 8    // the most that a part is expected to grow in proportion to its share, both as logarithms
)

// part is how many of the service's requests an instance had.
type part struct{ own, all float64 }

func (p part) of() float64 { return p.own / math.Max(p.all, 1) }

// spread is the standard error of the part, as a fraction of it.
func (p part) spread() float64 { return 1 / math.Sqrt(math.Max(p.own, 1)) }

// add enters a period.
func (p *part) add(s *quell.Snapshot, id string) {
	for i := range s.Instances {
		in := &s.Instances[i]
		if in.Observation == nil || in.Observation.LatencyMS == nil {
			continue
		}
		n := float64(in.Observation.LatencyMS.N)
		if p.all += n; in.ID == id {
			p.own += n
		}
	}
}

// leapt says that the last step raised the instance's part of the requests by more than a step may, "" if it did not. Under leastconn with
// few open requests, the instance with the largest weight gets nearly all of them, so a small step of the share may be a large one of the
// rate. The part is compared, not the rate, because the load of the service changes by itself.
func (t *Test) leapt(s *quell.Snapshot) string {
	if len(t.parts) == 0 {
		return ""
	}
	var now part
	now.add(s, t.o.Instance)
	t.since.own, t.since.all = t.since.own+now.own, t.since.all+now.all
	before := t.parts[len(t.parts)-1]
	for _, p := range []part{now, t.since} {
		if sure := 1 + 3*math.Hypot(p.spread(), before.spread()); p.of() > (1+leap)*before.of()*sure {
			return fmt.Sprintf("a step of its share from %.3f to %.3f raised its part of the requests by %.0f%%, and %.0f%% are allowed: the "+
				"balancer does not follow shares closely, as leastconn does not while few requests are open", t.result.Levels[len(t.parts)-1].Share,
				t.share, 100*(p.of()/before.of()-1), 100*leap)
		}
	}
	return ""
}

// gain is by how much the part of the requests grows with the share, both as logarithms: the slope of the levels so far. It is 1 where the
// balancer follows shares exactly. It returns false before a step was measured.
func (t *Test) gain() (float64, bool) {
	var n, x, y, xx, xy float64
	for i, p := range t.parts {
		lx, ly := math.Log(t.result.Levels[i].Share), math.Log(math.Max(p.of(), 1e-9))
		n, x, y, xx, xy = n+1, x+lx, y+ly, xx+lx*lx, xy+lx*ly
	}
	if d := n*xx - x*x; n >= 2 && d > 0 {
		return min(max((n*xy-x*y)/d, 1), steepest), true
	}
	return 1, false
}

// next returns the share at which the rate is expected to grow by a factor.
func (t *Test) next(share, factor float64) float64 {
	gain, known := t.gain()
	if !known {
		factor = min(factor, 1+first)
	}
	return min(share*math.Pow(factor, 1/gain), mostShare)
}
