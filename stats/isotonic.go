package stats

// Weighted is a value that counts Weight times. Weights are positive.
type Weighted struct {
	Value  float64
	Weight float64
}

// Isotonic returns the non-decreasing sequence that is nearest to the given one in the weighted least-squares sense,
// one value per input. It pools adjacent violators in linear time.
func Isotonic(points []Weighted) []float64 {
	blocks := make([]block, 0, len(points))
	for _, p := range points {
		blocks = append(blocks, block{Weighted: p, size: 1})
		blocks = poolTail(blocks)
	}
	fitted := make([]float64, 0, len(points))
	for _, b := range blocks {
		for range b.size {
			fitted = append(fitted, b.Value)
		}
	}
	return fitted
}

// WeightedMean returns the weighted mean of the values, and 0 if there are none.
func WeightedMean(points []Weighted) float64 {
	var mean, weight float64
	for _, p := range points {
		weight += p.Weight
		mean += (p.Value - mean) * (p.Weight / weight)
	}
	return mean
}

// block is a sequence of inputs with the same fitted value.
type block struct {
	Weighted
	size int
}

// poolTail merges the last block into those before it until the values increase.
func poolTail(blocks []block) []block {
	for n := len(blocks); n > 1 && blocks[n-2].Value >= blocks[n-1].Value; n = len(blocks) {
		a, b := blocks[n-2], blocks[n-1]
		a.Value = WeightedMean([]Weighted{a.Weighted, b.Weighted})
		a.Weight += b.Weight
		a.size += b.size
		blocks = append(blocks[:n-2], a)
	}
	return blocks
}
