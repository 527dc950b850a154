package policy

import (
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// blameByClassifier names the contended resource of an instance by the classifier of DIAL, if the models have that section and the last
// window's response times are above their bounds. A policy that judges by probes calls it after it named the resource by these.
func (m *Member) blameByClassifier(dial *model.Dial, plan *quell.Plan) {
	if dial == nil || dial.Classifier == nil {
		return
	}
	rate, known := m.Requests()
	if !known {
		return
	}
	excess := dial.Exceeded(m.Observation, rate)
	if len(excess) == 0 || m.Bound().Measured == 0 && !slices.ContainsFunc(excess, func(e model.Excess) bool { return e.Clear }) {
		return
	}
	features := dial.Features(m.Observation)
	class := dial.Classifier.Leaf(features).Class
	if class == model.NotContended {
		return
	}
	quell.Put(&plan.Cause, m.ID, quell.Resource(class))
	AddReason(plan, "classified", m.ID, "%s%s: neighbours contend for its %s", excess[0].Text(rate),
		dial.Classifier.Tested(dial.Usual, features), class)
}
