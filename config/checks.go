package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/middleware"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/setting"
)

// checkFile checks the parts of a configuration against each other. A check is skipped if one of its parts already
// has a problem.
func checkFile(d *setting.Decoder, f *File) {
	if f.shared == nil {
		checkShared(d, f)
	}
	if len(f.Services) > 0 {
		return
	}
	if f.Local() {
		if len(f.Agent.Servers) > 0 {
			d.Refuse("agent.middleware", "remove it, or set service and slo", "is of no use to a file that names no service")
		}
		if f.Agent.Requests.URL != "" {
			d.Refuse("agent.requests", "remove it, or set service and slo", "is of no use to a file that names no service")
		}
		return
	}
	CheckService(d, "", f.Service)
	if d.Sound("balancer.kind") {
		f.Balancer.Settings.Check(d)
	}
	f.Balancer.Classes.Check(d, "balancer.classes")
	if d.Given("scaler") && d.Sound("scaler.kind") {
		f.Scaler.Settings.Check(d, f.Service)
	}
	checkKEDA(d, f)
	checkProbe(d, f)
	checkTrain(d, f.Train)
	d.Apart("probe.listen", f.Probe.Listen, "agent.metrics", f.Agent.Metrics)
	d.Apart("probe.listen", f.Probe.Listen, "agent.reports", f.Agent.Reports)
	d.Apart("agent.metrics", f.Agent.Metrics, "agent.reports", f.Agent.Reports)
	if f.Agent.Secure.Cert != "" && f.Agent.Reports == "" && d.Sound("agent.reports") {
		d.Refuse("agent.reports_tls", "set agent.reports, or remove it", "is of no use while no address is given for load reports")
	}
}

// checkShared checks the sections that services of one controller share.
func checkShared(d *setting.Decoder, f *File) {
	checkControlGroups(d, f.Agent.Policy.Groups)
	table.All.AgreeHost(d, "agent.policy", f.Agent.Policy.Chosen)
	if f.Local() {
		return
	}
	middleware.Check(d, "agent.middleware", f.Agent.Servers)
	if f.Agent.Requests.URL != "" && len(f.Services) > 1 {
		d.Refuse("agent.requests", "remove it: the balancers' response times count",
			"an agent of %d services cannot tell whose requests these are", len(f.Services))
	}
	checkBus(d, f.Bus)
	d.Apart("listen", f.Listen, "bus.listen", f.Bus.Listen)
	for i, path := range f.servicePaths() {
		if sameFile(path, f.Path) {
			d.Refuse(fmt.Sprintf("services[%d]", i), "name the file of a service, which says service, slo, policy, balancer and scaler",
				"%s names itself", filepath.Base(f.Path))
		}
	}
	for i, path := range f.Services {
		if slices.Contains(f.Services[:i], path) {
			d.Refuse(fmt.Sprintf("services[%d]", i), "keep one of them", "%s is listed twice", path)
		}
	}
	for _, one := range []struct{ key, path, what, ending string }{
		{"bus.credentials", f.Bus.Credentials, "credential", ".creds"}, {"bus.join", f.Bus.Join, "join token", ".join"},
	} {
		if one.path != "" && len(f.Services) > 1 && !strings.Contains(one.path, serviceHolder) && d.Sound(one.key) {
			d.Refuse(one.key, "write "+serviceHolder+" in its name, as in /etc/quell/"+serviceHolder+one.ending,
				"a %s is for one service, and there are %d", one.what, len(f.Services))
		}
	}
}

// serviceHolder stands for the service's name in bus.credentials.
const serviceHolder = "{service}"

// checkControlGroups refuses a name for a pattern of control groups, and a name or path that is given twice.
func checkControlGroups(d *setting.Decoder, groups []sensor.Group) {
	for i, g := range groups {
		at := fmt.Sprintf("agent.policy.groups[%d]", i)
		if !d.Sound(at) {
			continue
		}
		if problem := g.Check(); problem != "" {
			d.Refuse(at, "", "%s", problem)
		}
		if slices.ContainsFunc(groups[:i], func(other sensor.Group) bool { return other.Path == g.Path }) {
			d.Refuse(at, "keep one of them", "%s is listed twice", g.Path)
		}
		if slices.ContainsFunc(groups[:i], func(other sensor.Group) bool { return g.Name != "" && other.Name == g.Name }) {
			d.Refuse(at, "", "two groups are called %s", g.Name)
		}
	}
}

// CheckService checks a service at the given path.
func CheckService(d *setting.Decoder, path string, s quell.Service) {
	at := func(key string) string { return setting.Join(path, key) }
	minimum, maximum := at("group.min"), at("group.max")
	checkBounds(d, path, s.Group)
	checkBudget(d, path, s)
	if initial := at("group.initial"); s.Group.Initial != 0 && d.Sound(initial, minimum, maximum) &&
		(s.Group.Initial < s.Group.Min || s.Group.Initial > s.Group.Max) {
		d.Refuse(initial, "", "%d is not between %s and %s (%d to %d)", s.Group.Initial, minimum, maximum, s.Group.Min, s.Group.Max)
	}
	table.All.Agree(d, at("policy"), s)
	for i, id := range s.Group.Protected {
		item := fmt.Sprintf("%s[%d]", at("group.protected"), i)
		if d.Sound(item) && slices.Contains(s.Group.Protected[:i], id) {
			d.Refuse(item, "", "%q is listed twice", id)
		}
	}
	if n := len(s.Group.Protected); d.Sound(at("group.protected"), maximum) && n > s.Group.Max {
		d.Refuse(at("group.protected"), "", "%d protected instances are more than %s, which is %d", n, maximum, s.Group.Max)
	}
}

// sameFile returns whether two paths, maybe through links, lead to one file.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// checkBudget refuses a window too short to tell ten misses from chance.
func checkBudget(d *setting.Decoder, path string, s quell.Service) {
	target, over := setting.Join(path, "slo.target"), setting.Join(path, "slo.over")
	if least := s.SLO.LeastOver(s.Sampling); s.SLO.Target > 0 && d.Sound(target, over, setting.Join(path, "sampling")) && s.SLO.Over < least {
		d.Refuse(d.First(over, target), fmt.Sprintf("set slo.over to at least %s, or lower the target", setting.FormatDuration(least)),
			"in %s fewer than ten periods of %s may be missed, which says nothing",
			setting.FormatDuration(s.SLO.Over), setting.FormatDuration(s.Sampling))
	}
}

// checkBounds refuses a group whose smallest size is above its largest.
func checkBounds(d *setting.Decoder, path string, g quell.Group) {
	minimum, maximum := setting.Join(path, "group.min"), setting.Join(path, "group.max")
	if d.Sound(minimum, maximum) && g.Min > g.Max {
		d.Refuse(d.First(minimum, maximum), "", "at least %d and at most %d instances cannot both hold", g.Min, g.Max)
	}
}

func checkBus(d *setting.Decoder, b Bus) {
	d.Either("bus.token", "bus.token_file", "both give the token")
	d.Either("bus.url", "bus.listen", "the first names a server that runs already, the second starts one")
	checkPair(d, "bus.tls")
	if d.Given("bus.proof_token") && b.Proof != ProofKubernetes && d.Sound("bus") {
		d.Refuse("bus.proof_token", "set proof: kubernetes", "is for a proof, and there is none")
	}
	if b.TokenCommands && d.Sound("bus") && b.URL == "" && !d.Given("bus.token") && !d.Given("bus.token_file") {
		d.Refuse("bus.token_commands", "remove it", "says what a token may do, and no token is set")
	}
}

func checkPair(d *setting.Decoder, path string) {
	if d.Given(path+".cert") != d.Given(path+".key") && d.Sound(path) {
		d.Refuse(path, "", "cert and key come together")
	}
}

// checkKEDA checks what is listened with: clients that show a certificate need a server that has one.
func checkKEDA(d *setting.Decoder, f *File) {
	d.Apart("keda.listen", f.KEDA.Listen, "listen", f.Listen)
	d.Apart("keda.listen", f.KEDA.Listen, "bus.listen", f.Bus.Listen)
	checkPair(d, "keda.tls")
	if d.Given("keda.tls") && !d.Given("keda.listen") && d.Sound("keda") {
		d.Refuse("keda.tls", "set keda.listen", "is for an address, and there is none")
	}
	if d.Given("keda.tls.ca") && !d.Given("keda.tls.cert") && d.Sound("keda.tls") {
		d.Refuse("keda.tls.ca", "set cert and key, too", "without TLS nobody shows a certificate")
	}
}

func checkProbe(d *setting.Decoder, f *File) {
	d.Either("probe.token", "probe.token_file", "both give the token")
	secured := d.Given("probe.token") || d.Given("probe.token_file")
	if d.Sound("probe.listen") && !setting.Loopback(f.Probe.Listen) && !secured {
		d.Refuse("probe.listen", "set probe.token or probe.token_file, or listen on 127.0.0.1",
			"%s can be reached from other machines, so it needs a token", f.Probe.Listen)
	}
	if d.Sound("probe.timeout", "sampling") && f.Probe.Timeout > f.Service.Sampling {
		d.Refuse("probe.timeout", "", "%s is longer than a sampling period (%s)",
			setting.FormatDuration(f.Probe.Timeout), setting.FormatDuration(f.Service.Sampling))
	}
	if d.Sound("probe.from", "balancer.kind") && f.Probe.From == FromBalancer && !f.Balancer.probes() {
		d.Refuse("probe.from", "write controller", "only the builtin balancer can probe")
	}
}

func checkTrain(d *setting.Decoder, t Train) {
	d.Increasing("train.levels", t.Levels)
	d.Increasing("train.interference", t.Interference)
	if d.Given("train.interference") && d.Sound("train.interference") && t.Plan == CustomPlan && t.Interference[0] != 0 {
		d.Refuse("train.interference", "begin the list with 0%", "without a run in isolation nothing can be compared")
	}
	if d.Sound("train.repeat", "train.max_repeat") && t.Repeat > t.MaxRepeat {
		d.Refuse("train.max_repeat", "", "must be at least train.repeat, which is %d", t.Repeat)
	}
	if d.Sound("train.testbed", "train.hosts") && t.Testbed == KernelTestbed && t.Hosts > 254 {
		d.Refuse("train.hosts", "", "%d are more than the 254 that testbed kernel has addresses for", t.Hosts)
	}
	if !d.Sound("train.plan") {
		return
	}
	if t.Plan == CustomPlan {
		d.Needs("train", "plan custom", "levels", "interference")
		return
	}
	for _, name := range []string{"levels", "interference", "run", "repeat", "max_repeat", "interval", "confidence"} {
		if path := setting.Join("train", name); d.Given(path) {
			d.Refuse(path, "set train.plan to custom", "the plan %s has its own", t.Plan)
		}
	}
}
