package policy

import "github.com/quellhq/quell"

// Undone is a change that was taken back, and what was measured then. If requests stay as slow without the change, it was not the cause.
type Undone struct {
	Change   *Change `json:"change"`
	Measured float64 `json:"measured"`       // Standing.Measured then
	Rate     float64 `json:"rate,omitempty"` // requests per second then
	Felt     float64 `json:"felt,omitempty"` // mean severity of the instances then
	Size     int     `json:"size,omitempty"` // instances in service when everything is back
	Same     int     `json:"same,omitempty"` // periods that were as bad
}

// acquittedAfter is how many periods as bad as before acquit a change that was taken back. Each further one that was taken back doubles it,
// as it doubles the time for which the policy only advises.
const acquittedAfter = 3

// retry judges by the newest period whether taking back the last change made anything better. If not, the policy need not wait any longer.
func (w *watched) retry() {
	u := w.Trust.Undone
	if u == nil {
		return
	}
	switch c := u.Change; {
	case c == nil, w.Trust.Barred == 0, w.Trust.ByHand != "", c.SLO != "" && c.SLO != objective(w.in), c.overtaken(w.group):
		w.Trust.Undone = nil // it cannot be told any more
		return
	case w.Now.Measured <= worse, w.Now.Measured*worse < u.Measured:
		w.Trust.Undone = nil
		return
	case len(c.Removed) == 0 && c.inForce(w.group), len(w.group.Ready) < u.Size: // it is not back yet
		return
	case w.rate() > busier*u.Rate, w.group.felt() > u.Felt+disturbed:
		return
	}
	next := *u
	next.Same++
	if w.Trust.Undone = &next; next.Same < acquittedAfter<<min(max(w.Trust.Harms-1, 0), mostBarred) {
		return
	}
	w.Trust.Undone = nil
	w.Trust.Level, w.Trust.Good, w.Trust.Barred = quell.AuthorityStep, 0, 0
	w.Trust.Harm += ". Requests stayed as slow without it, so it was not the cause"
}
