package train

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Scores are the models' errors at points that they were not trained on.
type Scores struct {
	ResponseTime Off `json:"response_time"` // error of the response time
	Joint        Off `json:"joint"`         // error of the probe time 1 + SF, by the joint model
	Total        Off `json:"total"`         // the same by the model of PRIMA's paper
	Capacity     Off `json:"capacity"`      // difference of utilisations, by the joint model
}

// Off summarises absolute errors.
type Off struct {
	Mean float64 `json:"mean"`
	P95  float64 `json:"p95"`
}

// Score fits models to rows and compares them with long runs at other points. At a point with response time R the true capacity is
// known: for a threshold of R it is the point's own utilisation.
func Score(rows, truth []model.TrainingRow, metric quell.Metric, thresholdMS float64) (Scores, error) {
	m, _, err := model.Fit(rows, model.FitOptions{Metric: metric})
	if err != nil {
		return Scores{}, err
	}
	spec := model.Spec{Resource: rows[0].Resource, Metric: metric, InterferenceModel: quell.Joint, Confidence: 0.95}
	joint, err := model.Compile(m, spec)
	if err != nil {
		return Scores{}, err
	}
	spec.InterferenceModel = quell.Total
	total, err := model.Compile(m, spec)
	if err != nil {
		return Scores{}, err
	}
	var rtm, im, im1, capacity []float64
	for _, row := range truth {
		measured, ok := row.LatencyMS.Of(metric)
		if !ok {
			return Scores{}, fmt.Errorf("a held-out run has no %s: %w", metric, quell.ErrNoData)
		}
		alone, _, _ := joint.Isolation(row.Utilization)
		felt := math.Max(0, row.ProbeMS.Mean/alone-1)
		rtm = append(rtm, math.Abs(joint.ResponseTime(row.Utilization, felt)/measured-1))
		im = append(im, math.Abs((1+joint.SeverityAt(row.Utilization, row.Interfering))/(1+felt)-1))
		im1 = append(im1, math.Abs((1+total.SeverityAt(row.Utilization, row.Interfering))/(1+felt)-1))
		if math.Abs(math.Log(measured/thresholdMS)) <= math.Log(near) {
			capacity = append(capacity, math.Abs(joint.Capacity(row.Interfering, measured)-row.Utilization))
		}
	}
	return Scores{ResponseTime: offOf(rtm), Joint: offOf(im), Total: offOf(im1), Capacity: offOf(capacity)}, nil
}

// near is the largest factor between the threshold and a response time that counts as near it.
const near = 1.5

// offOf summarises errors; without errors it is 0.
func offOf(errors []float64) Off {
	if len(errors) == 0 {
		return Off{}
	}
	slices.Sort(errors)
	return Off{Mean: stat.Mean(errors, nil), P95: stat.Quantile(0.95, stat.Empirical, errors, nil)}
}

// HeldOut is a plan of long runs at points that are used only for checking models.
func HeldOut(cells []Cell, run, warmUp time.Duration) Plan {
	p := Full()
	p.Only, p.Run, p.WarmUp, p.Repeat, p.MaxRepeat = cells, run, warmUp, 1, 1
	return p
}

// PlanScore has the means of a plan's results over several trainings.
type PlanScore struct {
	Plan   string  `json:"plan"`
	Runs   float64 `json:"runs"` // mean over the trainings
	Scores Scores  `json:"scores"`
}

// Compare trains by a plan, on the resource of the held-out runs, once for each seed, and returns the mean of the scores.
func Compare(
	ctx context.Context, name string, plan Plan, machines []Machine, truth []model.TrainingRow, metric quell.Metric, thresholdMS float64,
	seeds []uint64,
) (PlanScore, error) {
	out := PlanScore{Plan: name}
	for _, seed := range seeds {
		rows, err := Run(ctx, Options{Plan: plan, Resource: truth[0].Resource, Machines: machines, Seed: seed})
		if err != nil {
			return out, err
		}
		s, err := Score(rows, truth, metric, thresholdMS)
		if err != nil {
			return out, err
		}
		share := 1 / float64(len(seeds))
		out.Runs += float64(len(rows)) * share
		out.Scores.add(s, share)
	}
	return out, nil
}

func (s *Scores) add(o Scores, share float64) {
	for _, pair := range [][2]*Off{{&s.ResponseTime, &o.ResponseTime}, {&s.Joint, &o.Joint}, {&s.Total, &o.Total},
		{&s.Capacity, &o.Capacity}} {
		pair[0].Mean += pair[1].Mean * share
		pair[0].P95 += pair[1].P95 * share
	}
}
