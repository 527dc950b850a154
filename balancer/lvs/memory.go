package lvs

import (
	"net/netip"

	"github.com/quellhq/quell/balancer"
)

// entry is what is stored about an instance: its real server, and who took it out.
type entry struct {
	ID      string         `json:"id"`
	Address string         `json:"address"` // as it was given
	Numeric netip.AddrPort `json:"numeric"`
	Probe   string         `json:"probe,omitempty"`
	Leaving bool           `json:"leaving,omitempty"` // no longer requested, and its weight may not be 0 yet
	Drain   bool           `json:"drain,omitempty"`   // was requested to drain
	Held    bool           `json:"held,omitempty"`    // because a person asked Quell for it

	In map[string]*trace `json:"in,omitempty"` // by virtual service

	Before map[string]int `json:"before,omitempty"` // weights before Quell, by virtual service
}

func memory(o *Options) balancer.Memory[entry] {
	return balancer.Memory[entry]{
		Path: o.Memory, About: "which real server stands for which instance",
		Remedy: "delete it, and Quell finds the real servers by their addresses",
		Valid:  func(e *entry) bool { return e.ID != "" && e.Numeric.IsValid() }, Logger: o.Logger,
	}
}
