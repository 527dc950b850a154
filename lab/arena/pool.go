package arena

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
)

// pool is the state of one call of Run: it plays tasks concurrently and estimates the remaining time.
type pool struct {
	Options
	store    *store
	contests []*Contest

	mu     sync.Mutex // guards what follows
	failed map[play]error
	done   int              // runs finished, in this call or before it
	late   bool             // seeds after the first one are being played
	open   map[*Contest]int // tasks of the present round that are not finished
	times  map[*Contest]pace
}

// task is one run to play, with the contest that it belongs to.
type task struct {
	contest   *Contest
	candidate Candidate
	seed      uint64
}

func (t task) play() play { return play{t.contest.Scenario.Name, t.candidate, t.seed} }

// pace measures how long runs of a scenario take.
type pace struct {
	total time.Duration
	n     int
}

// playAll plays the runs of a round whose results are not stored yet. It fails only if it is interrupted or a result cannot be stored.
func (h *pool) playAll(ctx context.Context, round []task) error {
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

// missing counts the tasks of a round as known, and returns those whose results are not stored yet.
func (h *pool) missing(round []task) (missing []task) {
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

func (h *pool) playOne(ctx context.Context, t task) error {
	began := time.Now()
	result, err := t.contest.play(ctx, t.candidate, t.seed, nil)
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

// play plays one run. If windows is not nil, it is called with every judge window.
func (c *Contest) play(ctx context.Context, e Candidate, seed uint64, windows func(sim.Window)) (r scenario.Result, err error) {
	o := sim.Options{Scenario: c.Scenario, Run: e.run(c.Scenario), Seed: seed, Strain: e.Strain, Windows: windows}
	if !e.untrained() {
		if o.Models, err = c.trained(ctx, seed); err != nil {
			return r, err
		}
	}
	return sim.Run(ctx, o)
}

func (h *pool) finished(t task, took time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if untrained := (*untrainedError)(nil); !errors.As(err, &untrained) {
			err = fmt.Errorf("%s in %s with seed %d: %w", t.candidate.Title(), t.contest.Scenario.Name, t.seed, err)
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

// total is the number of runs, as far as it is known now: every known candidate plays all seeds.
func (h *pool) total() (n int) {
	for _, c := range h.contests {
		n += len(c.Candidates) * len(c.Seeds)
	}
	return n
}

// left estimates how long the rest will take: the number of unfinished runs of each scenario times the mean time of its finished ones.
func (h *pool) left() time.Duration {
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
		sum += p.total / time.Duration(p.n) * time.Duration(h.open[c]+later*len(c.Candidates))
	}
	return sum / time.Duration(h.jobs())
}
