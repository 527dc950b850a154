package redline

import (
	"maps"
	"slices"

	"github.com/quellhq/quell/model"
)

// Quiet is the severity below which a period counts as one without neighbours.
const Quiet = 0.1

// Rows makes a training row for each period and probed resource of a level. They count as made without neighbours.
func (l *Level) Rows() (rows []model.TrainingRow) {
	for _, o := range l.Periods {
		for _, resource := range slices.Sorted(maps.Keys(o.Probe)) {
			use, known := o.Utilization[resource]
			probe := o.Probe[resource]
			if !known || o.LatencyMS == nil || probe.N == 0 {
				continue
			}
			rows = append(rows, model.TrainingRow{Resource: resource, Level: l.Utilization[resource], Utilization: use,
				RequestRate: *o.RequestRate, LatencyMS: *o.LatencyMS, By: probe.By, CPU: o.CPU, ClassRates: o.RequestRates, Observation: o,
				ProbeMS:   model.ProbeRun{Mean: probe.MeanMS, Stddev: probe.StddevMS, N: probe.N},
				DurationS: o.WindowS, Requests: int64(o.LatencyMS.N)})
		}
	}
	return rows
}
