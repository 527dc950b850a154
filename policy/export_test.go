package policy

import "github.com/quellhq/quell"

// What the tests of other packages' policies need of the core.

const (
	ApartFor      = apartFor
	BarredFor     = barredFor
	DoubtWindows  = doubtWindows
	FailedFor     = failedFor
	ForgivenAfter = forgivenAfter
	MutedFor      = mutedFor
	SmallGroup    = smallGroup
	UnmeasuredFor = unmeasuredFor
)

type (
	Decide  = decide
	Watched = watched
)

var (
	IsFresh   = isFresh
	Objective = objective
	Perceive  = perceive
	Watch     = watch
)

func (e *Engine) Contended() []Contended { return e.contended }
func (e *Engine) ContendedAfter(st State) []Contended {
	now, _ := e.inForce(st.Learned)
	return now.contended
}
func (e *Engine) Input(s *quell.Snapshot, prev *State) *Input { return e.input(s, prev) }
func (e *Engine) Pooling() Pooling                            { return e.senses.Pooling }
func (e *Engine) DecideBy(decides Decide)                     { e.decides = decides }
func (f *Felt) Evidence(r quell.Resource) float64             { return f.evidence(r) }
func (f *Felt) Holds(significant bool, confirm int32, evidence float64) bool {
	return f.holds(significant, confirm, evidence)
}
