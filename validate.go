package quell

import (
	"fmt"
	"math"
	"slices"

	"github.com/quellhq/quell/internal/histogram"
)

// A reading above one of these limits is an error, not an extreme value. A utilisation may exceed 1 a little if the configured
// capacity is too low. A severity of 1e6 means that a probe was a million times slower than on an idle machine.
const (
	maxUtilization = 2
	maxSeverity    = 1e6
	maxRate        = 1e12
	maxMS          = 1e9
	maxIDBytes     = 256
	maxReasonBytes = 1024
	maxClasses     = 64 // of requests, in one reading
)

// SumTolerance is the relative tolerance for comparing sums.
const SumTolerance = 1e-9

// AtMost returns whether a <= b within SumTolerance. Policies compare load with capacity by it.
func AtMost(a, b float64) bool {
	return a <= b+SumTolerance*math.Max(math.Abs(a), math.Abs(b))
}

// Validate returns all rules that the snapshot breaks, as joined *InvalidError values, or nil.
func (s *Snapshot) Validate() error {
	var p problems
	if s.At.IsZero() {
		p.addf("at", "missing")
	}
	if s.Host == "" {
		p.id("service", s.Service)
	} else {
		p.id("host", s.Host)
	}
	if s.Host != "" && s.Service != "" {
		p.addf("host", "a snapshot is of a service or of a host, not of both")
	}
	if s.Machine != nil {
		p.in("machine", func() { s.Machine.check(&p) })
	}
	p.optional("arrival_rate", s.ArrivalRate, maxRate)
	p.number("unserved", s.Unserved, maxRate)
	p.number("coming", float64(s.Coming), maxRate)
	p.number("may_come", float64(s.MayCome), maxRate)
	seen := make(map[string]bool, len(s.Instances))
	var sum float64
	weights := 0
	for i := range s.Instances {
		in := &s.Instances[i]
		p.in(fmt.Sprintf("instances[%d]", i), func() {
			in.check(&p)
			if seen[in.ID] {
				p.addf("id", "%q is given twice", in.ID)
			}
		})
		seen[in.ID] = true
		if in.Weight != nil {
			sum += *in.Weight
			weights++
		}
	}
	if weights > 0 && !(AtMost(sum, 1) && AtMost(1, sum)) {
		p.addf("instances", "the weights sum to %v, not to 1", sum)
	}
	return p.err()
}

func (in *Instance) check(p *problems) {
	p.id("id", in.ID)
	if !slices.Contains(States, in.State) {
		p.addf("state", "unknown state %q", in.State)
	}
	p.optional("weight", in.Weight, 1)
	p.optional("base", in.Base, maxRate)
	if in.Base != nil && *in.Base == 0 {
		p.addf("base", "must be above 0")
	}
	p.optional("override", in.Override, 1)
	if f := in.Factor; f != nil {
		p.optional("factor.value", &f.Value, 1)
		if f.Until.IsZero() {
			p.addf("factor.until", "missing")
		}
	}
	p.optional("age_s", in.AgeS, maxMS)
	p.optional("share", in.Share, maxRate)
	if in.Held != nil {
		p.id("held.by", in.Held.By)
	}
	p.inside(in.Limits, in.Settings)
	if in.Observation != nil {
		p.in("observation", func() { in.Observation.check(p) })
	}
}

// Validate returns all rules that the reading breaks, joined, or nil. Times are not checked, because clocks differ.
func (r *Reading) Validate() error {
	var p problems
	p.id("service", r.Service)
	if r.Instance != NoInstance || r.Source != FromBalancer || r.Fast {
		p.id("instance", r.Instance)
	}
	if !slices.Contains(Sources, r.Source) {
		p.addf("source", "unknown source %q", r.Source)
	}
	if len(r.Sender) > maxIDBytes {
		p.addf("sender", "longer than %d bytes", maxIDBytes)
	}
	if r.Requests < 0 || r.Errors < 0 || r.Errors > r.Requests {
		p.addf("errors", "%d errors of %d requests", r.Errors, r.Requests)
	}
	for field, encoded := range sorted(map[string][]byte{"connect_hdr": r.ConnectHDR, "latency_hdr": r.LatencyHDR}) {
		if err := histogram.Check(encoded); err != nil {
			p.addf(field, "%v", err)
		}
	}
	if len(r.ClassHDR) > maxClasses {
		p.addf("class_hdr", "%d classes; at most %d are possible", len(r.ClassHDR), maxClasses)
	}
	for class, encoded := range sorted(r.ClassHDR) {
		if err := histogram.Check(encoded); err != nil {
			p.addf("class_hdr."+class, "%v", err)
		}
	}
	if r.Source != FromAgent && len(r.Settings) > 0 {
		p.addf("settings", "settings of an instance are its agent's to tell")
	}
	p.inside(nil, r.Settings)
	if r.Tenancy != nil {
		if r.Source != FromAgent {
			p.addf("tenancy", "it is the agent's to tell")
		}
		p.in("tenancy", func() { r.Tenancy.check(&p) })
	}
	p.in("observation", func() { r.Observation.check(&p) })
	return p.err()
}

// inside checks the limits and settings of an instance.
func (p *problems) inside(limits map[Resource]float64, settings map[string]float64) {
	for r, v := range sorted(limits) {
		p.resource("limits", r)
		p.number("limits."+string(r), v, maxRate)
	}
	for name, v := range sorted(settings) {
		p.number("settings."+name, v, math.MaxFloat64)
	}
}

// Validate returns all rules that the limit breaks, joined, or nil.
func (l *Limit) Validate() error {
	var p problems
	p.id("instance", l.Instance)
	p.resource("resource", l.Resource)
	p.number("value", l.Value, maxRate)
	p.id("unit", l.Unit)
	return p.err()
}

// Validate returns all rules that the setting breaks, joined, or nil.
func (s *Setting) Validate() error {
	var p problems
	p.id("instance", s.Instance)
	p.id("target", s.Target)
	p.id("name", s.Name)
	p.number("value", s.Value, math.MaxFloat64)
	return p.err()
}

// Validate returns all rules that the observation breaks, joined, or nil.
func (o *Observation) Validate() error {
	var p problems
	o.check(&p)
	return p.err()
}

func (o *Observation) check(p *problems) {
	p.number("window_s", o.WindowS, maxMS)
	p.optional("request_rate", o.RequestRate, maxRate)
	p.optional("error_rate", o.ErrorRate, 1)
	p.optional("shed_rate", o.ShedRate, 1)
	p.optional("limited_rate", o.LimitedRate, 1)
	p.optional("answered_rate", o.AnsweredRate, maxRate)
	p.optional("in_flight", o.InFlight, maxRate)
	for class, v := range sorted(o.RequestRates) {
		p.number("request_rates."+class, v, maxRate)
	}
	if o.LatencyMS != nil {
		p.in("latency_ms", func() { o.LatencyMS.check(p) })
	}
	for class, l := range sorted(o.LatencyByClassMS) {
		p.in("latency_by_class_ms."+class, func() { l.check(p) })
	}
	p.byResource("utilization", o.Utilization, maxUtilization)
	p.byResource("severity", o.Severity, maxSeverity)
	p.byResource("own_work", o.OwnWork, maxUtilization)
	p.byResource("others", o.Others, maxUtilization)
	for r, top := range sorted(o.Top) {
		p.resource("top", r)
		p.in("top."+string(r), func() { p.id("name", top.Name); p.number("use", top.Use, maxUtilization) })
	}
	p.byResource("credits", o.Credits, maxRate)
	for r, past := range sorted(o.CreditsPast) {
		p.resource("credits_past", r)
		p.in("credits_past."+string(r), func() { past.check(p) })
	}
	for r, why := range sorted(o.ProbeFailed) {
		p.resource("probe_failed", r)
		if len(why) > maxReasonBytes {
			p.addf("probe_failed."+string(r), "longer than %d bytes", maxReasonBytes)
		}
	}
	for r, v := range sorted(o.Probe) {
		p.resource("probe", r)
		p.in("probe."+string(r), func() { v.check(p) })
	}
	if c := o.CPU; c != nil {
		p.number("cpu.user", c.User, maxUtilization)
		p.number("cpu.system", c.System, maxUtilization)
		p.optional("cpu.iowait", c.IOWait, maxUtilization)
		p.number("cpu.steal", c.Steal, maxUtilization)
	}
	for name, v := range sorted(o.Pressure) {
		p.number("pressure."+name, v, 1)
	}
	for name, v := range sorted(o.Counters) {
		p.number("counters."+name, v, math.MaxFloat64)
	}
	for name, v := range sorted(o.TCP) {
		p.number("tcp."+name, v, math.MaxFloat64)
	}
	p.optional("slowdown", o.Slowdown, maxSeverity)
	if o.Sched != nil {
		p.in("sched", func() { o.Sched.check(p) })
	}
}

func (c CreditPast) check(p *problems) {
	p.number("age_s", c.AgeS, maxMS)
	p.number("seen_s", c.SeenS, maxMS)
	p.number("used", c.Used, maxRate)
	if c.SeenS > c.AgeS {
		p.addf("seen_s", "is longer than age_s")
	}
}

func (s *Sched) check(p *problems) {
	p.number("cores", s.Cores, maxRate)
	p.number("run_s", s.RunS, maxMS)
	p.optional("user_s", s.UserS, maxMS)
	p.optional("system_s", s.SystemS, maxMS)
	p.optional("wait_s", s.WaitS, maxMS)
	p.optional("task_run_s", s.TaskRunS, maxMS)
	p.optional("free_s", s.FreeS, maxMS)
	p.optional("chains", s.Chains, maxRate)
	p.optional("lost", s.Lost, 1)
	p.optional("throttled_s", s.ThrottledS, maxMS)
}

func (l *Latency) check(p *problems) {
	p.optional("mean", l.Mean, maxMS)
	p.optional("p50", l.P50, maxMS)
	p.optional("p90", l.P90, maxMS)
	p.optional("p95", l.P95, maxMS)
	p.optional("p99", l.P99, maxMS)
	if l.N < 0 {
		p.addf("n", "%d is negative", l.N)
	}
}

func (s *ProbeStats) check(p *problems) {
	p.number("mean_ms", s.MeanMS, maxMS)
	p.number("stddev_ms", s.StddevMS, maxMS)
	if s.N < 1 {
		p.addf("n", "%d probes: a probe that was not taken is left out", s.N)
	}
	if by := s.By; by != nil {
		p.in("by", func() { by.check(p) })
	}
}

func (b *Probing) check(p *problems) {
	if !b.Sound() {
		p.addf("bytes", "%s, %d times: no probe", b.Size(), b.Count)
	}
	p.number("run_ms", b.RunMS, maxMS)
	p.number("period_s", b.PeriodS, maxMS)
	if len(b.From) > maxIDBytes {
		p.addf("from", "longer than %d bytes", maxIDBytes)
	}
}

func (p *problems) id(field, v string) {
	switch {
	case v == "":
		p.addf(field, "missing")
	case len(v) > maxIDBytes:
		p.addf(field, "longer than %d bytes", maxIDBytes)
	}
}

// number accepts finite values from 0 to most.
func (p *problems) number(field string, v, most float64) {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		p.addf(field, "%v is not a finite number", v)
	case v < 0:
		p.addf(field, "%v is negative", v)
	case v > most:
		p.addf(field, "%v is more than %v", v, most)
	}
}

func (p *problems) optional(field string, v *float64, most float64) {
	if v != nil {
		p.number(field, *v, most)
	}
}

func (p *problems) resource(field string, r Resource) {
	if !slices.Contains(Resources, r) {
		p.addf(field, "unknown resource %q", r)
	}
}

func (p *problems) byResource(field string, m map[Resource]float64, most float64) {
	for r, v := range sorted(m) {
		p.resource(field, r)
		p.number(field+"."+string(r), v, most)
	}
}

// sorted iterates over a map in the order of its keys, so that messages are always in the same order.
func sorted[K ~string, V any](m map[K]V) func(yield func(K, V) bool) {
	return func(yield func(K, V) bool) {
		if len(m) == 0 {
			return
		}
		keys := make([]K, 0, len(m))
		for k := range m {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
