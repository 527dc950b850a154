package command

import (
	"path/filepath"
	"strings"

	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/setting"
)

// Kind is a balancer that is controlled by the user's own programs.
var Kind = balancer.Kind{
	Name: "command", About: "your own, through programs",
	Defaults: func() balancer.Settings { return &Settings{} },
}

// Settings are its configuration.
type Settings struct {
	Command      []string
	StateCommand []string // empty: what is in force cannot be read back
}

// Keys returns the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Req("command", setting.Command(&s.Command), "program that reads backends as JSON on standard input and applies them"),
		setting.Opt("state_command", setting.Command(&s.StateCommand), "program that prints the backends in force as JSON"),
	}
}

// Check does nothing, because no keys can contradict each other.
func (s *Settings) Check(*setting.Decoder) {}

// Where returns the program.
func (s *Settings) Where() string { return strings.Join(s.Command, " ") }

// New makes the driver.
func (s *Settings) New(in balancer.Service) (balancer.Driver, error) {
	return balancer.Made(New(Options{
		Service: in.Name, Command: s.Command, StateCommand: s.StateCommand, Memory: filepath.Join(in.Data, "serving.json"), Logger: in.Logger,
	}))
}

// Parts returns the state command as the only part, if there is one.
func (s *Settings) Parts(in balancer.Service) []balancer.Part {
	if len(s.StateCommand) == 0 {
		return nil
	}
	return []balancer.Part{{
		About: "balancer.state_command " + strings.Join(s.StateCommand, " ") + ": backends",
		Open: func() (balancer.Driver, error) {
			return balancer.Made(New(Options{Service: in.Name, Command: s.Command, StateCommand: s.StateCommand}))
		},
	}}
}
