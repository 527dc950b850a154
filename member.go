package quell

import "time"

// Member is an instance as a scaler reports it.
type Member struct {
	ID      string    `json:"id"`
	UID     string    `json:"uid,omitempty"` // another one if the id is used again, for another instance; "": not known
	Type    string    `json:"type,omitempty"`
	Address string    `json:"address"`         // host:port of the service
	Probe   string    `json:"probe,omitempty"` // host:port of the probe server, if there is one
	State   State     `json:"state"`           // Starting, Ready, Draining (the scaler is stopping it) or Failed (it exited by itself)
	Started time.Time `json:"started"`         // when the start command was given
	Exited  time.Time `json:"exited,omitzero"` // when a failed instance exited, if its scaler knows
}

// IDs lists the ids of members, in their order.
func IDs(members []Member) []string {
	ids := make([]string, len(members))
	for i := range members {
		ids[i] = members[i].ID
	}
	return ids
}

// Backend is an instance as it is given to a balancer.
type Backend struct {
	ID       string  `json:"id"`
	Address  string  `json:"address"`
	Probe    string  `json:"probe,omitempty"`
	Weight   float64 `json:"weight"`             // fraction of traffic; 0: no new requests
	Draining bool    `json:"draining,omitempty"` // open requests finish, no new ones arrive
	// Held says that a person took the draining backend out of rotation. Its open requests are never cut.
	Held bool `json:"held,omitempty"`
}

// Held says that a person took an instance out of rotation, and since when it has been out.
type Held struct {
	By    string    `json:"by"` // name of the person, or of the balancer at which it was done
	Since time.Time `json:"since"`
	// Why says what takes it out if that is no command of a person at the balancer, for example a health check by which it took itself out.
	Why string `json:"why,omitempty"`
}

// Owner is the controller that a balancer obeys.
type Owner struct {
	ID   string `json:"id"`             // stored in the controller's memory, so it is the same after a restart
	Name string `json:"name,omitempty"` // for people
}

// BackendState is a backend as the balancer reports it.
type BackendState struct {
	Backend
	Healthy  bool   `json:"healthy"`
	Health   string `json:"health,omitempty"` // while checks fail: the last check's request and its answer
	InFlight int64  `json:"in_flight"`
	// Foreign is set if the backend was in the balancer before Quell gave the balancer any.
	Foreign bool `json:"foreign,omitempty"`
	// Base is the weight that people gave the backend, relative to the others': what they know of its size. Nil: nobody chose one, which
	// counts as 1. A driver reports the same value as long as the balancer's configuration does not change, whatever Quell set since.
	Base *float64 `json:"base,omitempty"`
	// ByHand is set if a person took the backend out of rotation at the balancer itself, or if the backend took itself out. The driver's
	// Apply does not put it back. A zero Since means that the balancer does not know when this happened.
	ByHand *Held `json:"by_hand,omitempty"`
}
