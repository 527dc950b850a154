package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/report"
)

// liveHours are hours in short, on real machines.
type liveHours struct {
	Measured string           `json:"measured"` // the machine
	Hours    []adviceLiveHour `json:"hours"`
}

// Present are the hours that the present report judged.
func (h *liveHours) Present() (list []adviceLiveHour) {
	for _, hour := range h.Hours {
		if !hour.Former {
			list = append(list, hour)
		}
	}
	return list
}

// Inside counts the hours in which what acting saved lies within the interval that the report claims.
func (h *liveHours) Inside() (n int) {
	for _, hour := range h.Present() {
		n += count(hour.Inside())
	}
	return n
}

// Saving counts these in which acting saved something, and Narrow those of them with an interval of at most half of the claim.
func (h *liveHours) Saving() (n int) {
	for _, hour := range h.Present() {
		n += count(hour.Saved() > 0)
	}
	return n
}

func (h *liveHours) Narrow() (n int) {
	for _, hour := range h.Present() {
		n += count(hour.Saved() > 0 && hour.Narrow())
	}
	return n
}

// adviceLiveSetting is how a live hour was played.
type adviceLiveSetting struct {
	LastsS   float64 `json:"lasts_s"` // of each half
	Link     float64 `json:"link"`    // bit/s of each machine
	File     int64   `json:"file"`    // bytes
	Load     float64 `json:"load"`
	Balance  string  `json:"balance"` // HAProxy's rule
	SamplesS float64 `json:"sampling_s"`
	LimitMS  float64 `json:"limit_ms"` // the objective
}

// adviceLiveHour is a fleet that was recorded twice, with the same requests and neighbours.
type adviceLiveHour struct {
	adviceHourResult
	Settings   adviceLiveSetting `json:"settings"`
	Neighbours int               `json:"neighbours"`
	Requests   float64           `json:"requests"` // while advising
	Failed     int               `json:"failed"`   // of both halves
	Former     bool              `json:"former"`   // judged by the report as it was before these hours showed what it lacks
}

// Times of a live hour.
const (
	liveLearns = 60 * time.Second  // without neighbours, until the first half
	liveLasts  = 200 * time.Second // of each half
	liveGap    = 12 * time.Second  // between the halves
)

// adviceLiveSettings have the links and requests of the simulated hours. A live hour is short, so the sampling period is, too, and the
// objective is closer. In the first hour HAProxy counted open requests (leastconn), and neighbours did not break the objective; the
// others are under roundrobin, with less load, so that no neighbour fills a link.
func adviceLiveSettings() strangerSettings {
	s := strangerAt(3*time.Second, liveLearns, 0, 0)
	s.Link, s.File, s.Load, s.Swing, s.Threshold, s.Balance = 40e6, 50_000, 0.35, 0, 30*time.Millisecond, "roundrobin"
	return s
}

// liveVisit is a neighbour of a live hour. Times are since the beginning of a half.
type liveVisit struct {
	machine     int
	use         float64
	comes, goes time.Duration
}

// liveVisits are a seed's neighbours. One follows the other.
func liveVisits(seed uint64, machines int) (visits []liveVisit) {
	rng := rand.New(rand.NewPCG(seed, 47))
	seconds := func(least, more int) time.Duration { return time.Duration(least+rng.IntN(more)) * time.Second }
	for at := seconds(8, 15); at < liveLasts-20*time.Second; at += seconds(15, 25) {
		v := liveVisit{machine: rng.IntN(machines), use: 0.4 + 0.2*rng.Float64(), comes: at}
		at += seconds(20, 35)
		v.goes = min(at, liveLasts-3*time.Second)
		visits = append(visits, v)
	}
	return visits
}

// playLiveHour adds a live hour of the next seed.
func playLiveHour(ctx context.Context, d *adviceData) (err error) {
	set := adviceLiveSettings()
	f, err := newStrangerFleet(filepath.Join("bin", "quell"), haproxyFront, set)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if d.Live == nil {
		d.Live = &liveHours{}
	}
	seed := uint64(adviceFirstSeed + len(d.Live.Hours))
	hour, err := f.playHour(ctx, seed)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "advice: live hour: %+v\n", hour)
	hour.Settings = adviceLiveSetting{LastsS: liveLasts.Seconds(), Link: set.Link, File: set.File, Load: set.Load, Balance: set.Balance,
		SamplesS: set.Sampling.Seconds(), LimitMS: float64(set.Threshold.Milliseconds())}
	d.Live.Measured, d.Live.Hours = here().Machine, append(d.Live.Hours, *hour)
	return nil
}

// playHour lets the controller learn, and then plays a seed's requests and neighbours while it only advises, and again while it acts.
func (f *strangerFleet) playHour(ctx context.Context, seed uint64) (*adviceLiveHour, error) {
	if err := errors.Join(f.serve(), f.awaitFront(ctx)); err != nil {
		return nil, err
	}
	visits := liveVisits(seed, len(f.names))
	h := &adviceLiveHour{Neighbours: len(visits)}
	h.Seed = seed
	if err := f.learn(ctx, seed); err != nil {
		return nil, err
	}
	var halves [2]*report.Report
	for i, authority := range []string{"advise", "full"} {
		if err := errors.Join(f.authorize(ctx, authority), wait(ctx, liveGap)); err != nil {
			return nil, err
		}
		failed, err := f.playHalf(ctx, seed, visits)
		if err != nil {
			return nil, err
		}
		h.Failed += failed
		said, err := f.quell("report", "--since", liveLasts.String())
		if err != nil {
			return nil, err
		}
		halves[i] = &report.Report{}
		if err := json.Unmarshal(said, halves[i]); err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "advice: %s: %s\n", authority, halves[i].Sentence)
	}
	advised, acted := halves[0], halves[1]
	h.MissedS, h.ActedS, h.Verdict, h.Says, h.Requests = advised.MissedS, acted.MissedS, advised.Verdict, advised.Sentence, advised.Requests
	h.Looking = acted.Verdict
	if advised.Advised == nil || acted.Acted == nil {
		return nil, fmt.Errorf("the reports lack what was advised or done: %q, %q", advised.Sentence, acted.Sentence)
	}
	h.Claim, h.Back = advised.Advised.SavedS, acted.Acted.SavedS
	return h, nil
}

// learn starts Quell beside the fleet, and lets it watch requests without neighbours.
func (f *strangerFleet) learn(ctx context.Context, seed uint64) error {
	stop := f.startUsers(ctx, &strangerLoad{seed: seed + 1000})
	defer stop()
	return f.watchInCalm(ctx)
}

// watchInCalm starts Quell beside users, and lets it learn without neighbours.
func (f *strangerFleet) watchInCalm(ctx context.Context) error {
	r := &strangerRecord{Settings: f.set, Began: time.Now()}
	if err := f.watch(); err != nil {
		return err
	}
	if err := f.awaitKnowing(ctx, r); err != nil {
		return err
	}
	return wait(ctx, f.set.Calm)
}

// authorize sets how far the policy may go.
func (f *strangerFleet) authorize(ctx context.Context, level string) error {
	c := exec.CommandContext(ctx, f.program, "authority", level, "--config", filepath.Join(f.dir, "quell", "edge.yaml"))
	if _, err := f.output(c); err != nil {
		return fmt.Errorf("quell authority: %w", err)
	}
	return nil
}

// playHalf plays a seed's requests and neighbours once, and returns how many requests failed.
func (f *strangerFleet) playHalf(ctx context.Context, seed uint64, visits []liveVisit) (failed int, err error) {
	load := &strangerLoad{seed: seed}
	stop := f.startUsers(ctx, load)
	began := time.Now()
	for _, v := range visits {
		machine := f.lab.Machine(hostOf(v.machine))
		if err = wait(ctx, time.Until(began.Add(v.comes))); err != nil {
			break
		}
		if err = machine.Interfere(map[quell.Resource]float64{quell.Network: v.use}); err != nil {
			break
		}
		if err = errors.Join(wait(ctx, time.Until(began.Add(v.goes))), machine.Interfere(nil)); err != nil {
			break
		}
	}
	if err == nil {
		err = wait(ctx, time.Until(began.Add(liveLasts)))
	}
	stop()
	return int(load.failed.Load()), err
}
