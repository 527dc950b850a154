package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

// learning is what an engine needs that learns its models from the snapshots that it decides on.
type learning struct {
	prior       *model.Models // trained models, with which it begins; may be nil
	fingerprint string        // of prior
	trained     bool          // the prior is enough for the policy
	blind       *Engine       // decides while too little is known
	newest      atomic.Pointer[compiled]
}

// compiled is the engine of what was learned in a period. The next decision begins with it.
type compiled struct {
	learned *model.Learner
	decides *Engine
	lacks   error
}

// NewLearningEngine compiles a configuration whose models are learned in place. prior holds trained models to begin with; it may be nil.
// What was learned is part of the State. Until enough is known, the weights stay equal.
func (t Table) NewLearningEngine(service quell.Service, prior *model.Models) (*Engine, error) {
	e, err := t.compile(service, ServiceScope)
	if err != nil {
		return nil, err
	}
	if e.row.needs == NoModels {
		return t.NewEngine(service, prior)
	}
	plain := service
	plain.Policy = quell.Policy{Name: t.Plain()}
	blind, err := t.NewEngine(plain, nil)
	if err != nil {
		return nil, err
	}
	e.learning = &learning{prior: prior, fingerprint: prior.Fingerprint(), blind: blind}
	e.contended = []Contended{{Resource: e.senses.Resources.List()[0]}}
	_, err = e.with(model.NewLearner(prior, service.SLO))
	if err != nil && !errors.Is(err, quell.ErrNoData) {
		return nil, err
	}
	e.learning.trained = prior != nil && err == nil
	return e, nil
}

// atFirst is the authority of a policy without memory. One whose models nobody trained has to show that its predictions hold.
func (l *learning) atFirst() quell.Authority {
	if l.trained {
		return quell.Full
	}
	return quell.AuthorityAdvise
}

// Learns returns whether the engine learns its models in place.
func (e *Engine) Learns() bool { return e.learning != nil }

// Models returns what a state has learned, together with the trained models that the engine began with.
func (e *Engine) Models(st State) *model.Models {
	if e.learning == nil {
		return &model.Models{}
	}
	return st.Learned.Models(e.learning.prior)
}

// learn returns what is known after a snapshot. renewed says that it began again, because the trained models are other ones than before.
func (e *Engine) learn(s *quell.Snapshot, known *model.Learner) (learned *model.Learner, renewed bool) {
	prior := e.learning.fingerprint
	renewed = known != nil && prior != "" && known.Prior != prior
	if known == nil || known.Metric != e.service.SLO.Metric || renewed {
		known = model.NewLearner(e.learning.prior, e.service.SLO)
	}
	return known.Told(e.senses.Pooling.told()).Learn(s, e.service.SLO), renewed
}

// with returns the engine with the models that were learned. If they lack something that the policy needs, the error wraps
// quell.ErrNoData.
func (e *Engine) with(learned *model.Learner) (*Engine, error) {
	models := learned.Models(e.learning.prior)
	next := *e
	next.learning = nil
	var err error
	if next.contended, err = contend(e.row, e.senses, e.service.SLO, models); err != nil {
		return nil, err
	}
	return &next, nil
}

// inForce returns the engine that decides with what a state has learned: the policy's, or the one without models while too little is
// known.
func (e *Engine) inForce(learned *model.Learner) (decides *Engine, lacks error) {
	if e.learning == nil {
		return e, nil
	}
	if c := e.learning.newest.Load(); c != nil && c.learned == learned {
		return c.decides, c.lacks
	}
	now, err := e.with(learned)
	if err != nil {
		now = e.learning.blind
	}
	e.learning.newest.Store(&compiled{learned, now, err})
	return now, err
}

// tellLearning adds to a plan what the policy still waits for, and where it began to learn again.
func (e *Engine) tellLearning(plan *quell.Plan, learned *model.Learner, lacks error) {
	if lacks != nil {
		AddReason(plan, "learning", "", "too little is known for policy %s: %s", e.service.Policy.Name, missingReadings(learned, e.senses))
		return
	}
	tellWild(plan, learned)
	live := learned.Live()
	tellDeaf(plan, live)
	for _, r := range slices.Sorted(maps.Keys(live)) {
		for _, instanceType := range slices.Sorted(maps.Keys(live[r])) {
			drifted := learned.Seen[r][instanceType].Drifted // a law that is not fitted any more does not know how long ago that was
			if since := learned.Periods - drifted + 1; drifted > 0 && since <= tellDriftFor {
				AddReason(plan, "learning_anew", "", "%s, instance type %s: response times left the band of the predictions %d period(s) ago; "+
					"earlier ones were dropped (%s)", r, instanceType, since, live[r][instanceType].Text())
			}
		}
	}
}

// tellWild tells of response times that cannot be true, and so teach nothing for a while.
func tellWild(plan *quell.Plan, learned *model.Learner) {
	for _, r := range slices.Sorted(maps.Keys(learned.Seen)) {
		for _, instanceType := range slices.Sorted(maps.Keys(learned.Seen[r])) {
			if times := learned.Seen[r][instanceType].Wild; times != 0 {
				AddReason(plan, "doubtful", "", "%s, instance type %s: response times are %.3g times as long as usual at this use. Is their unit "+
					"right, and does every request fail? If this goes on, learning begins again; until then they teach nothing", r, instanceType, times)
			}
		}
	}
}

// tellDeaf adds which probes do not respond to load.
func tellDeaf(plan *quell.Plan, live model.Live) {
	for _, r := range slices.Sorted(maps.Keys(live)) {
		for _, instanceType := range slices.Sorted(maps.Keys(live[r])) {
			if live[r][instanceType].Deaf {
				AddReason(plan, "deaf_probes", "", "%s, instance type %s: probes take the same time at any load, so they show no neighbours. "+
					"Are they answered from a cache, or by another machine? Until this is mended, only response times far above the objective "+
					"reduce an instance's share", r, instanceType)
			}
		}
	}
}

// tellDriftFor is for how many periods a plan mentions that the models began to learn again.
const tellDriftFor = 10

// missingReadings says which readings have not come, or that more are needed.
func missingReadings(learned *model.Learner, senses Senses) string {
	var parts []string
	for _, r := range senses.Resources.List() {
		windows, answered := learned.Count(r)
		switch {
		case windows == 0:
			parts = append(parts, fmt.Sprintf("no probe of the %s has come together with its utilisation. Is the probe port open, "+
				"and does the agent run?", r))
		case answered == 0:
			parts = append(parts, fmt.Sprintf("%d probes of the %s, but no response time: the balancer reports none", windows, r))
		default:
			parts = append(parts, fmt.Sprintf("%d windows of the %s with a response time so far. Weights are equal until the time of a probe "+
				"and of a request without load are known to about 30%%", answered, r))
		}
	}
	return strings.Join(parts, "; ")
}
