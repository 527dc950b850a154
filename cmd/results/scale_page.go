package main

import (
	"fmt"
	"time"

	"github.com/quellhq/quell"
)

// scaleFigures are the figures of the page: measured costs, and what follows from them for one controller, for probing and for
// groups in the simulator.
type scaleFigures struct {
	place
	Intake, Period, Decide, Probe float64 // seconds
	Apply100MS, Apply1000MS       float64
	IntakeCores, PeriodCores      float64 // for 10,000 readings a second, and for the instances that send them

	ReadingsEach                  int
	Carried                       []carriedRow
	HalfEverySecond, HalfEveryTen float64 // number of instances for which half a core is enough
	ReachedS                      float64 // time of a decision over 10,000 instances

	Budget, LinkBits, EachBits                           float64
	OnePlace                                             []probedFrom
	EachKilobytes, EachCores, FiftyMegabytes, FiftyCores float64 // a second

	Played        playedFigures
	Groups        []groupRow
	LargeRequests float64
	LargeS        float64
}

// carriedRow is the number of cores that a number of instances needs, by sampling period.
type carriedRow struct {
	Instances                        int
	EverySecond, EveryFive, EveryTen float64
}

// probedFrom is what probing a number of instances from one place needs.
type probedFrom struct{ Instances, Gigabits, Cores float64 }

// groupRow has, for one scheduling, the requests per second that the simulator plays, by size of the group.
type groupRow struct {
	Scheduling quell.Scheduling
	PerSecond  []float64
}

// playedFigures are totals and means of the evidence.
type playedFigures struct {
	Scenario             string
	Services, Decisions  int
	Failed               int64
	Instances, Violation float64 // mean size, mean share of the time
	Requests, Memory     float64
	TookS, ProcessorS    float64
}

func newScaleFigures(at place, c costs, e evidence) scaleFigures {
	each := probedBudget * probedLink
	f := scaleFigures{
		place: at, Intake: c.intake, Period: c.period, Decide: c.decide, Probe: c.probe,
		Apply100MS: c.apply[100] * 1e3, Apply1000MS: c.apply[1000] * 1e3,
		IntakeCores: c.intake * 10_000, PeriodCores: (c.intake + c.period/readingsEach) * 10_000,
		ReadingsEach: readingsEach, HalfEverySecond: 0.5 / c.share(1, time.Second), HalfEveryTen: 0.5 / c.share(1, 10*time.Second),
		ReachedS: 10_000 * (c.period + c.decide),
		Budget:   probedBudget, LinkBits: probedLink, EachBits: each,
		EachKilobytes: each / 8e3, EachCores: 10 * c.probe, FiftyMegabytes: 50 * each / 8e6, FiftyCores: 50 * 10 * c.probe,
		Played: e.figures(), LargeRequests: largeRequests, LargeS: largeRequests / c.large,
	}
	for _, n := range []int{100, 1000, 10_000} {
		f.Carried = append(f.Carried, carriedRow{n, c.share(n, time.Second), c.share(n, 5*time.Second), c.share(n, 10*time.Second)})
	}
	for _, n := range []float64{50, 1000, 10_000} {
		f.OnePlace = append(f.OnePlace, probedFrom{n, n * each / 1e9, n * 10 * c.probe})
	}
	for _, scheduling := range quell.Schedulings {
		row := groupRow{Scheduling: scheduling}
		for _, n := range groupSizes {
			row.PerSecond = append(row.PerSecond, c.groups[fmt.Sprintf("%s-%d", scheduling, n)])
		}
		f.Groups = append(f.Groups, row)
	}
	return f
}

// largeRequests is the number of requests in BenchmarkInternetScale.
const largeRequests = 60e6

func (e evidence) figures() playedFigures {
	f := playedFigures{
		Scenario: manyServices, Services: len(e.results), TookS: e.took.Seconds(), ProcessorS: e.processor.Seconds(), Memory: float64(e.memory),
	}
	for _, r := range e.results {
		f.Requests += float64(r.Requests)
		f.Failed += r.Errors
		f.Instances += r.MeanInstances
		f.Violation += r.SLO.ViolationShare / float64(len(e.results))
		f.Decisions += r.Decisions
	}
	return f
}
