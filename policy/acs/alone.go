package acs

import "math"

// Alone, the tasks of a group wait for each other if there are more of them than processors.

// usedAlone returns how many processors a group uses if it has all of them to itself. free is what it would use with a processor for each
// of its chains, each of which works and sleeps in turns.
func usedAlone(free, chains, total float64) float64 {
	const many = 64              // chains of which some are always ready
	const neverSleeps = 1 - 1e-3 // part of the time that a chain works
	works := free / chains
	if chains <= total || total <= 0 || chains > many || works >= neverSleeps {
		return min(free, total)
	}
	whole, part := math.Modf(chains)
	kept := (1-part)*keptAlone(whole, works, total) + part*keptAlone(whole+1, works, total)
	return min(free*kept, free, total)
}

// keptAlone is the part of their work that n chains do if they share this many processors. Each would work for a part of the time with a
// processor of its own. It is the finite-source queue M/M/c//n, in which n machines break down and c people repair them (Kleinrock,
// Queueing Systems I, section 3.8). A number of processors that is not whole counts as one that is slower when all are busy.
func keptAlone(n, works, processors float64) float64 {
	if n <= processors {
		return 1
	}
	const large = 1e100               // so that products stay finite
	ready, all, busy := 1.0, 1.0, 0.0 // up to a common factor: the probability of k ready chains, its sum, and that of processors times it
	for k := 1.0; k <= n; k++ {
		rate := min(k, processors)
		ready *= (n - k + 1) / rate * works / (1 - works)
		all += ready
		busy += rate * ready
		if all > large {
			ready, all, busy = ready/large, all/large, busy/large
		}
	}
	return min(busy/all/(n*works), 1)
}
