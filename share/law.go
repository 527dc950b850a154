package share

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/mat"
)

const (
	// memory is after how many periods without confirmation what was measured counts for a factor e less.
	memory = 200
	// noise and relativeNoise are the standard deviation of a machine's use in one period, as a fraction of the resource, and as a part of
	// the use.
	noise, relativeNoise = 0.02, 0.1
	// idle is the standard deviation, before anything is measured, of what a machine uses without requests.
	idle = 0.02
	// outlying is how many standard deviations a use may be from what requests explain. Beyond, it counts the less the further it is off
	// (Huber 1964), because the machine does work of its own then.
	outlying = 3
	// settled is how many periods must be known before a use can be outlying.
	settled = 20
)

// law is what one request of each service costs on machines of one kind: use = base + sum of cost x requests per second. It is a Bayesian
// linear regression (Bishop 2006, section 3.3) that forgets. The prior is that all requests cost the same: while the rates of two services
// rise and fall together, nothing tells which of them costs more.
type law struct {
	Services []string    `json:"services"`    // in the order of the columns, after that of the base
	Info     [][]float64 `json:"information"` // sum of w x xT
	Moment   []float64   `json:"moment"`      // sum of w x use
	Use      float64     `json:"use"`         // sum of uses
	Rate     float64     `json:"rate"`        // sum of rates
	N        float64     `json:"n"`           // number of uses
	At       time.Time   `json:"at"`

	costs []float64 // base and cost of each service; nil: to be solved
}

// column returns the column of a service, and adds one if there is none.
func (l *law) column(service string) int {
	if i := slices.Index(l.Services, service); i >= 0 {
		return i + 1
	}
	if l.Info == nil {
		l.Info, l.Moment = [][]float64{{0}}, []float64{0}
	}
	l.Services = append(l.Services, service)
	for i := range l.Info {
		l.Info[i] = append(l.Info[i], 0)
	}
	l.Info = append(l.Info, make([]float64, len(l.Services)+1))
	l.Moment = append(l.Moment, 0)
	return len(l.Services)
}

// learn adds the use of one machine in a period of periodS seconds, with the requests per second of each service.
func (l *law) learn(perS map[string]float64, use float64, at time.Time, periodS float64) {
	row, total := l.row(perS)
	weight := l.weight(row, use)
	if !l.At.IsZero() && at.After(l.At) && periodS > 0 {
		l.fade(math.Exp(-at.Sub(l.At).Seconds() / (memory * periodS)))
	}
	l.At = at
	l.Use, l.Rate, l.N = l.Use+use, l.Rate+total, l.N+1
	for i := range row {
		l.Moment[i] += weight * row[i] * use
		for j := range row {
			l.Info[i][j] += weight * row[i] * row[j]
		}
	}
	l.costs = nil
}

// row returns the columns' values, and the sum of the rates.
func (l *law) row(perS map[string]float64) (row []float64, total float64) {
	for _, service := range sortedKeys(perS) {
		l.column(service)
	}
	row = make([]float64, len(l.Services)+1)
	row[0] = 1
	for _, service := range sortedKeys(perS) {
		row[l.column(service)] = perS[service]
		total += perS[service]
	}
	return row, total
}

// weight is the inverse of a use's variance, less if it is outlying.
func (l *law) weight(row []float64, use float64) float64 {
	deviation := noise + relativeNoise*use
	weight := 1 / (deviation * deviation)
	if l.N < settled {
		return weight
	}
	expected := 0.0
	for i, cost := range l.solved() {
		expected += cost * row[i]
	}
	if off := math.Abs(use - expected); off > outlying*deviation {
		weight *= outlying * deviation / off
	}
	return weight
}

func (l *law) fade(factor float64) {
	l.Use, l.Rate, l.N = l.Use*factor, l.Rate*factor, l.N*factor
	for i := range l.Info {
		l.Moment[i] *= factor
		for j := range l.Info[i] {
			l.Info[i][j] *= factor
		}
	}
}

// explain returns what requests explain of a machine's use: those of all services, and those of all but one.
func (l *law) explain(rates map[string]rate, but string) (all, others float64) {
	costs := l.solved()
	for _, service := range sortedKeys(rates) {
		i := slices.Index(l.Services, service)
		if i < 0 || i+1 >= len(costs) {
			continue
		}
		use := costs[i+1] * rates[service].perS
		all += use
		if service != but {
			others += use
		}
	}
	return all, others
}

// solved returns the most likely base and costs, none of which is negative.
func (l *law) solved() []float64 {
	if l.costs == nil {
		l.costs = make([]float64, len(l.Services)+1)
		if l.Rate > 0 && l.Use > 0 {
			l.solve(l.Use / l.Rate)
		}
	}
	return l.costs
}

// solve finds the costs, where usual is what a request costs if all cost the same. Columns that would be negative are taken out.
func (l *law) solve(usual float64) {
	free := make([]int, len(l.costs))
	for i := range free {
		free[i] = i
	}
	for len(free) > 0 {
		info, moment := mat.NewSymDense(len(free), nil), mat.NewVecDense(len(free), nil)
		for a, i := range free {
			mean, deviation := usual, usual
			if i == 0 {
				mean, deviation = 0, idle
			}
			moment.SetVec(a, l.Moment[i]+mean/(deviation*deviation))
			for b, j := range free[:a+1] {
				value := l.Info[i][j]
				if i == j {
					value += 1 / (deviation * deviation)
				}
				info.SetSym(a, b, value)
			}
		}
		var factors mat.Cholesky
		var found mat.VecDense
		if !factors.Factorize(info) || factors.SolveVecTo(&found, moment) != nil {
			return
		}
		left := free[:0:0]
		clear(l.costs)
		for a, i := range free {
			if x := found.AtVec(a); x >= 0 {
				l.costs[i] = x
				left = append(left, i)
			}
		}
		if len(left) == len(free) {
			return
		}
		free = left
	}
}
