package config

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/internal/webfile"
	"github.com/quellhq/quell/middleware"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/setting"
)

// Check reads a configuration and reports everything that can be found wrong without running it: the mistakes that Load finds, and
// those that a process would find later, such as missing files, secrets that others can read, and settings with which nothing would
// be probed. The error lists all mistakes, as in Parse. If the file could be read, it is returned in spite of its mistakes.
func (t Drivers) Check(path string) (*File, error) {
	data, err := yaml.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, d, ok := t.parse(path, data)
	if !ok {
		return nil, d.Err()
	}
	f.resolve(filepath.Dir(path))
	t.check(d, f)
	return f, d.Err()
}

// check finds mistakes that a process would find later.
func (t Drivers) check(d *setting.Decoder, f *File) {
	if !f.Local() && len(f.Services) == 0 {
		checkFleet(d, f)
		checkProbing(d, f)
		checkReach(d, f)
		checkOwn(d, f)
		checkRedline(d, f)
		checkMeasured(d, f)
		checkResources(d, f)
		checkLearning(d, f)
		checkParameters(d, f, "policy", f.Service.Policy.Settings)
		checkParameters(d, f, "policy.fast", f.Service.Policy.Fast.Settings)
	}
	checkSecrets(d, f)
	checkWeb(d, f)
	checkCredentials(f.sharedPlaces(d), f)
	if f.shared == nil {
		checkTLSFiles(d, f, "bus.tls", f.Bus.TLS)
		checkTLSFiles(d, f, "keda.tls", f.KEDA.TLS)
	}
	checkPlaces(d, f)
}

// checkFleet checks that a fixed group has instances, and that other settings agree with the list of instances.
func checkFleet(d *setting.Decoder, f *File) {
	members, fixed := f.Scaler.Listed()
	n := len(members)
	if !fixed || !d.Sound("scaler.kind", "scaler.instances") {
		return
	}
	if n == 0 {
		d.ProblemAt(d.PlaceOf("scaler"), "scaler: the service has no instances",
			"list them in scaler.instances, or choose a scaler.kind that starts instances")
		return
	}
	for _, key := range []string{"group.min", "group.max", "group.initial"} {
		if d.Given(key) && d.Sound(key) && f.values[key] != fmt.Sprint(n) {
			d.Refuse(key, "remove it: of a fixed fleet it is always the number of instances",
				"%s does not agree with the %d instance(s) listed in scaler.instances",
				f.values[key], n)
		}
	}
	ids := quell.IDs(members)
	if id := f.Agent.Instance; id != "" && f.shared == nil && d.Sound("agent.instance") && !slices.Contains(ids, id) {
		d.Refuse("agent.instance", "correct it, or add it to the list",
			"scaler.instances lists no %q%s", setting.Shorten(id), setting.Suggest(id, ids))
	}
}

// checkProbing checks the settings of the prober if the policy needs one.
func checkProbing(d *setting.Decoder, f *File) {
	if !d.Sound("policy.name", "probe", "agent.capacity") {
		return
	}
	name := f.Service.Policy.Name
	if !table.All.Feels(name) {
		return
	}
	if !f.sizesProbes() {
		d.ProblemAt(d.PlaceOf("probe"), "probe.capacity is missing: without it nothing can be probed",
			"set probe.capacity or agent.capacity.network to the bandwidth of an instance, or set probe.size")
	}
	if !d.Sound("scaler") {
		return
	}
	members, _ := f.Scaler.Listed()
	for i, m := range members {
		if m.Probe == "" {
			d.ProblemAt(d.PlaceOf(fmt.Sprintf("scaler.instances[%d]", i)),
				fmt.Sprintf("scaler.instances[%d].probe is missing: policy %s decides by probes, and %s would never be probed", i, name, m.ID),
				"give the address of its agent's probe server, as in 10.0.0.11:9466")
		}
	}
}

// checkResources checks that every resource by which the policy decides is probed, and that the disk's capacity is given if it is
// probed.
func checkResources(d *setting.Decoder, f *File) {
	probed := f.Agent.Probing.Resources
	if d.Given("policy.resource") && d.Sound("policy", "agent.probes") && table.All.Feels(f.Service.Policy.Name) {
		for _, r := range table.All.ResourcesFor(f.Service.Policy) {
			if r != quell.Network && !slices.Contains(probed, r) {
				d.Refuse("policy.resource", fmt.Sprintf("add %s to agent.probes, or take it out here", r), "names %s, and nothing probes that", r)
			}
		}
	}
	_, known := f.Agent.Capacity[quell.Disk]
	d = f.sharedPlaces(d)
	if d.Sound("agent.probes", "agent.capacity") && slices.Contains(probed, quell.Disk) && !known && f.Agent.DiskBytes == 0 {
		d.Refuse("agent.probes", "set agent.capacity.disk to its operations per second, or agent.capacity.disk_bytes",
			"disk is probed, but the capacity of the disk is not known, so its own use and its severity are unknown")
	}
}

// checkLearning checks that the policy does not wait for models that are never learned.
func checkLearning(d *setting.Decoder, f *File) {
	name := f.Service.Policy.Name
	if d.Sound("models", "policy.name") && f.Models == ModelsLearn && table.All.Trained(name) && !table.All.Learns(name) {
		d.Refuse("models", "measure with quell train and quell fit, and name the models.json here",
			"policy %s cannot learn its models in place", name)
	}
}

// checkParameters checks that the agent of this file would carry out what a policy may order for its servers.
func checkParameters(d *setting.Decoder, f *File, path string, settings any) {
	sets, ok := settings.(policy.SetsParameters)
	if !ok {
		return
	}
	for i, p := range sets.ServerParameters() {
		at := fmt.Sprintf("%s.parameters[%d]", path, i)
		target, name, _ := strings.Cut(p.Name, ".")
		server := slices.IndexFunc(f.Agent.Servers, func(s middleware.Server) bool { return s.Settings != nil && s.Target() == target })
		if p.Name == "" || server < 0 || !d.Sound(at, "agent.middleware") {
			continue
		}
		list := f.Agent.Servers[server].Settings.Parameters
		k := slices.IndexFunc(list, func(own middleware.Parameter) bool { return own.Name == name })
		key := fmt.Sprintf("agent.middleware[%d].parameters", server)
		switch {
		case k < 0:
			d.Refuse(at+".name", "correct it, or list it there, too", "%s has no %s", key, name)
		case p.Min < list[k].Min:
			d.Refuse(at+".min", "use the same bounds in both", "%v is below the agent's bound, which is %v in %s", p.Min, list[k].Min, key)
		case p.Max > list[k].Max:
			d.Refuse(at+".max", "use the same bounds in both", "%v is above the agent's bound, which is %v in %s", p.Max, list[k].Max, key)
		}
	}
}

// sizesProbes returns whether the size of a probe is given, or can be computed from the capacity of an instance's
// network.
func (f *File) sizesProbes() bool {
	_, network := f.Agent.Capacity[quell.Network]
	return f.Probe.Size > 0 || f.Probe.Capacity > 0 || network
}

// Unprobed returns whether no prober runs, because the size of a probe is not known and the policy does not need probes.
func (f *File) Unprobed() bool { return !f.sizesProbes() && !table.All.Feels(f.Service.Policy.Name) }

// leastToken is the shortest length of a token; a shorter token can be guessed.
const leastToken = 16

const newToken = "make one with: openssl rand -hex 32"

func checkSecrets(d *setting.Decoder, f *File) {
	for _, s := range []struct{ section, token, file string }{
		{"bus", f.Bus.Token, f.Bus.TokenFile}, {"probe", f.Probe.Token, f.Probe.TokenFile},
	} {
		if f.shared != nil && s.section == "bus" {
			continue
		}
		if key := s.section + ".token"; s.token != "" && d.Sound(key) {
			if len(s.token) < leastToken {
				d.Refuse(key, newToken, "a token of %d characters can be guessed; at least %d are needed", len(s.token), leastToken)
			}
			if mode, exposed := exposed(f.Path); exposed {
				d.Refuse(key, "chmod 600 "+f.Path+", or put the token into a file of its own and name it in "+key+"_file",
					"other users of this machine can read this file (mode %04o), and with it the token", mode)
			}
		}
		if key := s.section + ".token_file"; s.file != "" && d.Sound(key) {
			checkTokenFile(d, key, f.values[key], s.file)
		}
	}
}

// checkWeb checks the web configuration file.
func checkWeb(d *setting.Decoder, f *File) {
	if f.Web == "" || f.shared != nil || !d.Sound("web_config") {
		return
	}
	if err := webfile.Check(f.Web); err != nil {
		d.Refuse("web_config", "mend that file; https://prometheus.io/docs/prometheus/latest/configuration/https/ describes it", "%v", err)
		return
	}
	checkPrivate(d, "web_config", f.values["web_config"], f.Web)
	if key := webfile.Key(f.Web); key != "" {
		checkPrivate(d, "web_config", key, key)
	}
}

// checkCredentials checks the file of this process's credential. The file may be missing, because processes on the controller's
// machine find their credentials in the data folder.
func checkCredentials(d *setting.Decoder, f *File) {
	if f.Bus.Credentials != "" && d.Sound("bus.credentials") {
		checkPrivate(d, "bus.credentials", strings.ReplaceAll(f.values["bus.credentials"], serviceHolder, f.Service.Name), f.Bus.Credentials)
	}
	if f.Bus.Join != "" && d.Sound("bus.join") {
		checkPrivate(d, "bus.join", strings.ReplaceAll(f.values["bus.join"], serviceHolder, f.Service.Name), f.Bus.Join)
	}
}

// checkTokenFile checks a file that holds a token; written is the file's name as the configuration has it.
func checkTokenFile(d *setting.Decoder, key, written, path string) {
	token, err := Token("", path)
	if err != nil {
		text, todo := reason(err)
		d.Refuse(key, cmp.Or(todo, newToken+" > "+written+"; chmod 600 "+written), "%s %s", written, text)
		return
	}
	checkPrivate(d, key, written, path)
	if len(token) < leastToken {
		d.Refuse(key, newToken, "%s holds a token of %d characters, which can be guessed; at least %d are needed", written, len(token),
			leastToken)
	}
}

// checkPrivate refuses a secret that others can read.
func checkPrivate(d *setting.Decoder, key, written, path string) {
	if mode, exposed := exposed(path); exposed {
		d.Refuse(key, "chmod 600 "+written, "other users of this machine can read %s (mode %04o)", written, mode)
	}
}

// exposed returns a file's mode, and whether it lets others read the file. A group may read a file of root: so a kubelet mounts secrets.
func exposed(path string) (mode fs.FileMode, exposed bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	allowed := fs.FileMode(0o700)
	if owner, known := info.Sys().(*syscall.Stat_t); known && owner.Uid == 0 {
		allowed |= 0o040
	}
	mode = info.Mode().Perm()
	return mode, mode&^allowed != 0
}

// reason is the text of an error about a file, without the file's name, and what to do about it, if that is known.
func reason(err error) (text, todo string) {
	if problems, ok := errors.AsType[setting.Problems](err); ok {
		return problems[0].Text, problems[0].Hint
	}
	return err.Error(), ""
}

func checkTLSFiles(d *setting.Decoder, f *File, at string, t TLS) {
	if !d.Sound(at) {
		return
	}
	whole := true
	for _, c := range []struct{ key, path string }{{at + ".ca", t.CA}, {at + ".cert", t.Cert}, {at + ".key", t.Key}} {
		if c.path == "" {
			continue
		}
		if _, err := yaml.ReadFile(c.path); err != nil {
			whole = false
			text, todo := reason(err)
			d.Refuse(c.key, todo, "%s %s", f.values[c.key], text)
		}
	}
	if t.Key != "" && d.Sound(at+".key") {
		checkPrivate(d, at+".key", f.values[at+".key"], t.Key)
	}
	if !whole {
		return
	}
	if t.CA != "" {
		if pem, _ := yaml.ReadFile(t.CA); !x509.NewCertPool().AppendCertsFromPEM(pem) {
			d.Refuse(at+".ca", "", "%s holds no certificate in PEM form", f.values[at+".ca"])
		}
	}
	if t.Cert != "" && t.Key != "" {
		cert, _ := yaml.ReadFile(t.Cert)
		key, _ := yaml.ReadFile(t.Key)
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			d.Refuse(at+".cert", "", "%s and %s are no pair: %s", f.values[at+".cert"], f.values[at+".key"],
				strings.TrimPrefix(err.Error(), "tls: "))
		}
	}
}

// checkPlaces checks the other files and folders that the configuration names.
func checkPlaces(d *setting.Decoder, f *File) {
	if f.Trained() != "" && d.Sound("models") {
		if info, err := os.Stat(f.Models); errors.Is(err, fs.ErrNotExist) {
			d.Refuse("models", "make it with quell train and quell fit, or write learn",
				"%s is not there", f.values["models"])
		} else if err == nil && info.IsDir() {
			d.Refuse("models", "", "%s is a folder", f.values["models"])
		}
	}
	if f.Learn && !f.Learns() && d.Sound("learn", "models", "policy.name") {
		d.Refuse("learn", "name one, or take learn out", "models names no models.json with which to begin")
	}
	if info, err := os.Stat(f.Data); err == nil && !info.IsDir() && d.Sound("data") {
		d.Refuse("data", "", "%s is no folder", f.values["data"])
	}
	for _, driver := range []any{f.Balancer.Settings, f.Scaler.Settings} {
		if s, ok := driver.(interface{ CheckPlaces(d *setting.Decoder) }); ok {
			s.CheckPlaces(d)
		}
	}
}
