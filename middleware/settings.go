package middleware

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell/setting"
)

// Settings are the configuration of one server.
type Settings struct {
	server *server

	Name       string // the server's name in plans; empty: the kind's
	File       string // the file with its parameters; empty: each parameter names its own
	Template   string // kind template: the file is made from this one
	Parameters []Parameter
	PID        string   // file with the id of the server's main process; empty: there is none
	Check      []string // command that checks the server's files
	Reload     []string // command that makes the server read its files again; empty: a signal does
}

// Parameter is a parameter that may be changed, within its bounds.
type Parameter struct {
	Name     string
	Min, Max float64
	Initial  float64 // kind template: the value in the original file
	File     string  // empty: the server's
}

// fileMark stands, in a command, for the file that is to be checked.
const fileMark = "{file}"

// Keys returns the table of the server's keys.
func (s *Settings) Keys() setting.Table {
	parameters := setting.ListOf(&s.Parameters, Parameter{}, func(p *Parameter) setting.Value { return s.parameterKeys(p) }).AtLeast(1)
	check := "command that checks the server's files before they change; " + fileMark +
		" in it is replaced by the new file, otherwise the command finds the new file in its place"
	name := setting.Opt("name", setting.Ident(&s.Name).Then(undotted), "name of the server in plans, without dots").Or("the kind")
	if s.server.line == nil {
		return setting.Table{name,
			setting.Req("parameters", parameters, "the template's parameters, all of which plans may change"),
			setting.Req("file", setting.Text(&s.File), "the file that is made from the template"),
			setting.Req("template", setting.Text(&s.Template),
				"template of the file, in the language of Go's text/template, with {{.NAME}} for a parameter"),
			setting.Opt("pid", setting.Text(&s.PID), "file with the process id of the running server").Or("it is not checked that the server runs"),
			setting.Opt("check", setting.Command(&s.Check), check).Or("the file is not checked"),
			setting.Req("reload", setting.Command(&s.Reload), "command that makes the server read its files again"),
		}
	}
	table := setting.Table{name,
		setting.Req("parameters", parameters, "the parameters that plans may change; no other is changed"),
		setting.Opt("file", setting.Text(&s.File), "the configuration file that sets the parameters").Or("each parameter names its own"),
		setting.Req("pid", setting.Text(&s.PID), "file with the process id of the running server"),
	}
	if s.server.check == nil {
		table = append(table, setting.Req("check", setting.Command(&s.Check), check))
	} else {
		table = append(table, setting.Opt("check", setting.Command(&s.Check), check).Or("`["+strings.Join(s.server.check, ", ")+"]`"))
	}
	return append(table, setting.Opt("reload", setting.Command(&s.Reload), "command that makes the server read its files again").
		Or(unix.SignalName(s.server.signal)+" is sent to the process in pid"))
}

// undotted refuses names with a dot. A plan's setting is split at the first one.
func undotted(name string) string {
	if strings.Contains(name, ".") {
		return fmt.Sprintf("must not hold '.', which separates server and parameter in plans, is %q", setting.Shorten(name))
	}
	return ""
}

func (s *Settings) parameterKeys(p *Parameter) setting.Table {
	bounds := []setting.Key{
		setting.Req("min", setting.Decimal(&p.Min).AtLeast(0), "least value that a plan may set"),
		setting.Req("max", setting.Decimal(&p.Max).AtLeast(0), "largest value that a plan may set"),
	}
	if s.server.line == nil {
		return append(setting.Table{
			setting.Req("name", setting.Ident(&p.Name), "name of the parameter, in plans and in the template"),
			setting.Req("initial", setting.Decimal(&p.Initial), "the value in the original file"),
		}, bounds...)
	}
	return append(setting.Table{
		setting.Req("name", setting.OneOf(&p.Name, s.server.known), "the parameter, one of those that kind names"),
		setting.Opt("file", setting.Text(&p.File), "the file that sets this parameter").Or("the server's"),
	}, bounds...)
}

// agree reports keys that contradict each other.
func (s *Settings) agree(d *setting.Decoder, path string) {
	for i, p := range s.Parameters {
		at := fmt.Sprintf("%s.parameters[%d]", path, i)
		switch {
		case slices.ContainsFunc(s.Parameters[:i], func(other Parameter) bool { return other.Name == p.Name }):
			d.Refuse(at, "", "%s is listed twice", p.Name)
		case p.Min > p.Max:
			d.Refuse(at+".max", "", "%g is below min, which is %g", p.Max, p.Min)
		case s.server.line != nil && (p.Min != math.Trunc(p.Min) || p.Max != math.Trunc(p.Max)):
			d.Refuse(at, "", "the bounds of %s must be whole numbers", p.Name)
		case p.File == "" && s.File == "":
			d.Refuse(at, "set file here, or for the server", "no file is given in which %s stands", p.Name)
		}
	}
}

// fileOf returns the file in which a parameter stands.
func (s *Settings) fileOf(p Parameter) string {
	if p.File != "" {
		return p.File
	}
	return s.File
}

// files lists the files that may be changed, each once.
func (s *Settings) files() (list []string) {
	for _, p := range s.Parameters {
		if file := s.fileOf(p); !slices.Contains(list, file) {
			list = append(list, file)
		}
	}
	return list
}

// namesIn lists the parameters in a file.
func (s *Settings) namesIn(file string) (names []string) {
	for _, p := range s.Parameters {
		if s.fileOf(p) == file {
			names = append(names, p.Name)
		}
	}
	return names
}

// Without returns the server without some of its parameters.
func (s Server) Without(names []string) Server {
	rest := *s.Settings
	rest.Parameters = slices.DeleteFunc(slices.Clone(rest.Parameters), func(p Parameter) bool { return slices.Contains(names, p.Name) })
	s.Settings = &rest
	return s
}

// Files returns the paths that are relative to the configuration.
func (s *Settings) Files() []*string {
	list := []*string{&s.File, &s.Template, &s.PID}
	for i := range s.Parameters {
		list = append(list, &s.Parameters[i].File)
	}
	return list
}

// syntax returns how the server's parameters stand in its files. mpm is as in directives.
func (s *Settings) syntax(mpm func() (string, error)) syntax {
	if s.server.line != nil && s.server.module != nil {
		return directives{s.server.line, mpm}
	}
	if s.server.line != nil {
		return directives{line: s.server.line}
	}
	initial := map[string]float64{}
	for _, p := range s.Parameters {
		initial[p.Name] = p.Initial
	}
	return rendered{s.Template, initial}
}
