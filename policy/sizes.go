package policy

import "github.com/quellhq/quell"

// Instances of different types use different parts of a resource for the same request. Loads and capacities of all are in units of the
// instances by whose models the group is planned (those of contended itself): a use of U on another type counts as U times the
// type's size. A type on which a request uses half as much has a size of 2.

// size returns the size of a type of instance, 1 if it is not known what a request uses.
func (c *Contended) size(instanceType string) float64 {
	own := c.Of(instanceType)
	if own == c || c.Predictor == nil || own.Predictor == nil {
		return 1
	}
	base, knowsBase := c.Predictor.PerRequest()
	use, knowsUse := own.Predictor.PerRequest()
	if !knowsBase || !knowsUse {
		return 1
	}
	return base / use
}

// sizedRates are a group's rates by type of instance.
type sizedRates struct {
	plain  []float64
	byType map[string][]float64
}

// sized returns the rates of each type of instance that has models of its own.
func (in *Input) sized(rates []float64) sizedRates {
	s := sizedRates{plain: rates}
	for i := range in.Contended {
		for instanceType := range in.Contended[i].Types {
			if s.byType[instanceType] != nil {
				continue
			}
			own := make([]float64, len(rates))
			for j := range rates {
				own[j] = rates[j] * in.Contended[j].size(instanceType)
			}
			quell.Put(&s.byType, instanceType, own)
		}
	}
	return s
}

func (s sizedRates) of(instanceType string) []float64 {
	if own, ok := s.byType[instanceType]; ok {
		return own
	}
	return s.plain
}
