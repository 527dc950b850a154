package nginx

import (
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/managed"
)

// entry is what is stored about an instance: what Quell wrote into its line, and what was there before.
type entry struct {
	managed.Entry

	Added  bool `json:"added,omitempty"`   // Quell added the line
	Base   int  `json:"base,omitempty"`    // the weight that people wrote into it; 0: Quell added it
	Weight int  `json:"weight,omitempty"`  // the weight that Quell wrote or found last
	Down   bool `json:"down,omitempty"`    // Quell wrote down, or has not yet taken it away
	ByHand bool `json:"by_hand,omitempty"` // somebody else wrote down, or removed the line
	// Unsure says that a change of the line may not be in force: it is stored before the file is written, and removed after the reload.
	Unsure bool `json:"unsure,omitempty"`
}

func memory(o *Options) balancer.Memory[entry] {
	return balancer.Memory[entry]{
		Path: o.Memory, About: "which line of nginx's servers stands for which instance",
		Remedy: "delete it, and Quell finds the lines by their addresses",
		Valid:  func(e *entry) bool { return e.ID != "" && e.Address != "" }, Logger: o.Logger,
	}
}
