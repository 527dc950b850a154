package haproxy

import (
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/managed"
)

// entry is what is stored about an instance: which server belongs to it.
type entry struct {
	managed.Entry
	Server  string `json:"server"`
	Numeric string `json:"numeric"`         // the same as ip:port
	Added   bool   `json:"added,omitempty"` // at run time: not in HAProxy's configuration

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
