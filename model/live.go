package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"

	"github.com/quellhq/quell"
)

// Live is the section of what was learned in place, from readings of the running service: a Law for each resource and type of instance.
type Live map[quell.Resource]map[string]*Law

// AnyType is the key of the law of instances whose type is unknown.
const AnyType = "any"

// Law describes a resource that an instance shares with neighbours. U is the instance's own use of the resource, V the use by neighbours.
// With f = 1 - U - V, the part that is free,
//
//	probe time     P = P0 / f^kp
//	severity       SF = P / (P0 / (1-U)^kp) - 1
//	response time  R = R0 / (1-U)^k * (1+SF)^q
//
// If neighbours disturb another resource of the instance with a severity SF', R is longer by the factor (1+SF')^o.
//
// Under processor sharing and Poisson arrivals all exponents are 1 (Kleinrock, Queueing Systems II, 4.4). A balancer that sends requests
// to idle instances makes arrivals smoother and exponents smaller.
type Law struct {
	R0MS              float64 `json:"r0_ms"`                    // mean response time without load and neighbours
	P0MS              float64 `json:"p0_ms"`                    // mean probe time without load and neighbours
	Exponent          float64 `json:"exponent"`                 // k
	ProbeExponent     float64 `json:"probe_exponent"`           // kp
	SeverityExponent  float64 `json:"severity_exponent"`        // q
	OtherExponent     float64 `json:"other_exponent,omitempty"` // o
	SE                LawSE   `json:"se"`                       // standard errors
	SpreadIdle        float64 `json:"spread_idle"`              // squared coefficient of variation of single probes without load
	SpreadBusy        float64 `json:"spread_busy"`              // and how much it grows up to a use of 1
	Probes            int     `json:"probes"`                   // probes of windows without interference
	N                 int     `json:"n"`                        // windows with a response time
	Known             float64 `json:"known"`                    // how well capacity is known, 0 to 1
	Capacity          float64 `json:"capacity"`                 // of an instance without neighbours, at the objective
	CapacityHalf      float64 `json:"capacity_half"`            // half the width of its 95% confidence interval
	PerRequest        float64 `json:"per_request,omitempty"`
	PeriodsSinceDrift int     `json:"periods_since_drift,omitempty"` // 0: it never had to begin again
	Deaf              bool    `json:"deaf,omitempty"`                // probes take the same time at any use: they show no neighbours

	Base bool `json:"base,omitempty"` // loads are counted in units of this type (see bestType)

	// Margin is the logarithm of the factor by which response times may exceed predictions near the objective's threshold, so that nine of
	// ten windows stay within it; nil while too few predictions were compared with what was measured.
	Margin *float64 `json:"margin,omitempty"`

	// Together is what the instances carry as a group behind their balancer; nil if it is not known.
	Together *Together `json:"together,omitempty"`

	By    *quell.Probing           `json:"by,omitempty"`
	Ratio map[quell.Metric]float64 `json:"ratio,omitempty"` // of other metrics to the mean
	// Refined are corrections where there is data: the response time is that of the law times exp(LogRatio).
	Refined []Refinement `json:"refined,omitempty"`
	// ResidualsMS are the newest differences between measured and predicted response times, predicted before they were measured.
	ResidualsMS []float64 `json:"residuals_ms,omitempty"`
}

// LawSE are standard errors: of R0MS and P0MS as a fraction, of the exponents as they are.
type LawSE struct {
	R0       float64 `json:"r0"`
	P0       float64 `json:"p0"`
	Exponent float64 `json:"exponent"`
}

// Refinement is a correction of the law at one point.
type Refinement struct {
	Utilization float64 `json:"utilization"`
	Severity    float64 `json:"severity"`
	LogRatio    float64 `json:"log_ratio"`
}

var lawKeys = []string{"r0_ms", "p0_ms", "exponent", "probe_exponent", "severity_exponent", "n", "known"}

var liveKind = kind{
	keys: []string{"live"}, is: is[Live], decode: decodeLive,
	fit: func(fitting) (Section, SectionReport, error) { return nil, nil, nil }, // training rows are fitted to tables
}

// Live returns what the models have that was learned in place; nil if nothing was.
func (m *Models) Live() Live {
	l, _ := sectionOf[Live](m)
	return l
}

func decodeLive(f *file, text texts) Section {
	var byResource map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text["live"], &byResource); err != nil {
		f.addf("live", "must map resources to types of instances to laws")
		return Live{}
	}
	live := Live{}
	for _, name := range sortedKeys(byResource) {
		var r quell.Resource
		if err := r.UnmarshalText([]byte(name)); err != nil {
			f.addf("live."+name, "%v", err)
			continue
		}
		live[r] = map[string]*Law{}
		for _, instanceType := range sortedKeys(byResource[name]) {
			law := &Law{}
			f.strict("live."+name+"."+instanceType, byResource[name][instanceType], lawKeys, law)
			live[r][instanceType] = law
		}
	}
	return live
}

func (l Live) print(p *printer) { p.section("live", map[quell.Resource]map[string]*Law(l)) }

func (l Live) check(c *check) {
	for _, r := range sortedKeys(l) {
		c.resource("live."+string(r), r)
		if len(l[r]) == 0 {
			c.addf("live."+string(r), "is empty; leave the resource out or give a law")
		}
		for _, instanceType := range sortedKeys(l[r]) {
			l[r][instanceType].check(c, "live."+string(r)+"."+instanceType)
		}
	}
}

// steepest bounds exponents, so that every prediction is finite.
const steepestLaw = 4

func (w *Law) check(c *check, path string) {
	c.between(path+".r0_ms", w.R0MS, minProbeMS, maxValue)
	c.between(path+".p0_ms", w.P0MS, minProbeMS, maxValue)
	c.between(path+".exponent", w.Exponent, minExponent, steepestLaw)
	c.between(path+".probe_exponent", w.ProbeExponent, minExponent, steepestLaw)
	c.between(path+".severity_exponent", w.SeverityExponent, minExponent, steepestLaw)
	c.between(path+".other_exponent", w.OtherExponent, 0, steepestLaw)
	c.between(path+".spread_idle", w.SpreadIdle, 0, maxValue)
	c.between(path+".spread_busy", w.SpreadBusy, 0, maxValue)
	c.between(path+".per_request", w.PerRequest, 0, maxValue)
	c.between(path+".se.r0", w.SE.R0, 0, maxValue)
	c.between(path+".se.p0", w.SE.P0, 0, maxValue)
	c.between(path+".se.exponent", w.SE.Exponent, 0, maxValue)
	c.fraction(path+".known", w.Known)
	c.fraction(path+".capacity", w.Capacity)
	c.between(path+".capacity_half", w.CapacityHalf, 0, maxValue)
	c.atLeast(path+".n", float64(w.N), 0)
	c.atLeast(path+".probes", float64(w.Probes), 0)
	for _, m := range sortedKeys(w.Ratio) {
		c.between(path+".ratio."+string(m), w.Ratio[m], minProbeMS, maxValue)
	}
	for i, r := range w.Refined {
		at := fmt.Sprintf("%s.refined[%d]", path, i)
		c.fraction(at+".utilization", r.Utilization)
		c.between(at+".severity", r.Severity, 0, maxValue)
		c.between(at+".log_ratio", r.LogRatio, -maxRefined, maxRefined)
	}
	if w.Together != nil {
		w.Together.check(c, path+".together")
	}
	if w.Margin != nil {
		c.between(path+".margin", *w.Margin, -maxValue, maxValue)
	}
	if w.By != nil && !w.By.Sound() {
		c.addf(path+".by.bytes", "%d is no size of a probe", w.By.Bytes)
	}
}

// maxRefined bounds the correction of a prediction: a factor of 20.
const maxRefined = 3

// The points at which a law is tabulated. Between them predictions are linear.
const (
	lawStep = 0.05
	lawTop  = 0.95 // nothing is predicted above this use
)

var lawSeverities = []float64{0, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 4}

// levels are the utilisations at which a law is tabulated.
func lawLevels() (levels []float64) {
	for i := 0; float64(i)*lawStep < lawTop+lawStep/2; i++ {
		levels = append(levels, math.Round(float64(i)*lawStep*100)/100)
	}
	return levels
}

// crowding is the logarithm of 1/(1-U), the variable of the law. The use is bounded, because above lawTop a window says little.
func crowding(u float64) float64 { return -math.Log(1 - min(max(u, 0), 0.97)) }

// probe returns the probe time without neighbours, in milliseconds.
func (w *Law) probe(u float64) float64 { return w.P0MS * math.Exp(w.ProbeExponent*crowding(u)) }

// response returns the response time in milliseconds without corrections; ratio is that of the metric to the mean.
func (w *Law) response(u, severity, ratio float64) float64 {
	return ratio * w.R0MS * math.Exp(w.Exponent*crowding(u)+w.SeverityExponent*math.Log1p(severity))
}

// interfering returns the use by neighbours that causes a severity; it is the inverse of severity.
func (w *Law) interfering(u, severity float64) float64 {
	return (1 - u) * -math.Expm1(-math.Log1p(severity)/w.ProbeExponent)
}

// severity returns the severity that neighbours with a use of v cause.
func (w *Law) severity(u, v float64) float64 {
	return math.Exp(w.ProbeExponent*(math.Log1p(-u)-math.Log(1-u-v))) - 1
}

// free returns the part of the resource that the instance and its neighbours leave free.
func (w *Law) free(u, severity float64) float64 { return 1 - u - w.interfering(u, severity) }

// ratio returns how much larger a metric is than the mean, and whether it is known.
func (w *Law) ratio(m quell.Metric) (float64, bool) {
	if m == quell.Mean {
		return 1, true
	}
	r, ok := w.Ratio[m]
	return r, ok
}

// tables returns the law as tables of the section prima, which say the same.
func (w *Law) tables(r quell.Resource) *Prima {
	refined := map[[2]float64]float64{}
	for _, x := range w.Refined {
		refined[[2]float64{x.Utilization, x.Severity}] = x.LogRatio
	}
	var isolation []Isolation
	var response []ResponseTime
	var interference []Interference
	for _, u := range lawLevels() {
		alone := w.probe(u)
		isolation = append(isolation, Isolation{
			Utilization: u, ProbeMS: max(alone, minProbeMS), StddevMS: alone * math.Sqrt(w.SpreadIdle+w.SpreadBusy*u), N: max(w.Probes, 2),
		})
		for _, severity := range lawSeverities {
			factor := math.Exp(refined[[2]float64{u, severity}])
			row := ResponseTime{Utilization: u, Severity: severity}
			for _, metric := range quell.Metrics {
				if ratio, ok := w.ratio(metric); ok {
					row.LatencyMS.Set(metric, min(factor*w.response(u, severity, ratio), maxValue))
				}
			}
			response = append(response, row)
		}
		for v := lawStep; u+v < saturated; v += lawStep {
			interference = append(interference, Interference{Utilization: u, Interfering: min(v, 1), Severity: min(w.severity(u, v), maxValue)})
		}
	}
	return &Prima{
		Isolation:    map[quell.Resource][]Isolation{r: isolation},
		ResponseTime: map[quell.Resource][]ResponseTime{r: response},
		Interference: map[quell.Resource][]Interference{r: interference},
	}
}

// ownFrom is how many windows a type of instance needs before its own law is used.
const ownFrom = 30

// of returns the law of a type of instance. A type that has none of its own gets that of its kin: the law with most windows.
func (l Live) of(r quell.Resource, instanceType string) *Law {
	instanceType = cmp.Or(instanceType, AnyType)
	best := l.Best(r)
	if law, ok := l[r][instanceType]; ok && law.N >= min(ownFrom, best.N) {
		return law
	}
	return best
}

// Best returns the law of a resource that rests on most windows; nil if there is none.
func (l Live) Best(r quell.Resource) *Law { return l[r][l.bestType(r)] }

// stays is how many times the windows of the base type, in whose units loads are counted, another one needs to take its place.
const stays = 1.5

// bestType returns the type of instance whose law of a resource rests on most windows, or the base type; "" if there is none.
func (l Live) bestType(r quell.Resource) (best string) {
	most := -1.0
	for _, instanceType := range sortedKeys(l[r]) {
		n := float64(l[r][instanceType].N)
		if l[r][instanceType].Base {
			n *= stays
		}
		if n > most {
			best, most = instanceType, n
		}
	}
	return best
}

// tabulated returns models with tables for a resource. If the resource was learned in place, the tables are made from the law of the type
// of instance; else they are those of the models.
func (m *Models) tabulated(r quell.Resource, instanceType string) *Models {
	law := m.Live().of(r, instanceType)
	if law == nil {
		return m
	}
	t := &Trained{}
	if law.PerRequest > 0 {
		quell.Put(&t.PerRequest, r, law.PerRequest)
	}
	if law.By != nil {
		quell.Put(&t.By, r, *law.By)
	}
	return &Models{Trained: t, Sections: []Section{law.tables(r)}}
}

// describe prints for each resource and type of instance what was learned, and how well it is known.
func (l Live) describe(d *describer) error {
	for _, r := range sortedKeys(l) {
		for _, instanceType := range sortedKeys(l[r]) {
			w := l[r][instanceType]
			d.printf("\n%s, learned in place, instance type %s\n%s\n", r, instanceType, w.Text())
			d.printf("alone: a request takes %.4g ms (+-%.0f%%), a probe %.4g ms (+-%.0f%%); exponents %.2f (+-%.2f), probe %.2f, severity %.2f\n",
				w.R0MS, 196*w.SE.R0, w.P0MS, 196*w.SE.P0, w.Exponent, 1.96*w.SE.Exponent, w.ProbeExponent, w.SeverityExponent)
		}
	}
	return nil
}

// Text says in a few words how well the law is known.
func (w *Law) Text() string {
	return fmt.Sprintf("learned %.0f%%, capacity %.2f +- %.2f of it within the objective, from %d windows", 100*w.Known, w.Capacity,
		w.CapacityHalf, w.N)
}

// pictures draws the tables of every resource as the section prima does.
func (l Live) pictures(m *Models, o ShowOptions) (out []Picture, err error) {
	for _, r := range sortedKeys(l) {
		tabulated := m.tabulated(r, "")
		part, err := tabulated.Prima().pictures(tabulated, o)
		if err != nil {
			return nil, fmt.Errorf("drawing what was learned of %s: %w", r, err)
		}
		out = append(out, part...)
	}
	return out, nil
}
