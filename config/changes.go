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

// owner says which processes read a key: some must be restarted to read it again, others read it at SIGHUP. It does not name the controller
// for a key that the controller reads at SIGHUP: it has just read it when messages about changed keys are written.
type owner struct{ restart, hangUp []string }

// reads declares who reads a key and the keys inside it; rest is the path of the key inside the declared one, "" for that itself.
type reads func(f *File, rest string) owner

// onlyController reads the keys at SIGHUP, or they are read at the start of a command.
func onlyController(*File, string) owner { return owner{} }

// atStart declares keys for which these processes must be restarted.
func atStart(processes ...string) reads {
	return func(*File, string) owner { return owner{restart: processes} }
}

// atHangUp declares keys that these processes read at SIGHUP.
func atHangUp(processes ...string) reads {
	return func(*File, string) owner { return owner{hangUp: processes} }
}

// everybody are all processes.
var everybody = atStart(ControllerProcess, BalancerProcess, AgentProcess)

// prober declares keys that the prober and other processes read. The prober is in the balancer, which reads them at SIGHUP, or in the
// controller, which does not.
func prober(others ...string) reads {
	return func(f *File, _ string) owner {
		if f.Probe.From == FromController {
			return owner{restart: []string{ControllerProcess}, hangUp: others}
		}
		return owner{hangUp: append([]string{BalancerProcess}, others...)}
	}
}

// period declares the sampling period, which a prober in the controller reads at its start.
func period(f *File, _ string) owner {
	o := owner{hangUp: []string{BalancerProcess, AgentProcess}}
	if f.Probe.From == FromController {
		o.restart = []string{ControllerProcess}
	}
	return o
}

// whoProbes declares the place of the prober.
func whoProbes(*File, string) owner {
	return owner{restart: []string{ControllerProcess}, hangUp: []string{BalancerProcess}}
}

// policies declares the keys of the policy. Balancers and agents send more readings for a fast one.
func policies(_ *File, rest string) owner {
	if setting.Within(rest, "fast") {
		return owner{hangUp: []string{BalancerProcess, AgentProcess}}
	}
	return owner{}
}

// keepers declares the data folder. Agents use it if they run a policy, or if they probe the disk in it.
func keepers(f *File, _ string) owner {
	list := []string{ControllerProcess, BalancerProcess}
	if f.Agent.Policy.Chosen.Name != "" || slices.Contains(f.Agent.Probing.Resources, quell.Disk) && f.Agent.Probing.Folder == "" {
		list = append(list, AgentProcess)
	}
	return owner{restart: list}
}

// balancing declares the keys of the balancer. If that is one of Quell's own processes, it reads most of them itself; otherwise the
// controller uses them as they were at its start.
func balancing(f *File, rest string) owner {
	controller, itself := []string{ControllerProcess}, []string{BalancerProcess}
	own, ok := f.Balancer.Settings.(ownProcess)
	if !ok {
		return owner{restart: controller}
	}
	again, once, shared := own.Process()
	among := func(names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return setting.Within(rest, name) })
	}
	switch {
	case rest == "kind", among(shared):
		return owner{restart: slices.Concat(controller, itself)}
	case rest == "drain":
		return owner{restart: controller, hangUp: itself}
	case among(again) && !among(once):
		return owner{hangUp: itself}
	}
	return owner{restart: itself}
}

// ownerOf returns who reads a key.
func (f *File) ownerOf(key string) owner {
	declared, rest := f.keys.Reader(key)
	if declared == nil {
		return owner{}
	}
	o := declared.(reads)(f, rest)
	if _, own := f.Balancer.Settings.(ownProcess); !own { // HAProxy and others are no process of Quell's: they read nothing of this file
		isBalancer := func(process string) bool { return process == BalancerProcess }
		o.restart = slices.DeleteFunc(slices.Clone(o.restart), isBalancer)
		o.hangUp = slices.DeleteFunc(slices.Clone(o.hangUp), isBalancer)
	}
	return o
}

// Reloads picks the keys that a process reads again at SIGHUP.
func Reloads(f *File, process string, changed []string) []string {
	return slices.DeleteFunc(slices.Clone(changed), func(key string) bool { return !slices.Contains(f.ownerOf(key).hangUp, process) })
}

// Restarts picks the keys for which a process must be restarted.
func Restarts(f *File, process string, changed []string) []string {
	return slices.DeleteFunc(slices.Clone(changed), func(key string) bool { return !slices.Contains(f.ownerOf(key).restart, process) })
}

// needs returns what must be done to apply a changed key, "" if a reload of the controller is enough. back: it has the value of the start
// again, so only processes that were started in between have another one.
func (o owner) needs(back bool) string {
	var parts []string
	if who := listing(o.restart); who != "" && back {
		parts = append(parts, "only if started with another value, restart "+who)
	} else if who != "" {
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
func NeedsRestart(f *File, sinceStart, now []string) string {
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
		if need := o.needs(!pending); need != "" {
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
