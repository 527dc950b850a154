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
}

// Backend is an instance as a balancer is told of it.
type Backend struct {
	ID       string  `json:"id"`
	Address  string  `json:"address"`
	Probe    string  `json:"probe,omitempty"`
	Weight   float64 `json:"weight"`             // fraction of traffic; 0 sends nothing new
	Draining bool    `json:"draining,omitempty"` // open requests finish, no new ones arrive
}

// BackendState is what a balancer says of a backend when read back.
type BackendState struct {
	Backend
	Healthy  bool   `json:"healthy"`
	Health   string `json:"health,omitempty"` // while checks fail: what the last one asked and what it got
	InFlight int64  `json:"in_flight"`
}
