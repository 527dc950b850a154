// Package parallel spreads work on a long list over the processors.
package parallel

import (
	"runtime"
	"sync"
)

// least is the length of a part that is worth a goroutine of its own. Shorter lists are worked off at once.
const least = 1000

// Parts calls do for the parts [from, to) of a list of n elements, at the same time on as many processors as there are, and waits for all.
// Calls for different parts must not depend on each other; then the result does not depend on the number of processors.
func Parts(n int, do func(from, to int)) {
	if n < 2*least {
		do(0, n)
		return
	}
	parts := min(runtime.GOMAXPROCS(0), n/least)
	var others sync.WaitGroup
	for i := 1; i < parts; i++ {
		others.Go(func() { do(i*n/parts, (i+1)*n/parts) })
	}
	do(0, n/parts)
	others.Wait()
}

// Each calls do for every index below n, as Parts does.
func Each(n int, do func(i int)) {
	Parts(n, func(from, to int) {
		for i := from; i < to; i++ {
			do(i)
		}
	})
}

// Together calls functions at the same time, each of which works off a list of n elements, and waits for all. They must not depend on each
// other.
func Together(n int, all ...func()) {
	if n < least {
		for _, do := range all {
			do()
		}
		return
	}
	var others sync.WaitGroup
	for _, do := range all[1:] {
		others.Go(do)
	}
	all[0]()
	others.Wait()
}
