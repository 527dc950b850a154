package lvs

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/setting"
)

// Kind is Linux Virtual Server (IPVS) in the kernel of the controller's machine.
var Kind = balancer.Kind{
	Name: "lvs", About: "Linux Virtual Server (IPVS) in this machine's kernel",
	Defaults: func() balancer.Settings { return &Settings{Zero: ZeroHeld} },
}

// Settings are its configuration.
type Settings struct {
	Services []string // virtual services in front of the instances, as parseVirtual reads them
	Zero     ZeroMeans
}

// Keys returns the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Req("lvs", setting.Table{
			setting.Req("services",
				setting.ListOf(&s.Services, "", func(s *string) setting.Value { return setting.Text(s).Then(isVirtual) }).AtLeast(1),
				"virtual services whose real servers are the instances: 10.0.0.1:80 (TCP), udp:10.0.0.1:53, fwmark:7 or fwmark6:7"),
			setting.Opt("zero", setting.OneOf(&s.Zero, []ZeroMeans{ZeroHeld, ZeroFailed}),
				"what a weight of 0 means that Quell did not set: held by a person, or failed, where a checker sets it (inhibit_on_failure)"),
		}, "the virtual services; they and their real servers are made by others"),
	}
}

// isVirtual checks how a virtual service is written.
func isVirtual(text string) string {
	if _, err := parseVirtual(text); err != nil {
		return fmt.Sprintf("must be a virtual service as in 10.0.0.1:80, udp:10.0.0.1:53 or fwmark:7, is %q", setting.Shorten(text))
	}
	return ""
}

// Check reports a virtual service that is listed twice.
func (s *Settings) Check(d *setting.Decoder) {
	var seen []virtual
	for i, text := range s.Services {
		path := fmt.Sprintf("balancer.lvs.services[%d]", i)
		v, err := parseVirtual(text)
		if err == nil && d.Sound(path) && slices.Contains(seen, v) {
			d.Refuse(path, "", "%s is listed twice", text)
		}
		seen = append(seen, v)
	}
}

// Where returns the virtual services, as text for people.
func (s *Settings) Where() string { return strings.Join(s.Services, ",") }

// Manages names the virtual services. No two services can use the same.
func (s *Settings) Manages() (names []string) {
	for _, text := range s.Services {
		if v, err := parseVirtual(text); err == nil {
			names = append(names, fmt.Sprintf("virtual service %v", v))
		}
	}
	return names
}

// New makes the driver.
func (s *Settings) New(in balancer.Service) (balancer.Driver, error) {
	return balancer.Made(New(Options{
		Services: s.Services, Zero: s.Zero, Members: in.Members, Memory: filepath.Join(in.Data, "lvs.json"), Logger: in.Logger,
	}))
}

// Parts returns one part, which reports the real servers.
func (s *Settings) Parts(in balancer.Service) []balancer.Part {
	return []balancer.Part{{
		About: "IPVS: real servers of " + s.Where(),
		Open: func() (balancer.Driver, error) {
			return balancer.Made(New(Options{Services: s.Services, Zero: s.Zero, Members: in.Members, Logger: slog.New(slog.DiscardHandler)}))
		},
	}}
}
