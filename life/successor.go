package life

import (
	"cmp"

	"github.com/quellhq/quell"
)

// Identity is what tells an instance apart from another one that got its id later.
type Identity struct {
	UID     string `json:"uid,omitempty"`
	Address string `json:"address,omitempty"`
}

func identity(m *quell.Member) Identity { return Identity{m.UID, m.Address} }

// Is returns whether a member is this instance, as far as its uid or its address tell.
func (i Identity) Is(m *quell.Member) bool { return !i.became(identity(m), true) }

// became returns whether another instance has the id now. An instance may move to another address; if it was gone from the list meanwhile,
// it is another one.
func (i Identity) became(now Identity, wasGone bool) bool {
	if i.UID != "" && now.UID != "" {
		return i.UID != now.UID
	}
	return wasGone && i.Address != "" && now.Address != "" && i.Address != now.Address
}

// findSuccessors ends the drains of instances that are gone and whose id another one has got: a plan removes an instance, not an id. A
// drain that the balancer has of such an id is void, too. While the scaler is stopping the id, it may also stop the other one, which waits.
func findSuccessors(f *Fleet, v *View, told *events) {
	leavers := map[string]Identity{}
	for id := range f.Draining {
		if was, known := f.Leavers[id]; known && !v.present[id] {
			leavers[id] = was
		}
	}
	for i := range v.Members {
		m := &v.Members[i]
		if _, leaves := f.Draining[m.ID]; !leaves {
			continue
		}
		was, known := f.Leavers[m.ID]
		_, gone := f.gone[m.ID]
		switch now := identity(m); {
		case !known || !was.became(now, gone):
			leavers[m.ID] = Identity{cmp.Or(now.UID, was.UID), cmp.Or(now.Address, was.Address)}
			continue
		case stopping(f, m.ID):
			leavers[m.ID] = was
			continue
		}
		delete(f.Draining, m.ID)
		delete(f.Ending, m.ID)
		delete(f.Stuck, m.ID)
		f.voided[m.ID] = true
		told.note("%s is another instance than the one that was removed under this id: it serves", m.ID)
	}
	f.Leavers = leavers
}

// stopping returns whether the scaler is stopping an instance at this moment.
func stopping(f *Fleet, id string) bool {
	done, ending := f.Ending[id]
	return ending && done.IsZero()
}
