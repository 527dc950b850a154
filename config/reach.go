package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// checkReach checks that the agents of listed machines can reach the bus, that the prober can reach them, and that each has a probe server
// of its own.
func checkReach(d *setting.Decoder, f *File) {
	members, _ := f.Scaler.Listed()
	if !d.Sound("scaler.instances") {
		return
	}
	for i, m := range members {
		same := func(other quell.Member) bool { return other.Probe == m.Probe }
		if first := slices.IndexFunc(members[:i], same); m.Probe != "" && first >= 0 {
			d.Refuse(fmt.Sprintf("scaler.instances[%d].probe", i), "give each machine the address of its own agent",
				"%s is the probe server of %s, too", m.Probe, members[first].ID)
		}
	}
	agent := f.agentAway()
	if agent == "" {
		return
	}
	if listen, d := f.Bus.Listen, f.sharedPlaces(d); f.Bus.URL == "" && d.Sound("bus") {
		const hint = "write the address at which other machines reach this one, as in 10.0.0.2:4222"
		switch {
		case setting.Loopback(listen):
			d.Refuse("bus.listen", hint, "only this machine reaches %s, and %s", listen, agent)
		case unspecified(listen):
			d.Refuse("bus.listen", hint, "agents connect to bus.listen, and other machines cannot connect to %s; %s", listen, agent)
		}
	}
	if d.Given("probe.listen") && d.Sound("probe") && setting.Loopback(f.Probe.Listen) {
		d.Refuse("probe.listen", "write 0.0.0.0 and the port, and set probe.token_file", "only this machine reaches %s, and %s",
			f.Probe.Listen, agent)
	}
}

// checkOwn refuses a listed instance that is the balancer itself: requests would go in circles.
func checkOwn(d *setting.Decoder, f *File) {
	s, ok := f.Balancer.Settings.(interface{ Clients() string })
	if !ok || !d.Sound("balancer", "scaler.instances") {
		return
	}
	members, _ := f.Scaler.Listed()
	for i, m := range members {
		if reaches(m.Address, s.Clients()) {
			d.Refuse(fmt.Sprintf("scaler.instances[%d].address", i), "write the address of the instance itself",
				"at %s clients connect to the balancer (balancer.listen): requests would go in circles", m.Address)
		}
	}
}

// agentAway names an agent on another machine; "" if none is surely there.
func (f *File) agentAway() string {
	members, _ := f.Scaler.Listed()
	away := slices.IndexFunc(members, func(m quell.Member) bool { return elsewhere(m.Probe) })
	if away < 0 {
		return ""
	}
	return fmt.Sprintf("the agent of %s is at %s", members[away].ID, members[away].Probe)
}

// elsewhere returns whether an address is surely not one of loopback. A name may be.
func elsewhere(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && !ip.IsLoopback()
}

// unspecified returns whether a listener's address stands for all addresses of its machine.
func unspecified(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(cmp.Or(host, "::"))
	return err == nil && ip.IsUnspecified()
}

// reaches returns whether a connection from a listener's machine to address surely reaches that listener.
func reaches(address, listen string) bool {
	_, port, err := net.SplitHostPort(address)
	_, listens, failed := net.SplitHostPort(listen)
	return err == nil && failed == nil && port == listens && (address == listen || setting.Loopback(address) && unspecified(listen))
}

// checkMeasured checks that the balancer's driver can measure the objective.
func checkMeasured(d *setting.Decoder, f *File) {
	s, ok := f.Balancer.Settings.(interface {
		CheckObjective(*setting.Decoder, quell.Metric)
	})
	if ok && d.Sound("slo", "balancer") {
		s.CheckObjective(d, f.Service.SLO.Metric)
	}
}

const (
	// longThreshold is a threshold that is more likely a wrong unit.
	longThreshold = 10 * time.Second
	// shortSampling is a period in which few services have enough requests and probes.
	shortSampling = time.Second
)

// Notes returns remarks about a configuration without mistakes: what can be meant, but seldom is.
func (f *File) Notes() (notes []string) {
	if f.Local() {
		return nil
	}
	if s := f.Service; s.SLO.Threshold >= longThreshold {
		notes = append(notes, fmt.Sprintf("slo.threshold is %s: is that the unit you mean? 75ms is 75 milliseconds",
			setting.FormatDuration(s.SLO.Threshold)))
	}
	if s := f.Service.SLO; s.Target == 0 && s.Over != quell.DefaultService().SLO.Over {
		notes = append(notes, "slo.over has no effect without slo.target: no error budget is kept")
	}
	if s := f.Service; s.Sampling < shortSampling {
		notes = append(notes, fmt.Sprintf("sampling is %s: so short a period has few requests and probes, and severity varies by chance; write "+
			"1s or more, and use policy.fast to react sooner", setting.FormatDuration(s.Sampling)))
	}
	if agent := f.agentAway(); agent != "" && !f.Unprobed() && !f.places.Given("probe.listen") {
		notes = append(notes, fmt.Sprintf("probe.listen is left out, so that an agent with this file answers probes of its own machine only "+
			"(%s), and %s: write 0.0.0.0 and the port, and set probe.token_file, unless agents have files of their own", f.Probe.Listen, agent))
	}
	if f.Bus.URL == "" && (f.Bus.Token != "" || f.Bus.TokenFile != "") {
		notes = append(notes, "every process that has bus.token may send readings of any instance; give each process its own: quell credentials "+
			"--help")
	}
	for _, driver := range []any{f.Balancer.Settings, f.Scaler.Settings} {
		if s, ok := driver.(interface{ Notes() []string }); ok {
			notes = append(notes, s.Notes()...)
		}
	}
	return notes
}
