package arena

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/sim"
)

// hall is the state of one call of Run: it plays tasks concurrently, and estimates the remaining time.
type hall struct {
	Options
	store    *store
	contests []*Contest

	mu     sync.Mutex // guards what follows
	failed map[play]error
	done   int              // in this call or before
	late   bool             // beyond the first seed
	open   map[*Contest]int // tasks of the present round
	times  map[*Contest]pace
}

// task is a play with its contest.
type task struct {
	contest *Contest
	entrant Entrant
	seed    uint64
}

func (t task) play() play { return play{t.contest.Scenario.Name, t.entrant, t.seed} }

// pace is how long runs of a scenario take.
type pace struct {
	total time.Duration
	n     int
}

// playAll plays what is not in the store yet. Only an interruption or a result that cannot be kept is an error.
func (h *hall) playAll(ctx context.Context, round []task) error {
	missing := h.missing(round)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan task)
	var workers sync.WaitGroup
	for range h.jobs() {
		workers.Go(func() {
			for t := range queue {
				if err := h.playOne(ctx, t); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, t := range missing {
		select {
		case queue <- t:
		case <-ctx.Done():
		}
	}
	close(queue)
	workers.Wait()
	return context.Cause(ctx)
}

// missing counts a round in, and returns what is left of it to play.
func (h *hall) missing(round []task) (missing []task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = map[*Contest]int{}
	if h.times == nil {
		h.times = map[*Contest]pace{}
	}
	for _, t := range round {
		if _, ok := h.store.result(t.play()); ok {
			h.done++
			continue
		}
		if h.failed[t.play()] == nil {
			missing = append(missing, t)
			h.open[t.contest]++
		}
	}
	return missing
}

func (h *hall) playOne(ctx context.Context, t task) error {
	began := time.Now()
	result, err := t.contest.play(ctx, t.entrant, t.seed, nil)
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		if err := h.store.add(t.play(), t.contest.digest, result); err != nil {
			return err
		}
	}
	h.finished(t, time.Since(began), err)
	return nil
}

// play plays one run; each window is shown, if somebody looks.
func (c *Contest) play(ctx context.Context, e Entrant, seed uint64, windows func(sim.Window)) (r quell.Result, err error) {
	o := sim.Options{Scenario: c.Scenario, Run: e.run(c.Scenario), Seed: seed, Strain: e.Strain, Windows: windows}
	if !e.untrained() {
		if o.Models, err = c.trained(ctx, seed); err != nil {
			return r, err
		}
	}
	return sim.Run(ctx, o)
}

func (h *hall) finished(t task, took time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if untrained := (*untrainedError)(nil); !errors.As(err, &untrained) {
			err = fmt.Errorf("%s in %s with seed %d: %w", t.entrant.Title(), t.contest.Scenario.Name, t.seed, err)
		}
		h.failed[t.play()] = err
	}
	h.done++
	h.open[t.contest]--
	p := h.times[t.contest]
	h.times[t.contest] = pace{p.total + took, p.n + 1}
	if h.Progress != nil {
		h.Progress(Progress{Doing: t.contest.Scenario.Name, Done: h.done, Known: h.total(), Left: h.left()})
	}
}

// total is how many runs there will be, as far as is known: everybody plays all seeds.
func (h *hall) total() (n int) {
	for _, c := range h.contests {
		n += len(c.Entrants) * len(c.Seeds)
	}
	return n
}

// left is how long the rest will take: what is open by how long such runs took so far.
func (h *hall) left() time.Duration {
	var all pace
	for _, p := range h.times {
		all = pace{all.total + p.total, all.n + p.n}
	}
	if all.n == 0 {
		return 0
	}
	var sum time.Duration
	later := h.Seeds - 1
	if h.late {
		later = 0
	}
	for _, c := range h.contests {
		p := h.times[c]
		if p.n == 0 {
			p = all
		}
		sum += p.total / time.Duration(p.n) * time.Duration(h.open[c]+later*len(c.Entrants))
	}
	return sum / time.Duration(h.jobs())
}
