package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

// checkFile holds the parts of a configuration against each other. A check is left out where one of its parts has a
// problem already.
func checkFile(d *decoder, f *File) {
	checkService(d, "", f.Service)
	checkBus(d, f.Bus)
	checkBalancer(d, f)
	checkScaler(d, f)
	checkProbe(d, f)
	checkTrain(d, f.Train)
	d.apart("listen", f.Listen, "bus.listen", f.Bus.Listen)
	d.apart("balancer.listen", f.Balancer.Listen, "balancer.metrics", f.Balancer.Metrics)
	d.apart("probe.listen", f.Probe.Listen, "agent.metrics", f.Agent.Metrics)
}

// checkService checks a service that stands at the given path.
func checkService(d *decoder, path string, s quell.Service) {
	at := func(key string) string { return join(path, key) }
	minimum, maximum := at("group.min"), at("group.max")
	checkBounds(d, path, s.Group)
	if initial := at("group.initial"); s.Group.Initial != 0 && d.sound(initial, minimum, maximum) &&
		(s.Group.Initial < s.Group.Min || s.Group.Initial > s.Group.Max) {
		d.refuse(initial, "", "%d is not between %s and %s (%d to %d)", s.Group.Initial, minimum, maximum, s.Group.Min, s.Group.Max)
	}
	if d.sound(at("policy.spare"), maximum) && s.Policy.Spare >= s.Group.Max {
		d.refuse(at("policy.spare"), "", "must be below %s, which is %d", maximum, s.Group.Max)
	}
	if d.sound(at("policy.headroom"), at("policy.scale_in_margin")) && s.Policy.ScaleInMargin >= s.Policy.Headroom {
		d.refuse(d.first(at("policy.scale_in_margin"), at("policy.headroom")), "",
			"a scale_in_margin of %s with a headroom of %s would never scale in",
			formatShare(s.Policy.ScaleInMargin), formatShare(s.Policy.Headroom))
	}
	for i, id := range s.Group.Protected {
		item := fmt.Sprintf("%s[%d]", at("group.protected"), i)
		if d.sound(item) && slices.Contains(s.Group.Protected[:i], id) {
			d.refuse(item, "", "%q is listed twice", id)
		}
	}
	if n := len(s.Group.Protected); d.sound(at("group.protected"), maximum) && n > s.Group.Max {
		d.refuse(at("group.protected"), "", "%d protected instances are more than %s, which is %d", n, maximum, s.Group.Max)
	}
}

// checkBounds holds the least size of a group against the largest.
func checkBounds(d *decoder, path string, g quell.Group) {
	minimum, maximum := join(path, "group.min"), join(path, "group.max")
	if d.sound(minimum, maximum) && g.Min > g.Max {
		d.refuse(d.first(minimum, maximum), "", "at least %d and at most %d instances cannot both hold", g.Min, g.Max)
	}
}

// first returns the first path that the file sets.
func (d *decoder) first(paths ...string) string {
	return paths[max(0, slices.IndexFunc(paths, d.given))]
}

// apart refuses one address for two listeners of one process.
func (d *decoder) apart(a, atA, b, atB string) {
	if d.sound(a, b) && samePort(atA, atB) {
		d.refuse(d.first(b, a), "use another port", "%s and %s cannot both listen on %s", a, b, atA)
	}
}

// needs reports keys that are missing although another choice asks for them.
func (d *decoder) needs(section, why string, names ...string) {
	for _, name := range names {
		if path := join(section, name); d.sound(path) && !d.given(path) {
			d.spoil(path)
			d.problemAt(d.placeOf(section), fmt.Sprintf("%s is missing: %s needs it", path, why), "")
		}
	}
}

// bars refuses keys that mean nothing under another choice.
func (d *decoder) bars(section, why string, names ...string) {
	for _, name := range names {
		if path := join(section, name); d.given(path) {
			d.refuse(path, "remove it or change the kind", "is of no use to %s", why)
		}
	}
}

// either refuses two keys that exclude each other.
func (d *decoder) either(a, b, why string) {
	if d.given(a) && d.given(b) {
		d.refuse(b, "keep one of them", "%s and %s exclude each other: %s", a, b, why)
	}
}

func checkBus(d *decoder, b Bus) {
	d.either("bus.token", "bus.token_file", "both give the token")
	d.either("bus.url", "bus.listen", "the first names a server that runs already, the second starts one")
	if d.given("bus.tls.cert") != d.given("bus.tls.key") && d.sound("bus.tls") {
		d.refuse("bus.tls", "", "cert and key come together")
	}
	if b.TokenCommands && d.sound("bus") && b.URL == "" && !d.given("bus.token") && !d.given("bus.token_file") {
		d.refuse("bus.token_commands", "remove it", "says what a token may do, and no token is set")
	}
}

func checkBalancer(d *decoder, f *File) {
	if !d.sound("balancer.kind") {
		return
	}
	switch f.Balancer.Kind {
	case BuiltinBalancer:
		d.bars("balancer", "a builtin balancer", "command", "state_command", "haproxy")
		checkConnections(d, f.Balancer)
	case CommandBalancer:
		d.needs("balancer", "a balancer of kind command", "command")
		d.bars("balancer", "a balancer of kind command",
			"listen", "admin", "metrics", "scheduling", "health", "timeouts", "max_conns", "max_conns_per_client",
			"trusted_proxies", "haproxy")
	case HAProxyBalancer:
		checkHAProxy(d, f.Balancer.HAProxy)
	}
}

func checkConnections(d *decoder, b Balancer) {
	if d.sound("balancer.max_conns", "balancer.max_conns_per_client") && b.MaxConnsPerClient != nil && b.MaxConns > 0 &&
		*b.MaxConnsPerClient > b.MaxConns {
		d.refuse("balancer.max_conns_per_client", "", "must be at most balancer.max_conns, which is %d", b.MaxConns)
	}
}

func checkHAProxy(d *decoder, h HAProxy) {
	d.needs("balancer", "a balancer of kind haproxy", "haproxy")
	if d.given("balancer.haproxy") {
		d.needs("balancer.haproxy", "a balancer of kind haproxy", "sockets", "backend")
	}
	d.bars("balancer", "a balancer of kind haproxy, whose own configuration has that",
		"listen", "admin", "metrics", "scheduling", "timeouts", "max_conns", "max_conns_per_client", "trusted_proxies", "command", "state_command", "health.path", "health.timeout")
	if h.Slots != "" {
		d.bars("balancer", "slots, whose lines in HAProxy's configuration have that", "health", "haproxy.server")
	}
	for i, s := range h.Sockets {
		if path := fmt.Sprintf("balancer.haproxy.sockets[%d]", i); d.sound(path) && slices.Contains(h.Sockets[:i], s) {
			d.refuse(path, "", "%s is listed twice", s)
		}
	}
	if h.StateFile != "" && len(h.Sockets) > 1 && d.sound("balancer.haproxy.sockets", "balancer.haproxy.state_file") {
		d.refuse("balancer.haproxy.state_file", "remove it", "a state file serves one HAProxy, and %d sockets are given", len(h.Sockets))
	}
}

func checkScaler(d *decoder, f *File) {
	if !d.given("scaler") || !d.sound("scaler.kind") {
		return
	}
	fixed := []string{"instances"}
	process := []string{"command", "address", "probe_address", "slots", "ports", "lifeline", "linger"}
	command := []string{"start", "stop", "list"}
	switch f.Scaler.Kind {
	case FixedScaler:
		d.needs("scaler", "a scaler of kind fixed", fixed...)
		d.bars("scaler", "a scaler of kind fixed", slices.Concat(process, command, []string{"ready", "drain"})...)
		checkMembers(d, f)
	case ProcessScaler:
		d.needs("scaler", "a scaler of kind process", "command")
		d.bars("scaler", "a scaler of kind process", slices.Concat(fixed, command)...)
		checkProcess(d, f)
		if f.Scaler.Lifeline && f.Scaler.Linger > 0 && d.sound("scaler.lifeline", "scaler.linger") {
			d.refuse("scaler.linger", "remove one of the two", "scaler.lifeline ends the instances with the controller, so they cannot outlive it")
		}
	case CommandScaler:
		d.needs("scaler", "a scaler of kind command", command...)
		d.bars("scaler", "a scaler of kind command", slices.Concat(fixed, process)...)
	}
}

func checkMembers(d *decoder, f *File) {
	ids, addresses := map[string]bool{}, map[string]bool{}
	for i, m := range f.Scaler.Instances {
		path := fmt.Sprintf("scaler.instances[%d]", i)
		if d.sound(path+".id") && ids[m.ID] {
			d.refuse(path+".id", "", "%q is listed twice", m.ID)
		}
		if d.sound(path+".address") && addresses[m.Address] {
			d.refuse(path+".address", "", "%s is listed twice", m.Address)
		}
		ids[m.ID], addresses[m.Address] = true, true
	}
	if !d.sound("scaler.instances") {
		return
	}
	for i, id := range f.Service.Group.Protected {
		if path := fmt.Sprintf("group.protected[%d]", i); d.sound(path) && !ids[id] {
			d.refuse(path, "", "%q is not in scaler.instances", id)
		}
	}
}

// placeholders lists what is replaced in the command of a process scaler.
func placeholders() []string { return []string{"{id}", "{port}", "{probe_port}", "{slot}", "{host}"} }

func checkProcess(d *decoder, f *File) {
	braced := regexp.MustCompile(`\{[A-Za-z_]+\}`)
	used := map[string]bool{}
	known := func(path, word string) {
		for _, p := range braced.FindAllString(word, -1) {
			if !slices.Contains(placeholders(), p) {
				d.refuse(path, "", "unknown placeholder %q%s", p, suggest(p, placeholders()))
			}
		}
	}
	for i, word := range f.Scaler.Command {
		known(fmt.Sprintf("scaler.command[%d]", i), word)
		for _, p := range braced.FindAllString(word, -1) {
			used[p] = true
		}
	}
	s := f.Scaler
	checkInstanceAddress(d, "scaler.address", s.Address, known)
	checkInstanceAddress(d, "scaler.probe_address", s.ProbeAddress, known)
	fixedPort := s.Address != "" && !strings.Contains(s.Address, "{port}")
	if d.given("scaler.command") && d.sound("scaler.command", "scaler.ports") && !used["{port}"] && s.Ports.Count() != 1 && !fixedPort {
		d.refuse("scaler.command", "pass {port} to the program", "the instance would not learn which port to listen on")
	}
	if d.sound("scaler.slots", "group.max", "group.min") && s.Slots < f.Service.Group.Max {
		d.refuse("scaler.slots", "", "%d slots do not hold group.max, which is %d instances", s.Slots, f.Service.Group.Max)
	}
	each := 1
	if used["{probe_port}"] {
		each = 2
	}
	if n := s.Ports.Count(); n > 0 && d.sound("scaler.ports", "scaler.slots", "scaler.command") && n < each*s.Slots {
		d.refuse("scaler.ports", "", "%d ports are too few for %d instances with %d each", n, s.Slots, each)
	}
}

// checkInstanceAddress checks a template of addresses: with values put in, it is one that can be connected to.
func checkInstanceAddress(d *decoder, path, template string, known func(path, word string)) {
	if !d.given(path) || !d.sound(path) {
		return
	}
	known(path, template)
	example := strings.NewReplacer("{id}", "i1", "{port}", "8080", "{probe_port}", "8081", "{slot}", "1", "{host}", "h1").Replace(template)
	if problem := addressProblem(example, true); d.sound(path) && problem != "" {
		d.refuse(path, "write host:port, as in 10.0.{slot}.2:80", "%s", problem)
	}
}

func checkProbe(d *decoder, f *File) {
	d.either("probe.token", "probe.token_file", "both give the token")
	secured := d.given("probe.token") || d.given("probe.token_file")
	if d.sound("probe.listen") && !loopback(f.Probe.Listen) && !secured {
		d.refuse("probe.listen", "set probe.token or probe.token_file, or listen on 127.0.0.1",
			"%s can be reached from other machines, so it needs a token", f.Probe.Listen)
	}
	if d.sound("probe.timeout", "sampling") && f.Probe.Timeout > f.Service.Sampling {
		d.refuse("probe.timeout", "", "%s is longer than a sampling period (%s)",
			formatDuration(f.Probe.Timeout), formatDuration(f.Service.Sampling))
	}
	if d.sound("probe.from", "balancer.kind") && f.Probe.From == FromBalancer && f.Balancer.Kind != BuiltinBalancer {
		d.refuse("probe.from", "write controller", "only the builtin balancer can probe")
	}
}

func checkTrain(d *decoder, t Train) {
	d.increasing("train.levels", t.Levels)
	d.increasing("train.interference", t.Interference)
	if d.given("train.interference") && d.sound("train.interference") && t.Plan == CustomPlan && t.Interference[0] != 0 {
		d.refuse("train.interference", "begin the list with 0%", "without a run in isolation nothing can be compared")
	}
	if d.sound("train.repeat", "train.max_repeat") && t.Repeat > t.MaxRepeat {
		d.refuse("train.max_repeat", "", "must be at least train.repeat, which is %d", t.Repeat)
	}
	if d.sound("train.testbed", "train.hosts") && t.Testbed == KernelTestbed && t.Hosts > 254 {
		d.refuse("train.hosts", "", "%d are more than the 254 that testbed kernel has addresses for", t.Hosts)
	}
	if !d.sound("train.plan") {
		return
	}
	if t.Plan == CustomPlan {
		d.needs("train", "plan custom", "levels", "interference")
		return
	}
	for _, name := range []string{"levels", "interference", "run", "repeat", "max_repeat", "interval", "confidence"} {
		if path := join("train", name); d.given(path) {
			d.refuse(path, "set train.plan to custom", "the plan %s has its own", t.Plan)
		}
	}
}

func (d *decoder) increasing(path string, shares []float64) {
	for i := 1; i < len(shares); i++ {
		if item := fmt.Sprintf("%s[%d]", path, i); d.sound(path) && shares[i] <= shares[i-1] {
			d.refuse(item, "", "%s does not come after %s: the list must increase", formatShare(shares[i]), formatShare(shares[i-1]))
			return
		}
	}
}
