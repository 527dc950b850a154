package haproxy

import (
	"github.com/quellhq/quell/balancer"
)

// entry is what is stored about an instance: which server belongs to it.
type entry struct {
	ID      string `json:"id"`
	Server  string `json:"server"`
	Address string `json:"address"` // as it was given
	Numeric string `json:"numeric"` // the same as ip:port
	Probe   string `json:"probe,omitempty"`
	Added   bool   `json:"added,omitempty"`   // at run time: not in HAProxy's configuration
	Leaving bool   `json:"leaving,omitempty"` // no longer requested
	Drain   bool   `json:"drain,omitempty"`   // was requested to drain
	Held    bool   `json:"held,omitempty"`    // because a person asked Quell for it

	At map[string]*trace `json:"at,omitempty"` // by HAProxy's socket

	Before map[string]before `json:"before,omitempty"` // what the server had before Quell, by socket; nil: Quell added the server
}

func memory(o *Options) balancer.Memory[entry] {
	return balancer.Memory[entry]{
		Path: o.Memory, About: "which server stands for which instance",
		Remedy: "delete it, and Quell finds the servers by their names and addresses",
		Valid:  func(e *entry) bool { return e.ID != "" && names.MatchString(e.Server) }, Logger: o.Logger,
	}
}
