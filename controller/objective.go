package controller

import "time"

// markMissed notes since when the service and each of its instances have been above the objective in each period. A controller that was
// restarted does not know of earlier periods.
func (c *board) markMissed(s *Status) {
	threshold, before := c.opts.Service.SLO.ThresholdMS(), c.missed
	c.missed = map[string]time.Time{}
	for i := range s.Instances {
		row := &s.Instances[i]
		if row.LatencyMS == nil || *row.LatencyMS <= threshold {
			continue
		}
		since, known := before[row.ID]
		if !known {
			since = s.At
		}
		c.missed[row.ID], row.MissedSince = since, &since
	}
	if len(c.missed) == 0 {
		c.missedSince = time.Time{}
	} else if c.missedSince.IsZero() {
		c.missedSince = s.At
	}
	s.MissedSince = c.missedSince
}

// leastUse is the least utilisation by which an instance's own requests tell what one of them uses.
const leastUse = 0.01

// canTake sets how many requests per second each instance can take: its capacity, divided by what its own requests use, or those of all
// instances if it has too few.
func canTake(rows []InstanceStatus) {
	var requests, use float64
	for _, row := range rows {
		if row.RequestRate != nil && row.Utilization != nil {
			requests, use = requests+*row.RequestRate, use+*row.Utilization
		}
	}
	for i := range rows {
		row := &rows[i]
		r, u := requests, use
		if row.RequestRate != nil && row.Utilization != nil && *row.Utilization >= leastUse {
			r, u = *row.RequestRate, *row.Utilization
		}
		if row.Capacity != nil && r > 0 && u >= leastUse {
			row.CanTakeRate = new(*row.Capacity * r / u)
		}
	}
}
