package policy

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// Clairvoyant is the name of the policy that is told what no other can know. It is the bound for all of them, and none
// that can be chosen: only a simulator knows the truth.
const Clairvoyant = "clairvoyant"

// NewClairvoyant compiles PRIMA's allocation for DecideKnowing. It waits for no confirmation, needs no calibration and
// trusts its readings however old they are. The errors are those of NewEngine for policy prima.
func NewClairvoyant(service quell.Service, models *model.Models) (*Engine, error) {
	service.Policy.Name = "prima"
	service.Policy.Confirm, service.Policy.Calibrate = 0, 0
	service.Guard.StaleAfter = 0
	e, err := NewEngine(service, models)
	if err != nil {
		return nil, err
	}
	e.service.Policy.Name = Clairvoyant
	return e, nil
}

// DecideKnowing is Decide with the true interfering utilisation U_int of instances, by id, in policy.resource. An
// instance is rated by it from the moment it is ready; what is not told is estimated as ever.
func (e *Engine) DecideKnowing(s *quell.Snapshot, prev State, interfering map[string]float64) (quell.Plan, State) {
	return e.decide(s, prev, interfering)
}

// know takes the truth for the readings that stand for it.
func (m *member) know(in Input) {
	truth, ok := in.truth[m.ID]
	if !ok || in.Predictor == nil || m.State != quell.Ready {
		return
	}
	use := 0.0
	if m.mem.Utilization != nil {
		use = *m.mem.Utilization
	}
	truth = min(max(truth, 0), 1)
	severity := in.Predictor.SeverityAt(use, truth)
	m.mem.Utilization, m.mem.Severity, m.mem.Significant, m.truth = &use, &severity, severity > 0, &truth
}
