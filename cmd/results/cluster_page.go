package main

import (
	"encoding/json"
	"fmt"
	"time"
)

// clusterFigures are the figures of the page.
type clusterFigures struct {
	place
	Agents, Wanted     int
	ReadingBytes       int
	PeriodS, PerSecond float64 // of one agent, readings of all
	Files              uint64
	ConnectedS         float64

	CalmS    float64
	Load     string
	Calm     becameOf
	Rejected int

	WatchedS      float64
	Losses        []lossRow
	LostElsewhere int

	used   map[string]float64
	memory map[string]int
	delays []time.Duration
}

// becameOf counts what became of the readings that were sent.
type becameOf struct{ Sent, Lost, Refused int }

// lossRow is the page's row about a server that was killed.
type lossRow struct {
	Killed      string
	Moved       int     // connections
	HalfS, AllS float64 // until half of the connections, and all, were up again
	becameOf
	LastS float64 // becameOf is the outcome of readings.
}

// Use is the processor time in a second and the memory of a process.
func (f clusterFigures) Use(process string) string {
	return fmt.Sprintf("%.0f ms | %d MB", f.used[process]*1e3, f.memory[process])
}

// Delay is a quantile of the times from publishing to the checked reading.
func (f clusterFigures) Delay(q float64) string {
	return fmt.Sprintf("%.1f ms", quantile(f.delays, q).Seconds()*1e3)
}

// justBefore is the time before the loss of a server in which published readings may be lost together with the server.
const justBefore = time.Second

// figures reads the files that the intake and the agents wrote.
func (c *clusterRun) figures(at place) (clusterFigures, error) {
	var in intakeReport
	var fleet fleetReport
	if err := readReport(c.dir, "intake", &in); err != nil {
		return clusterFigures{}, err
	}
	if err := readReport(c.dir, "agents", &fleet); err != nil {
		return clusterFigures{}, err
	}
	example, err := json.Marshal(typicalReading(0))
	if err != nil {
		return clusterFigures{}, err
	}
	got := map[sending]time.Duration{}
	for _, a := range in.Got {
		got[a.sending] = a.Delay
	}
	calm := fleet.account(got, c.from, c.to)
	f := clusterFigures{
		place: at, Agents: c.agents, Wanted: clusterAgents, ReadingBytes: len(example),
		PeriodS: clusterPeriod.Seconds(), PerSecond: float64(c.agents) / clusterPeriod.Seconds(), Files: c.files,
		ConnectedS: c.connected.Seconds(), CalmS: c.to.Sub(c.from).Seconds(), Load: c.load, Calm: calm.becameOf(), Rejected: in.Rejected,
		WatchedS: afterLoss.Seconds(), used: c.used, memory: c.memory, delays: calm.delays,
	}
	lost := 0
	for _, l := range c.losses {
		back, a := fleet.back(l.at, l.until), fleet.account(got, l.at.Add(-justBefore), l.until)
		lost += a.lost
		f.Losses = append(f.Losses, lossRow{
			Killed: l.what, Moved: len(back), HalfS: quantile(back, 0.5).Seconds(), AllS: quantile(back, 1).Seconds(),
			becameOf: a.becameOf(), LastS: a.lastLost.Sub(l.at).Seconds(),
		})
	}
	whole := fleet.account(got, time.Time{}, c.losses[len(c.losses)-1].until)
	f.LostElsewhere = whole.lost - lost
	return f, nil
}

func (a account) becameOf() becameOf { return becameOf{a.sent, a.lost, a.refused} }
