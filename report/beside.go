package report

import "slices"

// around is how many periods before and after one tell the use by neighbours in it.
const around = 2

// findNeighbours sets the use by neighbours in each row: the median of those that severities show in the periods around it. Beside a nearly
// full resource, a short queue already multiplies the severity. With less load it would not be there, so it must not count as use.
func findNeighbours(rows []row, instances int) {
	visits := make([][]int32, instances) // rows since the neighbours came
	for i := range rows {
		r := &rows[i]
		visit := &visits[r.instance]
		switch {
		case isNaN(r.use):
		case r.severity > 0:
			*visit = append(*visit, int32(i))
		default:
			setNeighbours(rows, *visit)
			*visit = (*visit)[:0]
		}
	}
	for _, visit := range visits {
		setNeighbours(rows, visit)
	}
}

func setNeighbours(rows []row, visit []int32) {
	var near [2*around + 1]float64
	for k, i := range visit {
		n := 0
		for _, j := range visit[max(0, k-around):min(len(visit), k+around+1)] {
			near[n] = interfering(float64(rows[j].use), float64(rows[j].severity))
			n++
		}
		slices.Sort(near[:n])
		rows[i].beside = float32(near[(n-1)/2])
	}
}
