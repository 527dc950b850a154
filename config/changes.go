package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// Changed lists the keys whose values differ between two configurations, sorted. It leaves out defaults that follow from other
// keys, and keys that only one of the two has, because the other one names another policy.
func Changed(a, b *File) []string {
	var keys []string
	for path, value := range b.values {
		if before, ok := a.values[path]; ok && before != value {
			keys = append(keys, path)
		}
	}
	slices.Sort(keys)
	return keys
}

// The names, in messages, of the processes that read a configuration.
const (
	ControllerProcess = "the controller"
	BalancerProcess   = "the balancer"
	AgentProcess      = "the agents"
)

// owner says which processes read the keys below a path: some must be restarted to read the keys again, others read them at SIGHUP.
// If several paths match a key, the longest counts.
type owner struct {
	path            string
	restart, hangUp []string
}

// owners is the table of all keys. It does not name the controller for keys that the controller reads at SIGHUP: it has just read them when
// messages about changed keys are written.
func (f *File) owners() []owner {
	everybody := []string{ControllerProcess, BalancerProcess, AgentProcess}
	controller, balancer, agents := []string{ControllerProcess}, []string{BalancerProcess}, []string{AgentProcess}
	probing := func(path string, too ...string) owner {
		return owner{path, nil, append(slices.Clone(balancer), too...)}
	}
	sampling := owner{"sampling", nil, []string{BalancerProcess, AgentProcess}}
	if f.Probe.From == FromController {
		sampling.restart = controller // the controller's prober
		probing = func(path string, too ...string) owner { return owner{path, controller, too} }
	}
	list := append(f.Balancer.owners(), []owner{
		{"service", everybody, nil},
		{"slo", nil, nil}, {"policy", nil, nil}, {"group", nil, nil}, {"guard", nil, nil}, {"mode", nil, nil}, {"models", nil, nil},
		{"learn", nil, nil},
		sampling,
		{"policy.fast", nil, slices.Concat(balancer, agents)},
		{"data", f.keepers(), nil},
		{"listen", controller, nil}, {"page", controller, nil}, {"services", nil, agents},
		{"bus", everybody, nil},
		{"bus.journal_bytes", controller, nil},
		{"balancer.kind", []string{ControllerProcess, BalancerProcess}, nil},
		{"scaler", controller, nil},
		probing("probe"),
		{"probe.listen", nil, agents},
		probing("probe.capacity", AgentProcess), probing("probe.token", AgentProcess), probing("probe.token_file", AgentProcess),
		{"probe.from", controller, balancer},
		{"agent", agents, nil},
		{"agent.interface", nil, agents}, {"agent.root", nil, agents}, {"agent.cgroup", nil, agents}, {"agent.policy", nil, agents},
		{"agent.credits", nil, agents}, {"agent.counters", nil, agents}, {"agent.probes", nil, agents}, {"agent.probing", nil, agents},
		probing("agent.capacity", AgentProcess),
		{"train", nil, nil}, // quell train reads the file when it starts
	}...)
	if _, own := f.Balancer.Settings.(ownProcess); !own { // HAProxy and others are no process of Quell's: they read nothing of this file
		isBalancer := func(process string) bool { return process == BalancerProcess }
		for i, o := range list {
			list[i].restart = slices.DeleteFunc(slices.Clone(o.restart), isBalancer)
			list[i].hangUp = slices.DeleteFunc(slices.Clone(o.hangUp), isBalancer)
		}
	}
	return list
}

// keepers are the processes that use the data folder. Agents use it if they run a policy, or if they probe the disk in it.
func (f *File) keepers() []string {
	list := []string{ControllerProcess, BalancerProcess}
	if f.Agent.Policy.Chosen.Name != "" || slices.Contains(f.Agent.Probing.Resources, quell.Disk) && f.Agent.Probing.Folder == "" {
		list = append(list, AgentProcess)
	}
	return list
}

// owners returns the rows of the balancer's keys. If the balancer is one of Quell's own processes, it reads most of them itself;
// otherwise the controller uses them as they were at its start.
func (b Balancer) owners() []owner {
	controller, itself := []string{ControllerProcess}, []string{BalancerProcess}
	own, ok := b.Settings.(ownProcess)
	if !ok {
		return []owner{{"balancer", controller, nil}}
	}
	list := []owner{{"balancer", itself, nil}, {"balancer.drain", controller, itself}}
	again, once, shared := own.Process()
	for _, name := range again {
		list = append(list, owner{setting.Join("balancer", name), nil, itself})
	}
	for _, name := range once {
		list = append(list, owner{setting.Join("balancer", name), itself, nil})
	}
	for _, name := range shared {
		list = append(list, owner{setting.Join("balancer", name), slices.Concat(controller, itself), nil})
	}
	return list
}

// ownerOf finds the row of owners that counts for a key.
func (f *File) ownerOf(key string) (found owner) {
	for _, o := range f.owners() {
		if setting.Within(key, o.path) && len(o.path) > len(found.path) {
			found = o
		}
	}
	return found
}

// Reloads picks the keys that a process reads again at SIGHUP.
func (f *File) Reloads(process string, changed []string) []string {
	return slices.DeleteFunc(slices.Clone(changed), func(key string) bool { return !slices.Contains(f.ownerOf(key).hangUp, process) })
}

// Restarts picks the keys for which a process must be restarted.
func (f *File) Restarts(process string, changed []string) []string {
	return slices.DeleteFunc(slices.Clone(changed), func(key string) bool { return !slices.Contains(f.ownerOf(key).restart, process) })
}

// needs returns what must be done to apply a changed key, "" if a reload of the controller is enough.
func (o owner) needs() string {
	var parts []string
	if who := listing(o.restart); who != "" {
		parts = append(parts, "restart "+who)
	}
	if who := listing(o.hangUp); who != "" {
		parts = append(parts, "send SIGHUP to "+who)
	}
	return listing(parts)
}

// NeedsRestart says what must be done to apply changed keys: one sentence for each way, for example "probe.count changed:
// send SIGHUP to the balancer to apply it." It is empty if a reload of the controller applies everything. sinceStart are the keys that
// changed since the controller started: those for which it must be restarted itself are repeated until then. now are the keys that changed
// in this reload: what other processes need is said once, because the controller does not know what they have read since.
func (f *File) NeedsRestart(sinceStart, now []string) string {
	byNeed := map[string][]string{}
	for _, key := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(sinceStart, now)))) {
		o := f.ownerOf(key)
		news, pending := slices.Contains(now, key), slices.Contains(sinceStart, key)
		o.restart = slices.DeleteFunc(slices.Clone(o.restart), func(process string) bool {
			return process == ControllerProcess && !pending || process != ControllerProcess && !news
		})
		if !news {
			o.hangUp = nil
		}
		if need := o.needs(); need != "" {
			byNeed[need] = append(byNeed[need], key)
		}
	}
	var sentences []string
	for _, need := range slices.Sorted(maps.Keys(byNeed)) {
		keys, it := byNeed[need], "it"
		if len(keys) > 1 {
			it = "them"
		}
		sentences = append(sentences, fmt.Sprintf("%s changed: %s to apply %s.", listing(keys), need, it))
	}
	return strings.Join(sentences, " ")
}

// listing joins words with commas and "and".
func listing(words []string) string {
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}
