package command

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/setting"
)

// Kind is a scaler that uses the user's own programs.
var Kind = scaler.Kind{Name: "command", About: "your own, through programs", Defaults: func() scaler.Settings { return &Settings{} }}

// Settings are its configuration.
type Settings struct{ Start, Stop, List []string }

// Keys is the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Req("start", setting.Command(&s.Start), "program that starts instances"),
		setting.Req("stop", setting.Command(&s.Stop), "program that stops instances"),
		setting.Req("list", setting.Command(&s.List), "program that prints the instances as JSON"),
	}
}

// Check finds nothing to report.
func (s *Settings) Check(*setting.Decoder, quell.Service) {}

// New makes the driver.
func (s *Settings) New(scaler.Env) (scaler.Driver, error) {
	return scaler.Made(New(Options{Start: s.Start, Stop: s.Stop, List: s.List}))
}
