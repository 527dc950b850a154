package builtin

import (
	"context"
	"time"

	"github.com/quellhq/quell"
)

// ownership is the controller that the balancer obeys. Server.applying guards it. If that controller disappears, other controllers are kept
// out until its lease ends; the same controller may return at once.
type ownership struct {
	quell.Owner
	until time.Time // end of the lease, by the monotonic clock
}

// Own makes a controller the owner, or renews its lease. While another controller's lease is valid, it fails with a *quell.OwnedError.
func (s *Server) Own(_ context.Context, owner quell.Owner) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if owner.ID == "" {
		return &quell.InvalidError{Path: "id", Problem: "missing"}
	}
	return s.own(owner)
}

func (s *Server) own(owner quell.Owner) error {
	now := time.Now()
	if s.owner.ID != "" && s.owner.ID != owner.ID && now.Before(s.owner.until) {
		return &quell.OwnedError{Balancer: "balancer " + s.opts.Name, Owner: s.owner.Owner, Lease: s.opts.Lease}
	}
	was := s.owner.Owner
	s.owner = ownership{owner, now.Add(s.opts.Lease)}
	if was == owner {
		return nil
	}
	s.opts.Logger.Info("a controller drives this balancer", "controller", owner.Name, "before", was.Name)
	s.keepOwner()
	return nil
}

// Disown ends a controller's lease when the controller stops.
func (s *Server) Disown(_ context.Context, id string) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.owner.ID == id && id != "" {
		s.owner = ownership{}
		s.keepOwner()
	}
	return nil
}

func (s *Server) keepOwner() {
	if s.opts.Admin == "" {
		return
	}
	if err := s.memory.saveOwner(s.owner.Owner); err != nil {
		s.opts.Logger.Error("a restart would forget which controller drives this balancer", "error", err)
	}
}

// applyAs does what Apply does, on behalf of a controller, which must be the owner.
func (s *Server) applyAs(id string, desired []quell.Backend) error {
	if err := checkBackends(desired); err != nil {
		return err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	name := ""
	if id == s.owner.ID {
		name = s.owner.Name
	}
	if err := s.own(quell.Owner{ID: id, Name: name}); err != nil {
		return err
	}
	s.put(desired)
	return nil
}

// applyByHand applies a list that a person sent. If the list drains a backend that was not draining, the backend is held; if it no longer
// drains a held backend, the hold ends. Everything else is in force only until the controller applies its next list.
func (s *Server) applyByHand(desired []quell.Backend) error {
	if err := checkBackends(desired); err != nil {
		return err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	drainedBy := map[string]bool{} // by the controller
	for _, b := range s.pool.state() {
		drainedBy[b.ID] = b.Draining
	}
	asked := make([]quell.Backend, len(desired))
	for i, b := range desired {
		asked[i] = b
		asked[i].Draining, asked[i].Held = b.Draining && drainedBy[b.ID], b.Held && drainedBy[b.ID]
	}
	s.pool.apply(asked, time.Now())
	for _, b := range desired {
		switch {
		case b.Draining && !drainedBy[b.ID]:
			s.pool.hold(b.ID, byHand())
		case !b.Draining:
			s.pool.hold(b.ID, nil)
		}
	}
	s.keep()
	return nil
}

// hold takes one instance out of rotation on behalf of a person, or puts it back.
func (s *Server) hold(id string, held *quell.Held) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if !s.pool.hold(id, held) {
		return &quell.InvalidError{Path: "id", Problem: "there is no backend " + id}
	}
	s.keep()
	return nil
}

// byHand describes who took an instance out at this balancer.
func byHand() *quell.Held { return &quell.Held{By: "balancer", Since: time.Now().UTC()} }

// Release puts an instance back that a person took out at this balancer.
func (s *Server) Release(_ context.Context, id string) error { return s.hold(id, nil) }
