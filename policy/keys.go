package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/keys"
)

// Name is the name of a policy, as a configuration has it.
func Name(dst *string) keys.Value { return keys.OneOf(dst, Names()) }

// Keys is a policy with its own settings, as a configuration has it: a map with the name and that policy's keys. A policy
// that is chosen by another name than the one before begins with its defaults.
func Keys(dst *quell.Policy) *keys.Choice {
	before := *dst
	forms, about := make([]keys.Form, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		table, _ := r.open(r.defaults)
		forms[i], about[i] = keys.Form{Name: r.name, Keys: table}, r.name+": "+r.about
	}
	return keys.ChoiceBy(keys.Opt("name", Name(&dst.Name), strings.Join(about, "; ")), forms, func() (keys.Table, func()) {
		if dst.Name != before.Name {
			dst.Settings = nil
		}
		r, settings, err := find(*dst)
		if err != nil {
			return nil, func() {}
		}
		table, read := r.open(settings)
		return table, func() { dst.Settings = read() }
	})
}

// Agree checks what a policy's settings, which stand at a path, say together, and with the rest of the service.
func Agree(d *keys.Decoder, path string, service quell.Service) {
	if r, settings, err := find(service.Policy); err == nil {
		r.agree(d, path, settings, service)
	}
}

// Difference says in which keys a policy's settings differ from another form of it, such as "headroom 70%, spare 1".
func Difference(from, to quell.Policy) string {
	before, after := currents(from), currents(to)
	var changes []string
	for key, value := range after {
		if before[key] != value {
			changes = append(changes, fmt.Sprintf("%s %s", key, value))
		}
	}
	slices.Sort(changes)
	return strings.Join(changes, ", ")
}

func currents(p quell.Policy) map[string]string {
	values := map[string]string{}
	if r, settings, err := find(p); err == nil {
		table, _ := r.open(settings)
		table.Currents("", values)
	}
	return values
}

// The keys that several policies have.

func resourceKey(dst *quell.Resource) keys.Key {
	return keys.Opt("resource", keys.OneOf(dst, quell.Resources), "the resource that is contended for: cpu, network, disk or memory")
}

func confidenceKey(dst *float64) keys.Key {
	return keys.Opt("confidence", keys.Share(dst).Above(0.5).Below(1), "of the one-sided test that tells interference from chance")
}

func confirmKey(dst *int) keys.Key {
	return keys.Opt("confirm", keys.Whole(dst).Between(0, 1000), "W: act on the (W+1)th snapshot in a row that asks for it, and treat interference as gone after as many snapshots without it")
}

func toleranceKey(dst *float64) keys.Key {
	return keys.Opt("tolerance", keys.Share(dst).AtLeast(0).Below(1), "no weight moves by less than this share of itself")
}
