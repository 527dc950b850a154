package lvs

import (
	"net/netip"

	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/managed"
)

// entry is what is stored about an instance: its real server, and who took it out.
type entry struct {
	managed.Entry
	Numeric netip.AddrPort `json:"numeric"`

	// Gone says that the instance left, and its real server has the weight 0 that Quell gave it. If it comes back, the 0 is no person's.
	Gone bool `json:"gone,omitempty"`

	In map[string]*trace `json:"in,omitempty"` // by virtual service

	Before map[string]int `json:"before,omitempty"` // weights before Quell, by virtual service
	moved  bool           // its address is new, and what was there before Quell is not recorded yet
}

func memory(o *Options) balancer.Memory[entry] {
	return balancer.Memory[entry]{
		Path: o.Memory, About: "which real server stands for which instance",
		Remedy: "delete it, and Quell finds the real servers by their addresses",
		Valid:  func(e *entry) bool { return e.ID != "" && e.Numeric.IsValid() }, Logger: o.Logger,
	}
}
