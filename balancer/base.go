package balancer

// Bases divides the weights that people chose, by server or instance, by their mean. Weights of 0 or less are no sizes and are left out.
// Bases returns nil if all others are equal.
func Bases(chosen map[string]int) map[string]*float64 {
	first, sum, n, alike := 0, 0.0, 0, true
	for _, w := range chosen {
		if w <= 0 {
			continue
		}
		if n == 0 {
			first = w
		}
		sum, n, alike = sum+float64(w), n+1, alike && w == first
	}
	if alike {
		return nil
	}
	bases := make(map[string]*float64, n)
	for name, w := range chosen {
		if w > 0 {
			bases[name] = new(float64(w) * float64(n) / sum)
		}
	}
	return bases
}
