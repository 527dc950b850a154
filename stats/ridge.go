package stats

import "gonum.org/v1/gonum/mat"

// Normal is a normal distribution. Stddev is above 0.
type Normal struct{ Mean, Stddev float64 }

// Regress returns the most likely coefficients x of b = A x + noise, and their covariance matrix. The noise of row i has the variance
// 1/weights[i], and prior says what is known of each coefficient before the rows (Bayesian linear regression with known variances;
// Bishop 2006, section 3.3). It returns false if numbers are not finite.
func Regress(a [][]float64, b, weights []float64, prior []Normal) (x []float64, covariance [][]float64, ok bool) {
	n := len(prior)
	information, moment := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
	for j, p := range prior {
		information.SetSym(j, j, 1/(p.Stddev*p.Stddev))
		moment.SetVec(j, p.Mean/(p.Stddev*p.Stddev))
	}
	for i, row := range a {
		for j := range n {
			moment.SetVec(j, moment.AtVec(j)+weights[i]*row[j]*b[i])
			for k := j; k < n; k++ {
				information.SetSym(j, k, information.At(j, k)+weights[i]*row[j]*row[k])
			}
		}
	}
	var factors mat.Cholesky
	if !factors.Factorize(information) {
		return nil, nil, false
	}
	var solution mat.VecDense
	var inverse mat.SymDense
	if factors.SolveVecTo(&solution, moment) != nil || factors.InverseTo(&inverse) != nil {
		return nil, nil, false
	}
	covariance = make([][]float64, n)
	for j := range n {
		x = append(x, solution.AtVec(j))
		for k := range n {
			covariance[j] = append(covariance[j], inverse.At(j, k))
		}
	}
	return x, covariance, true
}
