package dns

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/setting"
)

// Kind is a list of instances in DNS.
var Kind = scaler.Kind{Name: "dns", About: "a list in DNS that others keep", Defaults: func() scaler.Settings { return &Settings{} }}

// Settings are its configuration.
type Settings struct {
	Names     []string
	Resolver  string
	ProbePort int
}

// Keys is the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Req("names", setting.ListOf(&s.Names, "", func(n *string) setting.Value { return setting.Text(n).Then(nameProblem) }).AtLeast(1),
			"names whose records are the instances: host:port for records of type A or AAAA, or a name such as _http._tcp.example.com "+
				"for records of type SRV"),
		setting.Opt("resolver", setting.RemoteAddress(&s.Resolver), "host:port of the server that is asked").Or("the system's"),
		setting.Opt("probe_port", setting.Whole(&s.ProbePort).Between(1, 65535), "port of the agents' probe servers").Or("none"),
	}
}

// nameProblem returns what is wrong with a name, "" if nothing is.
func nameProblem(name string) string {
	if !isService(name) {
		if problem := setting.AddressProblem(name, true); problem != "" {
			return problem + "; a name of records of type SRV begins with _, as in _http._tcp.example.com"
		}
		return ""
	}
	if strings.ContainsAny(name, ":/ ") {
		return "a name that begins with _ has records of type SRV, which give the port: leave out the port"
	}
	return ""
}

// OnlyLists says that the number of instances is somebody else's business.
func (s *Settings) OnlyLists() {}

// Check reports names that are listed twice.
func (s *Settings) Check(d *setting.Decoder, _ quell.Service) {
	for i, name := range s.Names {
		if path := fmt.Sprintf("scaler.names[%d]", i); d.Sound(path) && slices.Contains(s.Names[:i], name) {
			d.Refuse(path, "", "%s is listed twice", name)
		}
	}
}

// New makes the driver.
func (s *Settings) New(scaler.Env) (scaler.Driver, error) {
	return New(Options{Names: s.Names, Resolver: s.Resolver, Probe: s.ProbePort}), nil
}
