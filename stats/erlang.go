package stats

// ErlangC returns the waiting factor of M/M/m (Erlang's C formula, by the recursion for blocking).
func ErlangC(m, use float64) float64 {
	blocked, offered := 1.0, m*use
	for k := 1.0; k <= m; k++ {
		blocked = offered * blocked / (k + offered*blocked)
	}
	return blocked / (1 - use*(1-blocked)) / (m * (1 - use))
}
