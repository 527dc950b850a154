package train

import (
	"math/rand/v2"
	"time"

	"github.com/quellhq/quell/loadgen"
)

// Paths returns visits of one request each, for a path that is drawn at random.
func Paths(paths []string, seed uint64) loadgen.Visits {
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(at time.Duration) loadgen.Visit {
		return &single{request: loadgen.Request{At: at, Path: paths[rng.IntN(len(paths))]}}
	}
}

// single is a visit of one request.
type single struct {
	request loadgen.Request
	done    bool
}

func (s *single) Next(time.Duration) (loadgen.Request, bool) {
	left := !s.done
	s.done = true
	return s.request, left
}
