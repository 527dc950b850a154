package config

import (
	"fmt"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/setting"
)

// The least and the largest sampling period.
const (
	ShortestPeriod = 10 * time.Millisecond
	LongestPeriod  = time.Hour
)

// Scheduling is the name of a balancer's scheduling.
func Scheduling(dst *quell.Scheduling) setting.Value { return setting.OneOf(dst, quell.Schedulings) }

// ServiceKeys are the keys that describe a service, in configurations and in scenarios.
func ServiceKeys(s *quell.Service) setting.Table {
	return setting.Table{
		setting.Req("service", serviceName(&s.Name), "name of the service").ReadBy(everybody),
		setting.Req("slo", sloKeys(&s.SLO), "the response-time objective that must hold at every instance").ReadBy(reads(onlyController)),
		setting.Opt("sampling", setting.Duration(&s.Sampling).Between(ShortestPeriod, LongestPeriod),
			"sampling period T: in each the controller makes one snapshot and one plan").ReadBy(reads(period)),
		setting.Opt("policy", table.All.Keys(&s.Policy), "the policy and its settings").ReadBy(reads(policies)),
		setting.Opt("group", groupKeys(&s.Group), "bounds of the number of instances").ReadBy(reads(onlyController)),
		setting.Opt("guard", guardKeys(&s.Guard), "limits on what any policy may change").ReadBy(reads(onlyController)),
		setting.Opt("mode", setting.OneOf(&s.Mode, quell.Modes), "act: carry plans out; advise: only record them").ReadBy(reads(onlyController)),
	}
}

func sloKeys(s *quell.SLO) setting.Table {
	objective := s.Objective()
	return setting.Table{
		setting.Req("metric", setting.OneOf(&objective, quell.Objectives()).Into(s.SetObjective),
			"statistic of response time: mean, p50, p90, p95 or p99; with ttfb_ before it, as in ttfb_p95, only the time until the response "+
				"begins counts, for streams and large downloads (docs/what-counts.md)"),
		setting.Req("threshold", setting.Duration(&s.Threshold).Above(0), "response time that the metric must not exceed"),
		setting.Opt("target", setting.Share(&s.Target).Need("above 50% and below 100%", isTarget),
			"part of the time, or of the requests, in which the objective must hold, for example 99%: an error budget is kept, and prima finds "+
				"its headroom by it (docs/budget.md)").Or("no error budget"),
		setting.Opt("of", setting.OneOf(&s.Of, quell.BudgetsOf),
			"time: of sampling periods, and the slowest instance counts; requests: of requests, and each counts as its instance's period did"),
		setting.Opt("over", setting.Duration(&s.Over).Between(10*time.Minute, 90*24*time.Hour), "the window of the budget, which ends now"),
	}
}

// isTarget returns whether a target can be kept and missed; 0 means that there is none.
func isTarget(target float64) bool { return target == 0 || target > 0.5 && target < 1 }

func groupKeys(g *quell.Group) setting.Table {
	return setting.Table{
		setting.Opt("min", setting.Whole(&g.Min).AtLeast(1), "fewest instances"),
		setting.Opt("max", setting.Whole(&g.Max).Between(1, 100_000), "most instances"),
		setting.Opt("initial", setting.Whole(&g.Initial).Between(0, 100_000),
			"number of instances to start if there are none yet; from min to max").Or("min"),
		setting.Opt("startup", setting.Duration(&g.Startup).Above(0),
			"how long an instance may take to become ready; then it no longer counts as coming, and after twice that it is given up"),
		setting.Opt("replace", setting.Table{
			setting.Opt("below", setting.Share(&g.Replace.Below).Between(0, 1),
				"an instance with less than this share of its credits is replaced, if a fresh one has more; 0%: none is"),
			setting.Opt("every", setting.Duration(&g.Replace.Every).AtLeast(0),
				"least time between two replacements by the policy; quell replace is not bound by it"),
		}, "how instances are replaced by fresh ones"),
		setting.Opt("protected", setting.Idents(&g.Protected), "ids of instances that are never removed or replaced"),
	}
}

func guardKeys(g *quell.Guard) setting.Table {
	return setting.Table{
		setting.Opt("floor", setting.Share(&g.Floor).Between(0, 1), "least weight, as a share of the weight in an equal split; 0 turns it off"),
		setting.Opt("step", setting.Share(&g.Step).AtLeast(0), "largest change of a weight at once, as a share of an equal one; 0 turns it off"),
		setting.Opt("slow_start", setting.Duration(&g.SlowStart).AtLeast(0),
			"time in which a new instance's weight grows to its full value; 0s turns it off"),
		setting.Opt("stale_after", setting.Whole(&g.StaleAfter).AtLeast(0),
			"number of periods without a reading after which an instance is stale; 0 turns it off"),
		setting.Opt("fade", setting.Whole(&g.Fade).AtLeast(0),
			"number of further periods in which a stale instance's weight moves to an equal share"),
		setting.Opt("error_rate", setting.Share(&g.ErrorRate).Between(0, 1),
			"an instance whose share of failed requests is larger never gains weight; 0% turns it off"),
		setting.Opt("undo", setting.Bool(&g.Undo),
			"whether a change is taken back after which the service is worse than before, and worse than predicted"),
	}
}

// longestService is the longest name of a service that the bus accepts, in bytes.
const longestService = 64

func serviceName(dst *string) *setting.Scalar[string] {
	return setting.Ident(dst).Then(func(s string) string {
		if len(s) > longestService {
			return fmt.Sprintf("must not be longer than %d characters, which is what the bus takes", longestService)
		}
		return ""
	})
}
