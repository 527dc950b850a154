package fixed

import (
	"fmt"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/setting"
)

// Kind is a list of machines in the configuration.
var Kind = scaler.Kind{Name: "fixed", About: "the instances listed", Defaults: func() scaler.Settings { return &Settings{} }}

// Settings are its configuration. Instances have an id, an address, and optionally a probe address and a type.
type Settings struct{ Instances []quell.Member }

// Keys is the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Req("instances",
			setting.ListOf(&s.Instances, quell.Member{}, func(m *quell.Member) setting.Value { return memberKeys(m) }).AtLeast(1),
			"the instances; group.min and group.max are their number"),
	}
}

func memberKeys(m *quell.Member) setting.Table {
	return setting.Table{
		setting.Req("id", setting.Ident(&m.ID), "id of the instance"),
		setting.Req("address", setting.RemoteAddress(&m.Address), "host:port of the service"),
		setting.Opt("probe", setting.RemoteAddress(&m.Probe), "host:port of its agent's probe server"),
		setting.Opt("type", setting.Text(&m.Type), "type of the machine"),
	}
}

// Listed returns the instances, whose number never changes.
func (s *Settings) Listed() []quell.Member { return s.Instances }

// Check reports instances that are listed twice, and protected ones that are not listed.
func (s *Settings) Check(d *setting.Decoder, service quell.Service) {
	ids, addresses := map[string]bool{}, map[string]bool{}
	for i, m := range s.Instances {
		path := fmt.Sprintf("scaler.instances[%d]", i)
		if d.Sound(path+".id") && ids[m.ID] {
			d.Refuse(path+".id", "", "%q is listed twice", m.ID)
		}
		if d.Sound(path+".address") && addresses[m.Address] {
			d.Refuse(path+".address", "", "%s is listed twice", m.Address)
		}
		ids[m.ID], addresses[m.Address] = true, true
	}
	if !d.Sound("scaler.instances") {
		return
	}
	for i, id := range service.Group.Protected {
		if path := fmt.Sprintf("group.protected[%d]", i); d.Sound(path) && !ids[id] {
			d.Refuse(path, "", "%q is not in scaler.instances", id)
		}
	}
}

// New makes the driver.
func (s *Settings) New(scaler.Env) (scaler.Driver, error) {
	return scaler.Made(New(s.Instances))
}
