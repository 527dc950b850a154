package command

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/keys"
	"github.com/quellhq/quell/scaler"
)

// Kind is a scaler that uses the user's own programs.
var Kind = scaler.Kind{Name: "command", About: "your own, through programs", Defaults: func() scaler.Settings { return &Settings{} }}

// Settings are its configuration.
type Settings struct{ Start, Stop, List []string }

// Keys is the table of its keys.
func (s *Settings) Keys() keys.Table {
	return keys.Table{
		keys.Req("start", keys.Command(&s.Start), "program that starts instances"),
		keys.Req("stop", keys.Command(&s.Stop), "program that stops instances"),
		keys.Req("list", keys.Command(&s.List), "program that prints the instances as JSON"),
	}
}

// Check finds nothing to report.
func (s *Settings) Check(*keys.Decoder, quell.Service) {}

// New makes the driver.
func (s *Settings) New(scaler.Surroundings) (scaler.Driver, error) {
	return scaler.Made(New(Options{Start: s.Start, Stop: s.Stop, List: s.List}))
}
