// Package record has what is stored about an instance's line in a file of nginx's servers: what Quell wrote there, and what people wrote.
package record

import (
	"log/slog"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/managed"
	"github.com/quellhq/quell/balancer/nginx/include"
)

// Entry is what is stored about an instance.
type Entry struct {
	managed.Entry

	Added  bool `json:"added,omitempty"`   // Quell added the line
	Base   int  `json:"base,omitempty"`    // the weight that people wrote into it; 0: Quell added it
	Weight int  `json:"weight,omitempty"`  // the weight that Quell wrote or found last
	Down   bool `json:"down,omitempty"`    // Quell wrote down, or has not yet taken it away
	ByHand bool `json:"by_hand,omitempty"` // somebody else wrote down, or removed the line
	// Unsure says that a change of the line may not be in force: it is stored before the file is written, and removed after the reload.
	Unsure bool `json:"unsure,omitempty"`
}

// Memory is the file of all entries.
func Memory(path string, logger *slog.Logger) balancer.Memory[Entry] {
	return balancer.Memory[Entry]{
		Path: path, About: "which line of nginx's servers stands for which instance",
		Remedy: "delete it, and Quell finds the lines by their addresses",
		Valid:  func(e *Entry) bool { return e.ID != "" && e.Address != "" }, Logger: logger,
	}
}

// Of makes the entry of an instance that is new, or whose address is. s is its line, nil if there is none. In a fixed group a line that is
// down at that time was taken out by a person.
func Of(b quell.Backend, s *include.Server, fixed bool) *Entry {
	e := &Entry{Entry: managed.Of(b), Added: s == nil}
	if s != nil {
		e.Base, e.Weight, e.ByHand = s.Weight, s.Weight, s.Down && fixed
		e.Down = s.Down && !e.ByHand
	}
	return e
}

// Inherit takes over what is known of the line from the entry whose it was.
func (e *Entry) Inherit(old *Entry) {
	e.Added, e.Base, e.Unsure = old.Added, old.Base, old.Unsure
	if old.Down && e.ByHand {
		e.ByHand, e.Down = false, true
	}
}

// Notice compares an entry with its line, nil if there is none: what differs from what Quell wrote was written by somebody else.
func (e *Entry) Notice(s *include.Server, logger *slog.Logger) {
	if e.Unsure {
		return
	}
	was := e.ByHand
	switch {
	case s == nil:
		e.ByHand = !e.Added && !e.Leaving
	case s.Down:
		e.ByHand = e.ByHand || !e.Down && !e.Leaving
	default:
		e.ByHand = false
	}
	if e.ByHand && !was {
		logger.Warn("somebody took a server out of nginx: the instance is held until its line is back without down", "instance", e.ID)
	}
	if was && !e.ByHand {
		logger.Info("a server that somebody took out of nginx is back", "instance", e.ID)
		e.Down = false
	}
	if s != nil && !s.Down && e.Weight > 0 && s.Weight != e.Weight {
		logger.Warn("somebody changed the weight of a server: it counts as the machine's size from now on", "instance", e.ID,
			"from", e.Weight, "to", s.Weight)
		e.Base, e.Weight = s.Weight, s.Weight
	}
}

// Release ends a hold: the down of a person counts as Quell's, which takes it away.
func (e *Entry) Release() {
	if e.ByHand {
		e.ByHand, e.Down = false, true
	}
}

// Wrote notes what is about to be written into the line.
func (e *Entry) Wrote(weight int, down bool) { e.Weight, e.Down, e.Unsure = weight, down, true }

// Left returns whether the instance has left, and its line, which a person wrote, stays and is down.
func (e *Entry) Left() bool { return e.Leaving && !e.Added && !e.Unsure && (e.Down || e.ByHand) }

// Restore brings a line, nil if there is none, to what it was before Quell. What a person wrote since then stays.
func (e *Entry) Restore(s *include.Server, edit *include.Edit) {
	if s == nil {
		return
	}
	weight, down := e.Base, s.Down && e.ByHand
	if down && s.Weight != e.Weight {
		weight = s.Weight // it came with the person's down
	}
	switch {
	case e.Added:
		edit.Remove(s)
	case s.Weight != weight || s.Down != down:
		edit.Set(s, weight, down)
	}
}
