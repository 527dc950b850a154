package sim

import "math"

// evenness measures how evenly the load is spread: for each sampling period the largest over the mean of the instances' loads, each as a
// part of what its machine's neighbours leave.
type evenness struct {
	sum     float64
	periods int
}

// carriedMark is what an instance's machine had carried at the end of the last period.
type carriedMark struct {
	at          float64
	own, others [kinds]float64
}

// measureEvenness adds the period that ends now. An instance counts that could get requests throughout.
func (s *simulation) measureEvenness() {
	largest, sum, known := 0.0, 0.0, 0
	for _, in := range s.members {
		load, ok := s.loadOverCapacity(in)
		if ok && s.w.now > s.zero {
			largest = math.Max(largest, load)
			sum += load
			known++
		}
	}
	if sum > 0 {
		s.evenness.sum += largest / sum * float64(known)
		s.evenness.periods++
	}
}

// loadOverCapacity returns the load of an instance since the last call, as a part of what neighbours left of its machine: the largest of
// all resources. ok is false if it could not get requests throughout.
func (s *simulation) loadOverCapacity(in *instance) (load float64, ok bool) {
	if in.place < 0 {
		in.carried = nil
		return 0, false
	}
	now, last := s.carriedBy(in), in.carried
	in.carried = &now
	if last == nil || now.at <= last.at {
		return 0, false
	}
	period := now.at - last.at
	for _, k := range s.used {
		own, others := (now.own[k]-last.own[k])/period, (now.others[k]-last.others[k])/period
		load = math.Max(load, own/math.Max(1-others-s.w.withheld(in.host, k), leastShare))
	}
	return load, true
}

func (s *simulation) carriedBy(in *instance) carriedMark {
	m := carriedMark{at: s.w.now}
	for _, k := range s.used {
		m.own[k] = s.w.peek(in.host, k, ownService)
		m.others[k] = s.w.peek(in.host, k, ownNeighbours) + s.w.peek(in.host, k, ownChores)
	}
	return m
}

// withheld is the part of a resource that a fluid neighbour or the provider takes now.
func (w *world) withheld(hostIndex int, k kind) float64 {
	return 1 - w.stations[w.hosts[hostIndex].stations[k]].share
}

// result returns the mean over the periods; nil if there was no load.
func (e *evenness) result() *float64 {
	if e.periods == 0 {
		return nil
	}
	mean := e.sum / float64(e.periods)
	return &mean
}
