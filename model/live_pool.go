package model

import (
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// seenBy is a window and how its probes were made.
type seenBy struct {
	Window
	By *quell.Probing `json:"by,omitempty"`
}

const (
	// wholeWindow is how many probes a window needs. A disk may be probed once in a period: its windows are made of several periods.
	wholeWindow = 4
	// oldestPart is for how many periods a part of a window is kept.
	oldestPart = 4 * wholeWindow
)

// pool adds a reading to the parts of a window, and drops those that are too old, or whose probes cannot be compared with the newest.
func pool(parts []seenBy, w seenBy) []seenBy {
	kept := make([]seenBy, 0, len(parts)+1)
	for _, p := range parts {
		if w.At-p.At < oldestPart && w.By.Alike(p.By) {
			kept = append(kept, p)
		}
	}
	return append(kept, w)
}

// whole returns whether the parts have enough probes for a window.
func whole(parts []seenBy) bool {
	n := 0
	for i := range parts {
		n += parts[i].ProbeN
	}
	return n >= wholeWindow
}

// joined returns the parts as one window: the means of use and rate, the moments of all probes, and the response time of all requests. A
// percentile of several periods is the mean of theirs. There must be a part.
func joined(parts []seenBy) seenBy {
	all := parts[len(parts)-1]
	if len(parts) == 1 {
		return all
	}
	probes := make([]stats.Moments, len(parts))
	var use, rate, other, mean, metric, size, crowd float64
	all.N, all.Alone = 0, true
	for i := range parts {
		p := &parts[i]
		probes[i] = stats.Moments{Mean: p.ProbeMS, Stddev: p.ProbeMS * math.Sqrt(p.Spread), N: p.ProbeN}
		use, rate, other, size, crowd = use+p.Use, rate+p.Rate, other+p.Other, size+p.Size, crowd+p.Crowd
		mean, metric = mean+float64(p.N)*p.MeanMS, metric+float64(p.N)*p.MetricMS
		all.N, all.Alone = all.N+p.N, all.Alone && p.Alone
	}
	n := float64(len(parts))
	all.Use, all.Rate, all.Other, all.Size, all.Crowd = round(use/n), round(rate/n), round(other/n), round(size/n), round(crowd/n)
	pooled := stats.Pool(probes)
	all.ProbeMS, all.ProbeN, all.Spread = round(pooled.Mean), pooled.N, round(min(square(pooled.Stddev/pooled.Mean), widest))
	if all.N > 0 {
		all.MeanMS, all.MetricMS = round(mean/float64(all.N)), round(metric/float64(all.N))
	}
	return all
}

// take adds an instance's readings to the parts that it has. It returns the windows that have enough probes, and the parts that are kept
// for the next period. In each window it notes how much neighbours disturb the instance's other resources, according to the laws.
func (l Live) take(
	parts map[quell.Resource][]seenBy, news map[quell.Resource]seenBy, instanceType string,
) (windows map[quell.Resource]seenBy, left map[quell.Resource][]seenBy) {
	gathered := map[quell.Resource][]seenBy{}
	for r, w := range news {
		gathered[r] = pool(parts[r], w)
	}
	felt := l.felt(gathered, instanceType)
	windows, left = map[quell.Resource]seenBy{}, map[quell.Resource][]seenBy{}
	for r, list := range gathered {
		newest := &list[len(list)-1]
		for other, by := range felt {
			if other != r {
				newest.Other = max(newest.Other, by)
			}
		}
		if whole(list) {
			windows[r] = joined(list)
		} else {
			left[r] = list
		}
	}
	for r, list := range parts {
		if _, reported := news[r]; !reported {
			left[r] = slices.Clone(list)
		}
	}
	return windows, left
}

// felt returns by how much each resource of an instance is disturbed, as the logarithm of 1 + severity.
func (l Live) felt(gathered map[quell.Resource][]seenBy, instanceType string) map[quell.Resource]float64 {
	out := map[quell.Resource]float64{}
	for r, list := range gathered {
		if law := l.of(r, instanceType); law != nil {
			w := joined(list)
			out[r] = round(math.Log1p(law.felt(&w.Window)))
		}
	}
	return out
}
