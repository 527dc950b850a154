package policy

import "github.com/quellhq/quell"

// Undone is what was measured when a change was taken back. If requests stay as slow without the change, it was not the cause.
type Undone struct {
	Measured float64 `json:"measured"`       // Standing.Measured then
	Rate     float64 `json:"rate,omitempty"` // requests per second then
	Size     int     `json:"size,omitempty"` // instances in service when everything is back
	Same     int     `json:"same,omitempty"` // periods that were as bad
}

// acquittedAfter is how many periods as bad as before acquit a change that was taken back.
const acquittedAfter = 3

// retry judges by the newest period whether taking back the last change made anything better. If not, the policy gets back what the
// change had cost it, and goes on in small steps.
func (w *watched) retry() {
	u := w.Trust.Undone
	if u == nil {
		return
	}
	switch {
	case w.Trust.Barred == 0, w.Trust.ByHand != "", w.Now.Measured <= worse, w.Now.Measured*worse < u.Measured:
		w.Trust.Undone = nil
		return
	case len(w.group.Ready) < u.Size, w.rate() > busier*u.Rate:
		return
	}
	next := *u
	next.Same++
	if w.Trust.Undone = &next; next.Same < acquittedAfter {
		return
	}
	w.Trust.Undone = nil
	w.Trust.Level, w.Trust.Good, w.Trust.Barred, w.Trust.Harms = quell.AuthorityStep, 0, 0, max(0, w.Trust.Harms-1)
	w.Trust.Harm += ". Requests stayed as slow without it, so it was not the cause"
}
