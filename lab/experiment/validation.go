package experiment

import (
	"fmt"
	"math"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/train"
)

// HeldOut returns pairs of load and interference that no training plan of a lab contains, as in PRIMA's Table II. The pairs range from
// little load with a weak neighbour to a total utilisation of 0.75.
func HeldOut() []train.Cell {
	return []train.Cell{
		{Level: 0.15, Interference: 0.05}, {Level: 0.15, Interference: 0.35}, {Level: 0.25, Interference: 0.15},
		{Level: 0.45, Interference: 0.15},
		{Level: 0.25, Interference: 0.25}, {Level: 0.15, Interference: 0.5}, {Level: 0.45, Interference: 0.05}, {Level: 0.35, Interference: 0.33},
		{Level: 0.55, Interference: 0.15}, {Level: 0.65, Interference: 0.05}, {Level: 0.25, Interference: 0.4}, {Level: 0.35, Interference: 0.15},
	}
}

// Validation compares the predictions of models with measurements that the models were not fitted to.
type Validation struct {
	Rows   int               `json:"rows"` // number of rows that the models were fitted to
	Points []ValidationPoint `json:"points"`
}

// ValidationPoint is a measurement that the models were not fitted to, and the models' prediction for it.
type ValidationPoint struct {
	Utilization     float64 `json:"utilization"`
	Interfering     float64 `json:"interfering"`
	Severity        float64 `json:"severity"` // computed from the mean probe time, without a test of significance
	SeverityJoint   float64 `json:"severity_joint"`
	SeverityTotal   float64 `json:"severity_total"`
	MeanMS          float64 `json:"mean_ms"`
	PredictedMeanMS float64 `json:"predicted_mean_ms"`
	P95MS           float64 `json:"p95_ms"`
	PredictedP95MS  float64 `json:"predicted_p95_ms"`
}

// Validate computes the models' predictions for the rows' measurements.
func Validate(models *model.Models, resource quell.Resource, rows []model.TrainingRow) ([]ValidationPoint, error) {
	compile := func(metric quell.Metric, interference quell.InterferenceModel) (*model.Predictor, error) {
		return model.Compile(models, model.Spec{Resource: resource, Metric: metric, InterferenceModel: interference, Confidence: 0.95})
	}
	mean, err := compile(quell.Mean, quell.Joint)
	if err != nil {
		return nil, err
	}
	p95, err := compile(quell.P95, quell.Joint)
	if err != nil {
		return nil, err
	}
	total, err := compile(quell.Mean, quell.Total)
	if err != nil {
		return nil, err
	}
	var points []ValidationPoint
	for _, row := range rows {
		alone, _, _ := mean.Isolation(row.Utilization)
		sf := math.Max(0, row.ProbeMS.Mean/alone-1)
		p := ValidationPoint{
			Utilization: row.Utilization, Interfering: row.Interfering, Severity: sf,
			SeverityJoint: mean.SeverityAt(row.Utilization, row.Interfering), SeverityTotal: total.SeverityAt(row.Utilization, row.Interfering),
			PredictedMeanMS: mean.ResponseTime(row.Utilization, sf), PredictedP95MS: p95.ResponseTime(row.Utilization, sf),
		}
		var ok, ok95 bool
		p.MeanMS, ok = row.LatencyMS.Of(quell.Mean)
		p.P95MS, ok95 = row.LatencyMS.Of(quell.P95)
		if !ok || !ok95 {
			return nil, fmt.Errorf("a held-out run at %.2f beside %.2f lacks its mean or p95", row.Utilization, row.Interfering)
		}
		points = append(points, p)
	}
	return points, nil
}
