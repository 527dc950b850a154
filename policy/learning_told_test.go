package policy

import (
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// A plan says for a few periods that learning began again, also of a type of instance of which no window comes any more, whose law stays as
// it is.
func TestLearningAnewIsToldForAWhile(t *testing.T) {
	e := &Engine{}
	for _, tc := range []struct {
		drifted, periods int
		told             bool
	}{{0, 5, false}, {20, 20, true}, {20, 29, true}, {20, 30, false}, {20, 2000, false}} {
		law := &model.Law{R0MS: 10, P0MS: 5, PeriodsSinceDrift: 1}
		learned := &model.Learner{Periods: tc.periods, Seen: map[quell.Resource]map[string]*model.Record{
			quell.Network: {"small": {Law: law, Drifted: tc.drifted}}}}
		var plan quell.Plan
		e.tellLearning(&plan, learned, nil)
		if told := len(plan.Reasons) > 0; told != tc.told {
			t.Errorf("period %d, begun again in %d: told %v, want %v: %v", tc.periods, tc.drifted, told, tc.told, plan.Reasons)
		}
	}
}
