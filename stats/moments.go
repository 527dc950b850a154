package stats

import "math"

// Moments summarises N values. Stddev is the sample standard deviation, 0 if N is 1.
type Moments struct {
	Mean   float64
	Stddev float64
	N      int
}

// Pool returns the moments of the values of all parts together. The result is the same as if it were computed from all single values,
// so it includes the spread between the parts. Parts with N <= 0 do not count.
func Pool(parts []Moments) Moments {
	var n int
	var mean, squares float64 // squares: sum of squared deviations from the mean
	for _, p := range parts {
		if p.N <= 0 {
			continue
		}
		gap := p.Mean - mean
		share := float64(p.N) / float64(n+p.N)
		squares += float64(p.N-1)*p.Stddev*p.Stddev + gap*gap*float64(n)*share
		mean += gap * share
		n += p.N
	}
	if n < 2 {
		return Moments{Mean: mean, N: n}
	}
	return Moments{Mean: mean, Stddev: math.Sqrt(squares / float64(n-1)), N: n}
}
