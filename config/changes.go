package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// currents lists the values of all keys of a table, as a file would write them.
func (s section) currents(prefix string, into map[string]string) {
	for _, k := range s {
		path := join(prefix, k.name)
		switch v := k.value.(type) {
		case section:
			v.currents(path, into)
		case interface{ current() string }:
			into[path] = v.current()
		default:
			into[path] = v.initial()
		}
	}
}

// Changed lists the keys whose values differ between two configurations, sorted. Defaults that follow from other keys
// are not listed beside these.
func Changed(a, b *File) []string {
	var keys []string
	for path, value := range b.values {
		if a.values[path] != value {
			keys = append(keys, path)
		}
	}
	slices.Sort(keys)
	return keys
}

// The processes that read a configuration.
const (
	controllerProcess = "the controller"
	balancerProcess   = "the balancer"
	agentProcess      = "the agents"
)

// owner says who has read the keys below a path, and so must be restarted to read them again. The longest path counts.
type owner struct {
	path      string
	processes []string
}

// owners is the table of them; the controller reads the keys of its service again by itself.
func (f *File) owners() []owner {
	prober := balancerProcess
	if f.Probe.From == FromController {
		prober = controllerProcess
	}
	balancing := []string{controllerProcess}
	if f.Balancer.Kind == BuiltinBalancer {
		balancing = []string{balancerProcess}
	}
	return []owner{
		{"service", []string{controllerProcess, balancerProcess, agentProcess}},
		{"slo", nil}, {"policy", nil}, {"group", nil}, {"guard", nil}, {"mode", nil}, {"models", nil},
		{"sampling", []string{balancerProcess, agentProcess}},
		{"data", []string{controllerProcess, balancerProcess}},
		{"listen", []string{controllerProcess}},
		{"bus", []string{controllerProcess, balancerProcess, agentProcess}},
		{"bus.journal_bytes", []string{controllerProcess}},
		{"balancer", balancing},
		{"balancer.kind", []string{controllerProcess, balancerProcess}},
		{"balancer.admin", []string{controllerProcess, balancerProcess}},
		{"balancer.drain", slices.Compact(append([]string{controllerProcess}, balancing...))},
		{"scaler", []string{controllerProcess}},
		{"probe", []string{prober}},
		{"probe.listen", []string{agentProcess}},
		{"probe.token", []string{prober, agentProcess}},
		{"probe.token_file", []string{prober, agentProcess}},
		{"probe.from", []string{controllerProcess, balancerProcess}},
		{"agent", []string{agentProcess}},
		{"agent.capacity", []string{agentProcess, prober}},
		{"train", nil}, // quell train reads the file when it starts
	}
}

// restarts lists who must be restarted for a key.
func (f *File) restarts(key string) []string {
	var found owner
	for _, o := range f.owners() {
		if within(key, o.path) && len(o.path) > len(found.path) {
			found = o
		}
	}
	return found.processes
}

// NeedsRestart says, of keys that changed, which processes must be restarted to apply them: one sentence for each
// choice of processes, as in "probe.count changed: restart the balancer to apply it." It is empty where a reload of the
// controller applies everything.
func (f *File) NeedsRestart(changed []string) string {
	byProcesses := map[string][]string{}
	for _, key := range changed {
		if who := listing(f.restarts(key)); who != "" {
			byProcesses[who] = append(byProcesses[who], key)
		}
	}
	var sentences []string
	for _, who := range slices.Sorted(maps.Keys(byProcesses)) {
		keys, it := byProcesses[who], "it"
		if len(keys) > 1 {
			it = "them"
		}
		sentences = append(sentences, fmt.Sprintf("%s changed: restart %s to apply %s.", listing(keys), who, it))
	}
	return strings.Join(sentences, " ")
}

// listing joins words as a sentence does.
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
