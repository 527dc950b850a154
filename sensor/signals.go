package sensor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/cgroup"
)

// Signal is one value that sensors can measure on a machine.
type Signal struct {
	Name string `json:"signal"`        // its place in an observation, such as sched.wait_s
	Now  string `json:"now,omitempty"` // what was measured, for a person; empty: it is missing
	Why  string `json:"why,omitempty"` // why it is missing
	Do   string `json:"do,omitempty"`  // what a person can do about that; empty: nothing, or the reason says it
}

// signal describes a signal.
type signal struct {
	name   string
	sensor string                              // if it failed, its error says why the signal is missing
	now    func(obs *quell.Observation) string // empty: missing
	absent func(o *Options) (why, do string)   // why the signal is missing if its sensor did not fail
}

// The signals that show interference with processors, caches and memory: the hardware's counters, and those that take their place.
var (
	counterSignals = []string{"counters." + quell.CounterCPI, "counters." + quell.CounterMissRate}
	substitutes    = []string{"sched.run_s", "cpu.steal", "sched.wait_s", "sched.throttled_s", "pressure.cpu", "probe.cpu", "probe.memory"}
)

// signals lists all signals.
var signals = []signal{
	{counterSignals[0], "counters", counter(quell.CounterCPI, "%.2f cycles per instruction"), notCounted},
	{counterSignals[1], "counters", counter(quell.CounterMissRate, "%.3f of cache accesses miss"), notCounted},
	{"sched.run_s", "cpu", sched(func(s *quell.Sched) *float64 { return &s.RunS }, "%.3f s of processor time in %.3g s"), notRead},
	{"cpu.steal", "cpu", processors(func(c *quell.CPUTime) *float64 { return &c.Steal }), notRead},
	{"sched.wait_s", "cpu", sched(func(s *quell.Sched) *float64 { return s.WaitS }, "%.3f s of waiting in %.3g s"), notWaiting},
	{"sched.throttled_s", "cpu", sched(func(s *quell.Sched) *float64 { return s.ThrottledS }, "%.3f s of stops in %.3g s"), noQuota},
	{"pressure.cpu", "pressure", pressure("cpu"), noPressure},
	{"pressure.io", "pressure", pressure("io"), noPressure},
	{"pressure.memory", "pressure", pressure("memory"), noPressure},
	{"probe.cpu", "probe of cpu", probed(quell.CPU), notProbed(quell.CPU)},
	{"probe.memory", "probe of memory", probed(quell.Memory), notProbed(quell.Memory)},
	{"probe.disk", "probe of disk", probed(quell.Disk), notProbed(quell.Disk)},
	{"cpu.user", "cpu", processors(func(c *quell.CPUTime) *float64 { return &c.User }), notRead},
	{"cpu.system", "cpu", processors(func(c *quell.CPUTime) *float64 { return &c.System }), notRead},
	{"cpu.iowait", "cpu", processors(func(c *quell.CPUTime) *float64 { return c.IOWait }), noDiskWaits},
	{"utilization.cpu", "cpu", used(quell.CPU), notRead},
	{"utilization.network", "network", used(quell.Network), notRead},
	{"utilization.disk", "disk", used(quell.Disk), notWanted(quell.Disk)},
	{"utilization.memory", "memory", used(quell.Memory), notWanted(quell.Memory)},
	{"tcp." + RetransmitRate, "tcp", func(obs *quell.Observation) string {
		rate, ok := obs.TCP[RetransmitRate]
		if !ok {
			return ""
		}
		return fmt.Sprintf("%.3g segments per second", rate)
	}, notRead},
	{"request_rate", requestsSensor, func(obs *quell.Observation) string {
		if obs.RequestRate == nil {
			return ""
		}
		return fmt.Sprintf("%.3g requests per second", *obs.RequestRate)
	}, notRead},
	{"latency_ms.p95", requestsSensor, func(obs *quell.Observation) string {
		ms, ok := obs.LatencyMS.Of(quell.P95)
		if !ok {
			return ""
		}
		return fmt.Sprintf("%.3g ms, of %d requests", ms, obs.LatencyMS.N)
	}, noRequests},
}

// requestsSensor reads the service's own metrics. Only a machine whose agent is told to has it.
const requestsSensor = "requests"

// Signals tells which signals a machine offers: obs and failures are what a set of sensors with these options returned. The signals of
// interference come first.
func Signals(o Options, obs *quell.Observation, failures []Failure) []Signal {
	var list []Signal
	asked := slices.ContainsFunc(o.More, func(s Sensor) bool { return s.Name() == requestsSensor })
	for _, s := range signals {
		if s.sensor == requestsSensor && !asked {
			continue
		}
		found := Signal{Name: s.name, Now: s.now(obs)}
		if found.Now == "" {
			found.Why, found.Do = s.missing(&o, failures)
		}
		list = append(list, found)
	}
	return list
}

// missing says why the signal is missing.
func (s *signal) missing(o *Options, failures []Failure) (why, do string) {
	name := s.sensor
	if name == "pressure" && o.Cgroup != "" {
		name = "cpu" // it reads the group's pressure
	}
	at := slices.IndexFunc(failures, func(f Failure) bool { return f.Sensor == name })
	if at < 0 {
		return s.absent(o)
	}
	if lack := (*Unavailable)(nil); errors.As(failures[at].Err, &lack) {
		return lack.Why, lack.Do
	}
	return failures[at].Err.Error(), ""
}

// Evidence says which signals show interference with processors, caches and memory: the hardware's counters, or those that take their
// place; "" if there are none.
func Evidence(list []Signal) string {
	offered := func(names []string) (there []string) {
		for _, s := range list {
			if s.Now != "" && slices.Contains(names, s.Name) {
				there = append(there, s.Name)
			}
		}
		return there
	}
	if own := offered(counterSignals); len(own) == len(counterSignals) {
		return "the processors' counters: " + strings.Join(own, ", ")
	}
	if others := offered(append(slices.Clone(counterSignals), substitutes...)); len(others) > 0 {
		return "substitutes for the processors' counters: " + strings.Join(others, ", ")
	}
	return ""
}

func noRequests(*Options) (why, do string) {
	return "the service had no request meanwhile", "send it some, and look again"
}

func counter(name, form string) func(*quell.Observation) string {
	return func(obs *quell.Observation) string {
		value, ok := obs.Counters[name]
		if !ok {
			return ""
		}
		return fmt.Sprintf(form, value)
	}
}

func sched(field func(*quell.Sched) *float64, form string) func(*quell.Observation) string {
	return func(obs *quell.Observation) string {
		if obs.Sched == nil || field(obs.Sched) == nil {
			return ""
		}
		return fmt.Sprintf(form, *field(obs.Sched), obs.WindowS)
	}
}

func processors(field func(*quell.CPUTime) *float64) func(*quell.Observation) string {
	return func(obs *quell.Observation) string {
		if obs.CPU == nil || field(obs.CPU) == nil {
			return ""
		}
		return fmt.Sprintf("%.1f%% of the processors' time", 100**field(obs.CPU))
	}
}

func pressure(resource string) func(*quell.Observation) string {
	return func(obs *quell.Observation) string {
		share, ok := obs.Pressure[resource]
		if !ok {
			return ""
		}
		return fmt.Sprintf("%.1f%% of the time", 100*share)
	}
}

func probed(r quell.Resource) func(*quell.Observation) string {
	return func(obs *quell.Observation) string {
		stats, ok := obs.Probe[r]
		if !ok {
			return ""
		}
		return fmt.Sprintf("%.3g ms, mean of %d probes", stats.MeanMS, stats.N)
	}
}

func used(r quell.Resource) func(*quell.Observation) string {
	return func(obs *quell.Observation) string {
		share, ok := obs.Utilization[r]
		if !ok {
			return ""
		}
		return fmt.Sprintf("%.1f%% of its capacity", 100*share)
	}
}

func notRead(*Options) (why, do string) { return "it was not measured", "measure for longer" }

func notCounted(o *Options) (why, do string) {
	if o.Events == nil {
		return "agent.counters is false", "set it to true"
	}
	return "the control group did not run", "put load on the service"
}

func notWaiting(o *Options) (why, do string) {
	switch {
	case o.Cgroup == "":
		return "the kernel does not report it in /proc/schedstat", "use a kernel with CONFIG_SCHEDSTATS"
	case versionTwo(o):
		return "pressure.cpu takes its place for control groups of version 2", ""
	}
	return "the kernel does not report it in /proc/self/schedstat", "use a kernel with CONFIG_SCHED_INFO"
}

func noQuota(o *Options) (why, do string) {
	if o.Cgroup == "" {
		return "a whole machine has no quota", "if the service runs in a control group, set agent.cgroup"
	}
	return "the quota was changed while it was measured", "measure again"
}

func noPressure(o *Options) (why, do string) {
	switch {
	case o.Cgroup == "":
		return "the kernel does not report it in /proc/pressure", "use Linux 4.20 or later, booted with psi=1"
	case versionTwo(o):
		return "the kernel does not report it for control groups", "use Linux 4.20 or later, booted with psi=1"
	}
	return "the kernel does not report it for control groups of version 1", "use version 2; sched.wait_s takes the place of pressure.cpu"
}

func noDiskWaits(o *Options) (why, do string) {
	if o.Cgroup == "" {
		return notRead(o)
	}
	return fmt.Sprintf("the control group's tasks were hardly looked at, cannot be read, or are more than %d", mostLooked),
		"measure for longer"
}

func notProbed(r quell.Resource) func(*Options) (why, do string) {
	return func(o *Options) (why, do string) {
		if slices.Contains(o.Wanted, r) {
			return "no probe has ended yet", "measure for longer"
		}
		return fmt.Sprintf("agent.probes does not name %s", r), "add it to the list"
	}
}

func notWanted(r quell.Resource) func(*Options) (why, do string) {
	return func(o *Options) (why, do string) {
		return fmt.Sprintf("neither agent.probes nor agent.capacity names %s", r), "add it if plans are to depend on it"
	}
}

// versionTwo returns whether the machine's control groups are of version 2.
func versionTwo(o *Options) bool {
	trees, err := cgroup.Find(o.Root)
	return err == nil && trees.Unified
}
