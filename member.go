package quell

import "time"

// Member is an instance as a scaler sees it.
type Member struct {
	ID      string    `json:"id"`
	Type    string    `json:"type,omitempty"`
	Address string    `json:"address"`         // host:port of the service
	Probe   string    `json:"probe,omitempty"` // host:port of the probe server, if there is one
	State   State     `json:"state"`           // Starting, Ready, Draining (stopping) or Failed (exited by itself)
	Started time.Time `json:"started"`         // when the start command was given
	Exited  time.Time `json:"exited,omitzero"` // of a failed one, where its scaler knows: when it exited
}

// Backend is an instance as a balancer is told of it.
type Backend struct {
	ID       string  `json:"id"`
	Address  string  `json:"address"`
	Probe    string  `json:"probe,omitempty"`
	Weight   float64 `json:"weight"`             // fraction of traffic; 0 sends nothing new
	Draining bool    `json:"draining,omitempty"` // open requests finish, no new ones arrive
	// Held says that a draining backend stays: a person took it out. Its open requests are never cut.
	Held bool `json:"held,omitempty"`
}

// Held says who took an instance out of rotation by hand, and since when.
type Held struct {
	By    string    `json:"by"` // a person, or the balancer where it was done
	Since time.Time `json:"since"`
}

// Owner is the controller that a balancer obeys.
type Owner struct {
	ID   string `json:"id"`             // of the controller's memory: the same after a restart
	Name string `json:"name,omitempty"` // for people
}

// BackendState is what a balancer says of a backend when read back.
type BackendState struct {
	Backend
	Healthy  bool   `json:"healthy"`
	Health   string `json:"health,omitempty"` // while checks fail: what the last one asked and what it got
	InFlight int64  `json:"in_flight"`
	// Foreign marks a backend that the balancer had before Quell gave it any.
	Foreign bool `json:"foreign,omitempty"`
	// ByHand is set where somebody took the backend out at the balancer itself. No Apply puts it back.
	// A zero Since means that the balancer does not know.
	ByHand *Held `json:"by_hand,omitempty"`
}
