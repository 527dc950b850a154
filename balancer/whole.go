package balancer

import "math"

// Whole turns shares into whole weights: numbers from 1 to most, and 0 for a share of 0. Multiplying all shares by a factor changes
// nothing, so Whole tries the factors that make the largest weight 1, 2, ... most. It takes the factor with the smallest error, and of
// factors with equal errors the largest.
func Whole(shares []float64, most int) []int {
	shares = relative(shares)
	best, least := make([]int, len(shares)), math.Inf(1)
	weights := make([]int, len(shares))
	for top := most; top >= 1; top-- {
		if e := roundAll(weights, shares, float64(top), least); e < least-ties {
			best, weights, least = weights, best, e
		}
	}
	return best
}

// relative divides shares by the largest share. Shares far below the largest get the weight 1 in any case; they are raised, so that
// ratios stay finite.
func relative(shares []float64) []float64 {
	var largest float64
	for _, s := range shares {
		largest = max(largest, s)
	}
	out := make([]float64, len(shares))
	for i, s := range shares {
		if s > 0 {
			out[i] = max(s/largest, 1e-6)
		}
	}
	return out
}

// ties is the largest difference between two results of wholeError that count as equal.
const ties = 1e-9

// roundAll fills weights with the rounded products of shares and factor, and returns their error. It stops as soon as the error exceeds the
// limit.
func roundAll(weights []int, shares []float64, factor, limit float64) float64 {
	low, high := math.Inf(1), 0.0
	for i, s := range shares {
		weights[i] = 0
		if s == 0 {
			continue
		}
		weights[i] = max(1, int(math.Round(s*factor)))
		ratio := float64(weights[i]) / s
		low, high = min(low, ratio), max(high, ratio)
		if e := (high - low) / (high + low); e > limit {
			return e
		}
	}
	if high == 0 {
		return 0
	}
	return (high - low) / (high + low)
}

// Lowest divides weights by what divides them all, and returns them.
func Lowest(weights []int) []int {
	divisor := 0
	for _, w := range weights {
		for a := w; a > 0; {
			divisor, a = a, divisor%a
		}
	}
	for i := range weights {
		weights[i] /= max(1, divisor)
	}
	return weights
}

// AsPrecise returns whether the weights in force give shares as precisely as the wanted ones would. Then they can stay.
func AsPrecise(present, wanted []int, shares []float64) bool {
	return wholeError(present, shares) <= wholeError(wanted, shares)+ties
}

// wholeError returns the largest relative deviation of the weights from the shares multiplied by the best factor. With the ratios r =
// weight/share, this deviation is (max r - min r) / (max r + min r). It is infinite if a weight is 0 but its share is not, or the reverse.
func wholeError(weights []int, shares []float64) float64 {
	low, high := math.Inf(1), 0.0
	for i, s := range relative(shares) {
		if (s == 0) != (weights[i] == 0) {
			return math.Inf(1)
		}
		if s > 0 {
			ratio := float64(weights[i]) / s
			low, high = min(low, ratio), max(high, ratio)
		}
	}
	if high == 0 {
		return 0
	}
	return (high - low) / (high + low)
}
