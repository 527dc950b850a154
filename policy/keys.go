package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// Name returns a value of a configuration that accepts the name of a policy for a service.
func (t Table) Name(dst *string) setting.Value { return t.nameOf(ServiceScope, dst) }

// nameOf returns a value of a configuration that accepts the names of a scope's policies, and the given words. If the name belongs to
// another scope, the error says so.
func (t Table) nameOf(scope Scope, dst *string, words ...string) *setting.Scalar[string] {
	return setting.OneOf(dst, append(words, t.NamesOf(scope)...)).First(func(name string) string {
		if r, _, err := t.find(quell.Policy{Name: name}); err == nil && !r.runs(scope) {
			return fmt.Sprintf("policy %s cannot decide here: %s", name, r.scope.where())
		}
		return ""
	})
}

// Keys returns a value of a configuration for a policy with its settings: a map with the name and that policy's keys. If a
// file chooses another policy than dst has, the settings start with that policy's defaults.
func (t Table) Keys(dst *quell.Policy) *setting.Choice {
	return t.choice(ServiceScope, dst, setting.Opt("name", t.Name(&dst.Name), t.about(ServiceScope))).
		Beside(setting.Opt("fast", t.fastKeys(&dst.Fast),
			"a policy that runs beside the main one at a shorter period, and cuts shares: its name, or a map"))
}

// HostKeys is like Keys, for a policy that decides for a machine's control groups. There is no default policy.
func (t Table) HostKeys(dst *quell.Policy) *setting.Choice {
	return t.choice(HostScope, dst, setting.Req("name", t.nameOf(HostScope, &dst.Name), t.about(HostScope)))
}

func (t Table) choice(scope Scope, dst *quell.Policy, name setting.Key) *setting.Choice {
	before := *dst
	return setting.ChoiceBy(name, t.forms(scope), func() (setting.Table, func()) {
		if dst.Name != before.Name {
			dst.Settings = nil
		}
		r, settings, err := t.find(*dst)
		if err != nil {
			return nil, func() {}
		}
		table, read := r.open(settings)
		return table, func() { dst.Settings = read() }
	})
}

// forms returns the settings of each of a scope's policies, for messages and the configuration's reference.
func (t Table) forms(scope Scope) (list []setting.Form) {
	for _, r := range t.rows {
		if r.runs(scope) {
			table, _ := r.open(r.defaults)
			list = append(list, setting.Form{Name: r.name, Keys: table})
		}
	}
	return list
}

// about returns a line about each of a scope's policies, for the configuration's reference.
func (t Table) about(scope Scope) string {
	var lines []string
	for _, r := range t.rows {
		if r.runs(scope) {
			lines = append(lines, r.name+": "+r.about)
		}
	}
	return strings.Join(lines, "; ")
}

// noFast is the word for "no fast policy"; defaultFast is the default period of a fast policy.
const (
	noFast      = "none"
	defaultFast = time.Second
)

// fastKeys returns a value of a configuration for a fast policy: a map with its settings, or only its name.
func (t Table) fastKeys(dst *quell.Fast) setting.Value {
	name, sampling := cmp.Or(dst.Name, noFast), cmp.Or(dst.Sampling, defaultFast)
	open := func() (setting.Table, func()) {
		if name == noFast {
			return nil, func() { *dst = quell.Fast{} }
		}
		chosen := quell.Policy{Name: name}
		if name == dst.Name {
			chosen.Settings = dst.Settings
		}
		r, settings, err := t.find(chosen)
		if err != nil {
			return nil, func() {}
		}
		table, read := r.open(settings)
		return table, func() { *dst = quell.Fast{Name: name, Settings: read(), Sampling: sampling} }
	}
	whole := setting.ChoiceBy(setting.Opt("name", t.nameOf(FastScope, &name, noFast), t.about(FastScope)), t.forms(FastScope), open).
		Beside(setting.Opt("sampling", setting.Duration(&sampling).Between(100*time.Millisecond, time.Minute),
			"sampling period of the fast policy; that of the main policy is at least twice as long, and a multiple of it"))
	word := t.nameOf(FastScope, &name, noFast).Into(func(n string) {
		name = n
		_, closing := open()
		closing()
	})
	return setting.ShortOr(word, whole)
}

// Agree checks that the settings of the service's policy agree with each other and with the service. path is their place in the file.
func (t Table) Agree(d *setting.Decoder, path string, service quell.Service) {
	agreeFast(d, setting.Join(path, "fast.sampling"), strings.TrimSuffix(path, "policy")+"sampling", service)
	if r, settings, err := t.find(service.Policy); err == nil {
		r.agree(d, path, settings, service)
	}
	fast := service.Policy.Fast
	if r, settings, err := t.find(quell.Policy{Name: fast.Name, Settings: fast.Settings}); err == nil {
		r.agree(d, setting.Join(path, "fast"), settings, service)
	}
}

// agreeFast checks that the sampling period is a multiple of the fast policy's period, so that readings of fast periods can be joined.
func agreeFast(d *setting.Decoder, path, slow string, service quell.Service) {
	fast := service.Policy.Fast.Sampling
	if fast == 0 || !d.Sound(path, slow) || service.Sampling > fast && service.Sampling%fast == 0 {
		return
	}
	d.Refuse(d.First(path, slow), "", "the sampling period of %s must be a multiple of the fast policy's period of %s, at least twice",
		setting.FormatDuration(service.Sampling), setting.FormatDuration(fast))
}

// Difference describes the keys in which the settings of two variants of a policy differ, with their values in to, such as
// "headroom 70%, spare 1".
func (t Table) Difference(from, to quell.Policy) string {
	before, after := t.currents(from), t.currents(to)
	var changes []string
	for key, value := range after {
		if before[key] != value {
			changes = append(changes, fmt.Sprintf("%s %s", key, value))
		}
	}
	slices.Sort(changes)
	return strings.Join(changes, ", ")
}

func (t Table) currents(p quell.Policy) map[string]string {
	values := map[string]string{}
	if r, settings, err := t.find(p); err == nil {
		table, _ := r.open(settings)
		table.Currents("", values)
	}
	if p.Fast.Name != "" {
		values["fast"] = p.Fast.Name
	}
	return values
}

// Keys that several policies have.

func ResourceKey(dst *quell.Resource) setting.Key {
	return setting.Opt("resource", setting.OneOf(dst, quell.Resources),
		"the resource for which neighbours compete: cpu, network, disk or memory")
}

func ConfidenceKey(dst *float64) setting.Key {
	return setting.Opt("confidence", setting.Share(dst).Above(0.5).Below(1),
		"confidence of the one-sided test that distinguishes interference from chance")
}

func ConfirmKey(dst *int) setting.Key {
	return setting.Opt("confirm", setting.Whole(dst).Between(0, 1000),
		"W: act on the (W+1)th snapshot in a row that asks for it, and treat interference as gone after as many snapshots without it")
}

func ToleranceKey(dst *float64) setting.Key {
	return setting.Opt("tolerance", setting.Share(dst).AtLeast(0).Below(1),
		"a weight is not changed if the change is less than this share of it")
}
