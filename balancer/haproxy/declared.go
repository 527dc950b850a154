package haproxy

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

// declaredFor returns the server of HAProxy's configuration that stands for an instance: the one with its id as name, otherwise the only
// one with its address. It returns "" if there is none. numeric is the address as ip:port. unusable says which servers belong to others.
func (d *Driver) declaredFor(id, address, numeric string, v *view, unusable func(string) bool) (string, error) {
	if v.servers[id] != nil && !d.isSlot(id) && !unusable(id) {
		return id, nil
	}
	var fit []string
	for _, name := range v.order {
		s := v.servers[name]
		if !d.isSlot(name) && !unusable(name) && !s.backup && s.hasAddress(address, numeric) {
			fit = append(fit, name)
		}
	}
	switch len(fit) {
	case 0:
		return "", nil
	case 1:
		return fit[0], nil
	}
	return "", fmt.Errorf("servers %s of backend %s all have the address %s of %s: give the instance the name of the one that it is",
		strings.Join(fit, ", "), d.opts.Backend, address, id)
}

// hasAddress returns whether a server has an instance's address, as it was given or as ip:port.
func (s *server) hasAddress(address, numeric string) bool {
	return sameAddress(s.address, numeric) || s.fqdn != "" && net.JoinHostPort(s.fqdn, s.port) == address
}

// recognise returns which instances of a fixed group the servers stand for, before anything was applied.
func (d *Driver) recognise(views []*view) map[string]string {
	found := map[string]string{}
	i := slices.IndexFunc(views, func(v *view) bool { return v != nil })
	if i < 0 {
		return found
	}
	for _, m := range d.opts.Members {
		others := func(name string) bool { return found[name] != "" || d.named(name, m.ID) }
		name, err := d.declaredFor(m.ID, m.Address, m.Address, views[i], others)
		if err == nil && name != "" {
			found[name] = m.ID
		}
	}
	return found
}

// named returns whether another instance of a fixed group has the server's name as id.
func (d *Driver) named(server, id string) bool {
	return server != id && slices.ContainsFunc(d.opts.Members, func(m quell.Member) bool { return m.ID == server })
}

// warnAboutAdded says once what a server added at run time lacks.
func (d *Driver) warnAboutAdded(id string, v *view) {
	const key = "added"
	if d.told[key] {
		return
	}
	d.told[key] = true
	tls := slices.ContainsFunc(v.order, func(name string) bool { return v.servers[name].tls })
	if tls && !slices.Contains(strings.Fields(d.opts.Server), "ssl") {
		d.opts.Logger.Warn("a server is added without TLS beside servers that have it: `default-server` does not reach added servers, so put "+
			"`ssl` and what belongs to it into balancer.haproxy.server", "server", d.opts.Backend+"/"+id)
		return
	}
	d.opts.Logger.Info("a server is added: `default-server` does not reach it, its parameters are those of balancer.haproxy.server",
		"server", d.opts.Backend+"/"+id, "parameters", d.opts.Server)
}
