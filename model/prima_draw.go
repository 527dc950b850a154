package model

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/quellhq/quell"
)

// pictures draws for each resource the probe without neighbours, response times, severities and capacities.
func (s *Prima) pictures(m *Models, o ShowOptions) ([]Picture, error) {
	var out []Picture
	for _, r := range quell.Resources {
		a, err := s.artist(m, r, o)
		if err != nil {
			return nil, fmt.Errorf("drawing models of %s: %w", r, err)
		}
		out = append(out, a.pictures()...)
	}
	return out, nil
}

// artist draws one resource. Fields for parts that the models lack are nil.
type artist struct {
	*Prima
	resource     quell.Resource
	options      ShowOptions
	joint, total *Predictor
	alone        *Baseline
}

func (s *Prima) artist(m *Models, r quell.Resource, o ShowOptions) (a artist, err error) {
	a = artist{Prima: s, resource: r, options: o}
	for _, kind := range quell.InterferenceModels {
		p, cause := Compile(m, Spec{Resource: r, Metric: o.Metric, InterferenceModel: kind, Confidence: 0.95})
		switch {
		case errors.Is(cause, quell.ErrNoData):
		case cause != nil:
			return a, cause
		case kind == quell.Joint:
			a.joint = p
		default:
			a.total = p
		}
	}
	if a.alone, err = CompileBaseline(m, r, 0.95); errors.Is(err, quell.ErrNoData) {
		err = nil
	}
	return a, err
}

func (a *artist) pictures() []Picture {
	var out []Picture
	if a.alone != nil {
		out = append(out, a.isolation())
	}
	if a.joint != nil {
		out = append(out, a.response(), a.field(), a.jointCurves())
	}
	if a.total != nil {
		out = append(out, a.totalCurve())
	}
	if a.joint != nil || a.total != nil {
		out = append(out, a.capacity())
	}
	return out
}

// picture makes a picture whose x axis is a utilisation.
func (a *artist) picture(name, title, x, y string) Picture {
	return Picture{Name: string(a.resource) + "-" + name, Title: title, X: Axis{Label: x, High: 1, Share: true}, Y: Axis{Label: y}}
}

// thresholds returns the thresholds that were requested or, if there are none, some that fit the trained range.
func (a *artist) thresholds() []float64 { return a.options.thresholds(cmp.Or(a.joint, a.total)) }

// isolation draws the probe time without neighbours, with the spread of single probes.
func (a *artist) isolation() Picture {
	p := a.picture("isolation", fmt.Sprintf("The probe on an instance alone (%s)", a.resource), "utilisation", "probe time, ms")
	rows := slices.SortedFunc(slices.Values(a.Isolation[a.resource]),
		func(x, y Isolation) int { return cmp.Compare(x.Utilization, y.Utilization) })
	var upper, lower, mean []Point
	most := 0.0
	for _, r := range rows {
		mean = append(mean, Point{r.Utilization, r.ProbeMS})
		upper = append(upper, Point{r.Utilization, r.ProbeMS + r.StddevMS})
		lower = append(lower, Point{r.Utilization, max(0, r.ProbeMS-r.StddevMS)})
		most = max(most, r.ProbeMS+r.StddevMS)
	}
	slices.Reverse(lower)
	if len(rows) > 1 {
		p.Layers = append(p.Layers, Layer{Form: Area, Legend: "± deviation of single probes", Points: append(upper, lower...),
			Colour: Colour{Grey: 0xdd}})
	}
	read := sampled(func(u float64) float64 { ms, _, _ := a.alone.Isolation(u); return ms }, rows[0].Utilization,
		rows[len(rows)-1].Utilization)
	colour := shade(0.4, 0, 1)
	p.Layers = append(p.Layers, Layer{Legend: "mean, as it is read", Points: read, Colour: colour},
		Layer{Form: Dots, Legend: "measured", Points: mean, Colour: colour})
	p.Y.High = 1.1 * most
	return p
}

// drawnSeverities are the severities for which a line of the response-time surface is drawn.
var drawnSeverities = []float64{0, 0.25, 0.5, 1, 2, 4}

// response draws lines of the response-time surface, and the training points in the colour of their severity.
func (a *artist) response() Picture {
	p := a.picture("response", fmt.Sprintf("Response time (%s) over utilisation, for several severities (%s)", a.options.Metric, a.resource),
		"utilisation", "response time, ms")
	low, high, worst := math.Inf(1), 0.0, 0.0
	rows := a.ResponseTime[a.resource]
	for _, r := range rows {
		if ms, ok := r.LatencyMS.Of(a.options.Metric); ok && ms > 0 {
			low, high, worst = min(low, ms), max(high, ms), max(worst, r.Severity)
		}
	}
	low, high = low/1.3, high*max(3, math.Pow(high/low, headroom))
	most := rank(min(worst, drawnSeverities[len(drawnSeverities)-1]))
	for _, r := range rows {
		if ms, ok := r.LatencyMS.Of(a.options.Metric); ok && ms > 0 {
			p.Layers = append(p.Layers, Layer{Form: Dots, Points: []Point{{r.Utilization, ms}}, Colour: shade(rank(r.Severity), 0, most)})
		}
	}
	for _, severity := range drawnSeverities {
		if severity > worst {
			break
		}
		points := sampled(func(u float64) float64 { return within(a.joint.ResponseTime(u, severity), low, high) }, 0, a.joint.MaxUtilization())
		p.Layers = append(p.Layers, Layer{Legend: fmt.Sprintf("severity %g", severity), Points: points, Colour: shade(rank(severity), 0, most)})
	}
	for _, ms := range a.options.ThresholdsMS {
		points := sampled(func(float64) float64 { return within(ms, low, high) }, 0, 1)
		p.Layers = append(p.Layers, Layer{Legend: fmt.Sprintf("threshold %.4g ms", ms), Points: points, Dash: Dashed})
	}
	p.Layers = append(p.Layers, Layer{Form: Dots, Legend: "measured (in the colour of its severity)", Colour: Colour{Grey: 0xc0}})
	p.Y.Low, p.Y.High, p.Y.Log = low, high, true
	return p
}

// headroom is the space for the legend above the longest response time, as a fraction of the axis below that time.
const headroom = 0.4

// rank spreads severities, most of which are near 0, over the colours.
func rank(severity float64) float64 { return math.Log1p(severity) }

// jointCurves draws severity over the neighbours' use, a line for each trained utilisation.
func (a *artist) jointCurves() Picture {
	p := a.picture("interference-joint", fmt.Sprintf("Severity by the joint model (%s)", a.resource), "utilisation by neighbours", "severity")
	rows, top := a.drawnInterference()
	levels := map[float64][]Point{}
	for _, r := range rows {
		levels[r.Utilization] = append(levels[r.Utilization], Point{r.Interfering, r.Severity})
	}
	utilizations := sortedKeys(levels)
	for i, u := range utilizations {
		colour := shade(u, 0, 1)
		line := Layer{Points: sampled(func(x float64) float64 { return within(a.joint.SeverityAt(u, x), 0, top) }, 0, min(1, 1-u)),
			Colour: colour}
		if named(i, len(utilizations)) {
			line.Legend = fmt.Sprintf("utilisation %.2f", u)
		}
		p.Layers = append(p.Layers, Layer{Form: Dots, Points: levels[u], Colour: colour}, line)
	}
	p.Y.High, p.Right = top, true
	return p
}

// totalCurve draws severity over the total utilisation: the paper's curve and the rows that it fits.
func (a *artist) totalCurve() Picture {
	p := a.picture("interference-total", fmt.Sprintf("Severity by the total model, the paper's (%s)", a.resource),
		"utilisation, own and neighbours' together", "severity")
	rows, top := a.drawnInterference()
	levels := map[float64]bool{}
	for _, r := range rows {
		levels[r.Utilization] = true
		p.Layers = append(p.Layers, Layer{Form: Dots, Points: []Point{{r.Utilization + r.Interfering, r.Severity}},
			Colour: shade(r.Utilization, 0, 1)})
	}
	points := sampled(func(x float64) float64 { return within(a.total.SeverityAt(0, x), 0, top) }, 0, 1)
	p.Layers = append(p.Layers, Layer{Legend: "the curve", Points: points})
	for i, u := range slices.Sorted(maps.Keys(levels)) {
		if named(i, len(levels)) {
			p.Layers = append(p.Layers, Layer{Form: Dots, Legend: fmt.Sprintf("measured at utilisation %.2f", u), Colour: shade(u, 0, 1)})
		}
	}
	p.Y.High = top
	return p
}

// drawnInterference returns the rows, and the end of the axis, which leaves out values far above most others.
func (a *artist) drawnInterference() (rows []Interference, top float64) {
	rows = a.Interference[a.resource]
	var severities []float64
	for _, r := range rows {
		severities = append(severities, r.Severity)
	}
	slices.Sort(severities)
	top = max(0.5, 1.15*severities[len(severities)*9/10])
	kept := slices.DeleteFunc(slices.Clone(rows), func(r Interference) bool { return r.Severity > top })
	return kept, top
}

// edgeSteps is how many points a capacity's line on the map has.
const edgeSteps = 120

// field draws the response time over both utilisations, with the lines along which it equals the thresholds: the effective
// capacity.
func (a *artist) field() Picture {
	p := a.picture("response-map", fmt.Sprintf("Response time (%s) by own and neighbours' utilisation (%s)", a.options.Metric, a.resource),
		"utilisation by neighbours", "own utilisation")
	least := a.joint.ResponseTime(0, 0)
	m := &Map{High: a.joint.MaxUtilization(), At: a.responseAt, Least: least, Most: max(8*least, 2*slices.Max(a.thresholds())), Unit: "ms"}
	p.Layers = append(p.Layers, Layer{Form: Field, Map: m})
	for i, ms := range a.thresholds() {
		var edge []Point
		for step := range edgeSteps + 1 {
			x := float64(step) / edgeSteps
			if capacity := a.joint.Capacity(x, ms); capacity > 0 {
				edge = append(edge, Point{x, capacity})
			}
		}
		p.Layers = append(p.Layers, Layer{Form: Contour, Legend: fmt.Sprintf("threshold %.4g ms", ms), Points: edge,
			Dash: []Dash{Solid, Dashed, Dotted}[i%3]})
	}
	var trained []Point
	for _, r := range a.Interference[a.resource] {
		trained = append(trained, Point{r.Interfering, r.Utilization})
	}
	p.Layers = append(p.Layers, Layer{Form: Scale, Map: m}, Layer{Form: Marks, Legend: "trained", Points: trained, Colour: Colour{Grey: 0x80}})
	p.Y.High, p.Y.Share, p.Right = 1, true, true
	return p
}

// responseAt returns the response time at a point of the map, or NaN if the resource would be full there.
func (a *artist) responseAt(interfering, u float64) float64 {
	if u+interfering > 1 {
		return math.NaN()
	}
	return a.joint.ResponseTime(u, a.joint.SeverityAt(u, interfering))
}

// capacity draws the effective capacity against the neighbours' use.
func (a *artist) capacity() Picture {
	p := a.picture("capacity", fmt.Sprintf("Effective capacity under interference (%s)", a.resource), "utilisation by neighbours",
		"effective capacity, as a utilisation")
	thresholds := a.thresholds()
	for i, ms := range thresholds {
		colour := shade(float64(i), 0, float64(max(1, len(thresholds)-1)))
		for _, by := range []struct {
			predictor *Predictor
			name      quell.InterferenceModel
			dash      Dash
		}{{a.joint, quell.Joint, Solid}, {a.total, quell.Total, Dashed}} {
			if by.predictor != nil {
				points := sampled(func(x float64) float64 { return by.predictor.Capacity(x, ms) }, 0, 1)
				p.Layers = append(p.Layers, Layer{Legend: fmt.Sprintf("%s within %.4g ms, %s model", a.options.Metric, ms, by.name), Points: points,
					Colour: colour, Dash: by.dash})
			}
		}
	}
	p.Y.High, p.Y.Share, p.Right = 1, true, true
	return p
}
