package sim

import "math/rand/v2"

// errorClass is the work of sending an answer that is an error: only its headers.
func errorClass() class { return fileClass(0) }

// errorStream plus a host's number selects the random numbers that decide which of the host's requests are answered by errors.
const errorStream = 5 << 32

// erring contains the hosts whose instances answer some requests with errors. The zero value contains none.
type erring map[int]*hostErrors // by host

// hostErrors decides which requests on one host are answered by errors.
type hostErrors struct {
	share float64
	rng   *rand.Rand
}

func (e *erring) set(host int, share float64, seed uint64) {
	if *e == nil {
		*e = erring{}
	}
	known, ok := (*e)[host]
	if !ok {
		known = &hostErrors{rng: rand.New(rand.NewPCG(seed, errorStream+uint64(host)))}
		(*e)[host] = known
	}
	known.share = share
}

// errs says whether the next request on a host is answered with an error.
func (s *simulation) errs(host int) bool {
	e, ok := s.erring[host]
	return ok && e.share > 0 && e.rng.Float64() < e.share
}
