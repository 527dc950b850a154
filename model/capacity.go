package model

import "math"

// FreshCapacity returns the capacity of an instance that has no interfering neighbours.
func (p *Predictor) FreshCapacity(thresholdMS float64) float64 { return p.Capacity(0, thresholdMS) }

// Capacity returns the effective capacity U_max: the largest utilisation up to MaxUtilization whose predicted response time
// is within the threshold if the neighbours' use stays the same. It is 0 if there is none.
//
// The predicted response time never decreases with utilisation. So the search bisects over the levels, then over the
// pieces of the interference model between two levels, then over the severities that were trained there. In the remaining
// interval the response time is a quadratic function of utilisation, which is solved directly.
func (p *Predictor) Capacity(interfering, thresholdMS float64) float64 {
	top := p.rtm.top()
	if !(thresholdMS >= p.responseAt(0, interfering)) {
		return 0
	}
	if p.responseAt(top, interfering) <= thresholdMS {
		return top
	}
	low, high := p.narrow(p.rtm.levels, 0, interfering, thresholdMS, 0, top)
	switch {
	case !(interfering > 0):
		return p.solve(patchBetween(p.rtm, low, high, 0, 0), thresholdMS)
	case p.felt.joint != nil:
		low, high = p.narrow(p.felt.edges, 0, interfering, thresholdMS, low, high)
	default:
		low, high = p.narrow(p.felt.edges, interfering, interfering, thresholdMS, low, high)
	}
	return p.solve(patchBetween(p.rtm, low, high, p.felt.at(low, interfering), p.felt.at(high, interfering)), thresholdMS)
}

// responseAt predicts the response at utilisation u under interfering neighbours.
func (p *Predictor) responseAt(u, interfering float64) float64 {
	return p.rtm.at(u, min(p.SeverityAt(u, interfering), maxValue))
}

// narrow shrinks the interval (low, high) until none of the values edge - shift is inside it. The response time is within the threshold at
// low and above the threshold at high.
func (p *Predictor) narrow(edges []float64, shift, interfering, thresholdMS, low, high float64) (float64, float64) {
	first, last := firstAbove(edges, low+shift), firstAbove(edges, high+shift)
	for first < last {
		mid := (first + last) / 2
		switch u := edges[mid] - shift; {
		case u <= low:
			first = mid + 1
		case u >= high:
			last = mid
		case p.responseAt(u, interfering) <= thresholdMS:
			low, first = u, mid+1
		default:
			high, last = u, mid
		}
	}
	return low, high
}

// firstAbove returns the index of the first edge above x.
func firstAbove(edges []float64, x float64) int {
	low, high := 0, len(edges)
	for low < high {
		if mid := int(uint(low+high) >> 1); edges[mid] > x {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

// patch is a part of a strip of the surface that is crossed on a straight path. At time t from 0 to 1 the utilisation is
// low + t*(high-low); the position in the strip (share) and the severity change linearly with t.
type patch struct {
	strip        *strip
	low, high    float64 // utilisation
	share, dw    float64 // at t = 0, and its change up to t = 1
	severity, ds float64
}

// patchBetween returns the patch between two utilisations. Between them severity must be linear, and there must be no level of
// the surface.
func patchBetween(s *surface, low, high, severityLow, severityHigh float64) patch {
	st := s.strip(low)
	share := st.share(low)
	severityLow, severityHigh = min(severityLow, maxValue), min(severityHigh, maxValue)
	return patch{
		strip: st, low: low, high: high,
		share: share, dw: st.share(high) - share,
		severity: severityLow, ds: severityHigh - severityLow,
	}
}

// solve returns the utilisation in the patch at which the response time reaches the threshold. It must be below the
// threshold at the low end and not at the high end.
func (p *Predictor) solve(a patch, thresholdMS float64) float64 {
	from, until := 0.0, 1.0
	first, last := a.strip.piece(a.severity)+1, a.strip.piece(a.severity+a.ds)+1
	for first < last {
		mid := (first + last) / 2
		t := (a.strip.knots[mid].x - a.severity) / a.ds
		if a.strip.atKnot(a.share+t*a.dw, mid) <= thresholdMS {
			from, first = t, mid+1
		} else {
			until, last = t, mid
		}
	}
	t := from + a.crossing(first-1, from, thresholdMS)
	return a.low + min(t, until)*(a.high-a.low)
}

// crossing returns how long after t the response time reaches the threshold on the piece of severities after knot i.
// On this piece it is thresholdMS + c0 + c1 dt + c2 dt^2 with c0 <= 0 and c1 >= 0. The result is the first root above 0.
func (a *patch) crossing(i int, t, thresholdMS float64) float64 {
	k := &a.strip.knots[i]
	share, dx := a.share+t*a.dw, a.severity+t*a.ds-k.x
	lower, gap := k.a+k.slopeA*dx, (k.b-k.a)+(k.slopeB-k.slopeA)*dx
	gapRate := (k.slopeB - k.slopeA) * a.ds
	c0 := lower + share*gap - thresholdMS
	c1 := k.slopeA*a.ds + share*gapRate + a.dw*gap
	c2 := a.dw * gapRate
	root := c1 + math.Sqrt(max(0, c1*c1-4*c2*c0))
	if !(c0 < 0) || !(root > 0) {
		return 0
	}
	return -2 * c0 / root
}
