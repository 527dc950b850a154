package policy

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/setting"
)

// Resources is the set of resources that a policy considers. It has no order. The zero value means the default resource.
type Resources struct {
	Auto bool // all resources that the models have
	set  uint // bit i is quell.Resources[i]
}

// auto is the word for all resources that the models have.
const auto quell.Resource = "auto"

// DefaultResource is used if no other is configured.
const DefaultResource = quell.Network

// ResourcesOf returns the set of the listed resources.
func ResourcesOf(list ...quell.Resource) (s Resources) {
	for _, r := range list {
		if i := slices.Index(quell.Resources, r); i >= 0 {
			s.set |= 1 << i
		}
	}
	return s
}

// AllKnown returns the set of all resources that the models have.
func AllKnown() Resources { return Resources{Auto: true} }

// List returns the named resources, the default one first if it is among them.
func (s Resources) List() (list []quell.Resource) {
	for i, r := range quell.Resources {
		if s.set&(1<<i) != 0 {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return []quell.Resource{DefaultResource}
	}
	slices.SortStableFunc(list, func(a, b quell.Resource) int { return rank(a) - rank(b) })
	return list
}

func rank(r quell.Resource) int {
	if r == DefaultResource {
		return 0
	}
	return 1
}

// ResourcesKey returns the key `resource` of a policy that can use several resources at once.
func ResourcesKey(dst *Resources) setting.Key {
	written := dst.List()
	if dst.Auto {
		written = []quell.Resource{auto}
	}
	read := func(words []quell.Resource) {
		if *dst = ResourcesOf(words...); slices.Contains(words, auto) {
			*dst = AllKnown()
		}
	}
	return setting.Opt("resource", setting.Words(written, read, quell.Resources, auto),
		"resources whose interference counts: cpu, network, disk or memory, a list such as [network, cpu], or auto: all in the models")
}

// Contended is a resource that a policy considers, with its models.
type Contended struct {
	Resource  quell.Resource
	Baseline  *model.Baseline  // turns probes into severity; nil without an isolation baseline
	Predictor *model.Predictor // nil for policies that need no models

	Types map[string]*Contended // of types of instances that have models of their own; nil: all have the same
}

// Of returns the resource with the models of a type of instance.
func (c *Contended) Of(instanceType string) *Contended {
	if own, ok := c.Types[instanceType]; ok {
		return own
	}
	return c
}

// contend compiles the models of the resources. It puts the resource first that requests fill first on an instance without neighbours,
// according to the training; the utilisation of that resource is the unit of loads and capacities. If a resource has no models, the error
// wraps quell.ErrNoData.
func contend(r Row, senses Senses, slo quell.SLO, models *model.Models) ([]Contended, error) {
	list := senses.Resources.List()
	if senses.Resources.Auto && r.needs == AllModels {
		list = slices.Clone(quell.Resources)
	}
	var known []Contended
	var lacks error
	for _, resource := range list {
		c, err := compileOf(r.needs, resource, "", senses, slo.Metric, models)
		switch {
		case err == nil:
			known = append(known, c)
		case !senses.Resources.Auto || !errors.Is(err, quell.ErrNoData):
			return nil, err
		case resource == DefaultResource:
			lacks = err
		}
	}
	if len(known) == 0 {
		return nil, lacks
	}
	types := typesOf(known, models)
	for i := range known {
		if err := known[i].compileTypes(types, r.needs, senses, slo.Metric, models); err != nil {
			return nil, err
		}
	}
	agree(known)
	slices.SortStableFunc(known, func(a, b Contended) int {
		return cmp.Or(cmp.Compare(b.filling(slo), a.filling(slo)), rank(a.Resource)-rank(b.Resource))
	})
	return known, nil
}

// compileOf compiles the models of a resource for a type of instance; "" means any.
func compileOf(
	needs Need, resource quell.Resource, instanceType string, senses Senses, metric quell.Metric, models *model.Models,
) (c Contended, err error) {
	c.Resource = resource
	c.Baseline, err = model.CompileBaselineOf(models, resource, instanceType, senses.Confidence)
	if needs == NoModels || needs == BaselineOnly && errors.Is(err, quell.ErrNoData) {
		return c, nil
	}
	if needs == AllModels {
		c.Predictor, err = model.Compile(models, model.Spec{
			Resource: resource, InstanceType: instanceType, Metric: metric, InterferenceModel: senses.InterferenceModel,
			Confidence: senses.Confidence,
		})
	}
	return c, err
}

// typesOf returns the types of instances that have a law of their own for some resource; none if all have the same.
func typesOf(list []Contended, models *model.Models) map[string]bool {
	types := map[string]bool{}
	for i := range list {
		for instanceType := range models.Live()[list[i].Resource] {
			types[instanceType] = true
		}
	}
	if len(types) < 2 {
		return nil
	}
	return types
}

// compileTypes compiles the models of these types of instances.
func (c *Contended) compileTypes(types map[string]bool, needs Need, senses Senses, metric quell.Metric, models *model.Models) error {
	if len(types) == 0 {
		return nil
	}
	c.Types = make(map[string]*Contended, len(types))
	for instanceType := range types {
		own, err := compileOf(needs, c.Resource, instanceType, senses, metric, models)
		if err != nil {
			return err
		}
		c.Types[instanceType] = &own
		if instanceType == model.AnyType {
			c.Types[""] = &own
		}
	}
	return nil
}

// filling returns the fraction of the capacity of an instance without neighbours that one request per second takes, or 0 if it is unknown.
func (c *Contended) filling(slo quell.SLO) float64 {
	if c.Predictor == nil {
		return 0
	}
	perRequest, known := c.Predictor.PerRequest()
	fresh := c.Predictor.FreshCapacity(slo.ThresholdMS())
	if !known || fresh == 0 {
		return 0
	}
	return perRequest / fresh
}

// agree gives the stations of all resources the same response time without load, for each type of instance: the shortest that one of them
// learned. A request takes that time whichever resource one looks at. The law of a resource that requests hardly use takes the waiting at
// others for its own.
func agree(list []Contended) {
	all := make([]*Contended, len(list))
	for instanceType := range list[0].Types {
		if instanceType == "" { // the same as model.AnyType
			continue
		}
		for i := range list {
			all[i] = list[i].Types[instanceType]
		}
		agreeOn(all)
	}
	for i := range list {
		all[i] = &list[i]
	}
	agreeOn(all)
}

// agreeOn gives the stations of these the shortest response time without load that one of them has. It does nothing if one has no station.
func agreeOn(all []*Contended) {
	least := math.Inf(1)
	for _, c := range all {
		if c.Predictor == nil || c.Predictor.Station() == nil {
			return
		}
		least = math.Min(least, c.Predictor.Station().UnloadedMS())
	}
	for _, c := range all {
		c.Predictor = c.Predictor.Within(least)
	}
}
