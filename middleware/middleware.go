// Package middleware changes parameters of servers on this machine: it edits a server's configuration file, has the server check it, and
// makes the server read it again. What it changed is restored when the agent stops, or at its next start if it was killed.
//
// Each kind of server has a file here that says how parameters stand in its configuration, and a line in daemon/drivers.go.
package middleware

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"github.com/quellhq/quell/setting"
)

// Kind describes a kind of server: its name in agent.middleware[].kind, a short description, and its settings.
type Kind = setting.Kind[*Settings]

// server is what differs between the kinds of servers.
type server struct {
	name     string
	known    []string       // parameters that this kind of server has; nil: those that the template uses
	programs []string       // how the names of its processes begin; nil: not known
	signal   syscall.Signal // makes the server read its files again without failing a request; 0: a command is needed
	check    []string       // the usual command that checks the server's files; nil: there is none
	// line returns the pattern of the text that sets a parameter, see directives. nil: the file is made from a template.
	line func(name string) string
	// module returns the module of the running server that decides which blocks of its files count, see directives. nil: all blocks count.
	module func(ctx context.Context, pid int) (string, error)
	// workers lists the processes that take new requests; a reload replaces them at once. nil: they are not known.
	workers func(pid int) []string
	// counts is the parameter that says how many workers there are; empty: none does.
	counts string
}

// kindOf makes the row that a kind of server has in the table of kinds.
func kindOf(s *server, about string) Kind {
	return Kind{Name: s.name, About: about, Defaults: func() *Settings { return &Settings{server: s, Check: s.check} }}
}

// syntax says how a server's parameters stand in its configuration file.
type syntax interface {
	// values reads parameters from a file's content. Parameters whose value is not a number are left out. It is an error if one of them
	// could not be changed. set has the values that Quell gave the file; it is nil if the file is the original.
	values(content string, names []string, set map[string]float64) (map[string]float64, error)
	// word returns the text of a parameter's value in the original content; empty if it has none.
	word(original, name string) string
	// with returns the content with these values of parameters.
	with(content string, values map[string]float64) (string, error)
}

// Server is a server of the configuration.
type Server struct {
	Kind     string
	Settings *Settings
}

// String describes the server completely, so that a change can be noticed.
func (s Server) String() string {
	if s.Settings == nil {
		return s.Kind
	}
	o := s.Settings
	return fmt.Sprint(s.Kind, o.Name, o.File, o.Template, o.Parameters, o.PID, o.Check, o.Reload)
}

// Target returns the server's name in plans.
func (s Server) Target() string {
	if s.Settings == nil || s.Settings.Name == "" {
		return s.Kind
	}
	return s.Settings.Name
}

// Value reads a server from a configuration.
func (s *Server) Value(kinds []Kind) setting.Value {
	return setting.ByKind(&s.Kind, &s.Settings, kinds)
}

// Check reports mistakes in the list of servers at a path: keys that contradict each other, names and files that are given twice.
func Check(d *setting.Decoder, path string, servers []Server) {
	var targets, files []string
	for i, s := range servers {
		at := fmt.Sprintf("%s[%d]", path, i)
		if !d.Sound(at) {
			continue
		}
		s.Settings.agree(d, at)
		if slices.Contains(targets, s.Target()) {
			d.Refuse(at, "give each a name of its own", "two servers are called %s", s.Target())
		}
		for _, file := range s.Settings.files() {
			if slices.Contains(files, file) {
				d.Refuse(at, "list each file under one server", "%s is listed twice", file)
			}
			files = append(files, file)
		}
		targets = append(targets, s.Target())
	}
}
