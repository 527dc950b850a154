package haproxy

import "math"

// scale turns shares into HAProxy's weights: whole numbers from 1 to 256, and 0 for a share of 0. Multiplying all shares by a factor
// changes nothing, so scale tries the factors that make the largest weight 1, 2, ... 256. It takes the factor with the smallest error, and
// of factors with equal errors the largest.
func scale(shares []float64) []int {
	shares = relative(shares)
	best, least := make([]int, len(shares)), math.Inf(1)
	weights := make([]int, len(shares))
	for top := maxWeight; top >= 1; top-- {
		if e := roundAll(weights, shares, float64(top), least); e < least-ties {
			best, weights, least = weights, best, e
		}
	}
	return best
}

// relative divides shares by the largest share. Shares far below a 256th of the largest get the weight 1 in any case; they are raised, so
// that ratios stay finite.
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

// ties is the largest difference between errors that count as equal.
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
		weights[i] = min(max(1, int(math.Round(s*factor))), maxWeight)
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

// errorOf returns the largest relative deviation of the weights from the shares multiplied by the best factor. With the ratios r =
// weight/share it is (max r - min r) / (max r + min r). It is infinite if a weight is 0 but its share is not, or the reverse.
func errorOf(weights []int, shares []float64) float64 {
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
