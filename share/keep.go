package share

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/quellhq/quell"
)

// format is the first key of a stored ledger.
const format = "quell-shared-1"

// stored is a ledger as it is written.
type stored struct {
	Format string      `json:"format"`
	Laws   []storedLaw `json:"laws"`
}

type storedLaw struct {
	Type     string         `json:"type,omitempty"`
	Resource quell.Resource `json:"resource"`
	Law      *law           `json:"law"`
}

// Encode returns what was learned, as JSON. Rates are not part of it.
func (l *Ledger) Encode() ([]byte, error) {
	s := stored{Format: format}
	for _, k := range slices.SortedFunc(maps.Keys(l.laws), func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Resource, b.Resource))
	}) {
		s.Laws = append(s.Laws, storedLaw{k.Type, k.Resource, l.laws[k]})
	}
	return json.Marshal(s)
}

// Decode reads what Encode wrote.
func Decode(data []byte) (*Ledger, error) {
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	if s.Format != format {
		return nil, fmt.Errorf("format is %q, not %q", s.Format, format)
	}
	l := &Ledger{laws: map[kind]*law{}, machines: map[string]*machine{}}
	for _, one := range s.Laws {
		if one.Law == nil || !one.Law.sound() {
			return nil, errors.New("the law of " + string(one.Resource) + " is damaged")
		}
		l.laws[kind{one.Type, one.Resource}] = one.Law
	}
	return l, nil
}

// sound returns whether a stored law can be used.
func (l *law) sound() bool {
	n := len(l.Services) + 1
	if len(l.Info) != n || len(l.Moment) != n || slices.ContainsFunc(l.Info, func(row []float64) bool { return len(row) != n }) {
		return false
	}
	all := append(slices.Concat(l.Info...), l.Use, l.Rate, l.N)
	return !slices.ContainsFunc(append(all, l.Moment...), func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
}

// Forget drops what is known of a service that has gone.
func (l *Ledger) Forget(service string) {
	for _, m := range l.machines {
		delete(m.rates, service)
		delete(m.window, service)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
