package main

import (
	"context"
	"math"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
)

// iceSticky is how long the requests of a disturbed server take to follow its weight, if users stay with a server.
type iceSticky struct {
	Requests int      `json:"requests"`   // mean number of requests for which a user stays
	Cut      estimate `json:"cut_s"`      // from the onset to the cut
	Followed estimate `json:"followed_s"` // from the onset until the server's requests have followed the cut
	Never    int      `json:"never"`      // runs in which they have not in stickyTime
}

// What stickiness is measured with.
const (
	stickyUsers  = 200
	stickyOnset  = 3 * time.Minute
	stickyTime   = 6 * time.Minute
	stickyWindow = 10  // seconds over which a server's part of the requests is averaged
	stickyPart   = 0.1 // the part has followed if this share of the change is left
)

// sticky lets users that request once per second stay with a server for some of their requests.
func (f *iceFigures) sticky(ctx context.Context) error {
	f.Sticky = nil
	for _, requests := range []int{0, 10, 60} {
		row := iceSticky{Requests: requests}
		var cuts, followed []float64
		for seed := range uint64(iceSeeds) {
			cut, follows, err := stickyOnce(ctx, requests, seed+1)
			if err != nil {
				return err
			}
			if cuts = append(cuts, cut); follows == 0 {
				row.Never++
			} else {
				followed = append(followed, follows)
			}
		}
		row.Cut = estimateOf(cuts)
		if len(followed) > 0 {
			row.Followed = estimateOf(followed)
		}
		f.Sticky = append(f.Sticky, row)
	}
	return nil
}

// stickyOnce returns when the disturbed server is cut and when its requests have followed, in seconds since the onset; 0: never.
func stickyOnce(ctx context.Context, requests int, seed uint64) (cut, followed float64, err error) {
	sc, err := exampleScenario("ice-hour")
	if err != nil {
		return 0, 0, err
	}
	sc.Workload.Kind, sc.Workload.Users, sc.Workload.Think, sc.Workload.Arrivals = scenario.Users, stickyUsers, time.Second, ""
	sc.Duration = stickyOnset + stickyTime
	sc.Timeline = []scenario.Event{{At: stickyOnset, Interfere: &scenario.Interference{Host: sc.Hosts[1].ID, Resource: quell.CPU, Use: 0.6}}}
	equal := 1 / float64(len(sc.Hosts))
	var parts []float64
	_, err = sim.Run(ctx, sim.Options{Scenario: sc, Seed: seed, Sticky: requests,
		Run: besideStatic(quell.RoundRobin),
		FastPlans: func(at time.Duration, s *quell.Snapshot, p *quell.Plan) {
			factor, is := p.Factor["i2"]
			if at < stickyOnset || followed > 0 || cut == 0 && !is {
				return
			}
			since := (at - stickyOnset).Seconds()
			if cut == 0 {
				cut = since
			}
			all, own := 0.0, 0.0
			for _, in := range s.Instances {
				if o := in.Observation; o != nil && o.RequestRate != nil {
					if all += *o.RequestRate; in.ID == "i2" {
						own = *o.RequestRate
					}
				}
			}
			if parts = append(parts, own/math.Max(all, 1)); len(parts) < stickyWindow || !is {
				return
			}
			mean := 0.0
			for _, part := range parts[len(parts)-stickyWindow:] {
				mean += part / stickyWindow
			}
			wanted := factor.Value * equal / (1 - equal + factor.Value*equal)
			if mean <= wanted+stickyPart*(equal-wanted) {
				followed = since
			}
		}})
	return cut, followed, err
}
