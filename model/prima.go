package model

import (
	"fmt"

	"github.com/quellhq/quell"
)

// Prima holds the tables of the policy PRIMA. They say, for each resource, how long a probe takes without neighbours, how response
// time depends on utilisation and severity, and how severity depends on the neighbours' use.
type Prima struct {
	Isolation    map[quell.Resource][]Isolation
	ResponseTime map[quell.Resource][]ResponseTime
	Interference map[quell.Resource][]Interference
}

// Prima returns the models' tables for PRIMA. If there are none, they are empty.
func (m *Models) Prima() *Prima {
	if p, ok := sectionOf[*Prima](m); ok {
		return p
	}
	return &Prima{}
}

var primaKind = kind{keys: []string{"isolation", "response_time", "interference"}, is: is[*Prima], decode: decodePrima, fit: fitPrima}

// Isolation is the probe time at one utilisation without neighbours.
type Isolation struct {
	Utilization float64 `json:"utilization"`
	ProbeMS     float64 `json:"probe_ms"`       // R_iso
	StddevMS    float64 `json:"stddev_ms"`      // of single probes
	N           int     `json:"n"`              // number of single probes
	Runs        int     `json:"runs,omitempty"` // absent counts as one

	// Waits is the neighbours' use that NeighboursUse infers although there are no neighbours. It is set only if the training showed that
	// this inference can be relied on.
	Waits *float64 `json:"waits,omitempty"`
}

// ResponseTime is the response time at one utilisation and severity.
type ResponseTime struct {
	Utilization float64       `json:"utilization"`
	Severity    float64       `json:"severity"`
	LatencyMS   quell.Latency `json:"latency_ms"`
	Runs        int           `json:"runs,omitempty"`  // absent counts as one
	Size        float64       `json:"size,omitempty"`  // of the group in which it was learned in place; absent: the instance was alone
	Crowd       float64       `json:"crowd,omitempty"` // and the use of that group
}

// Interference is the severity at one utilisation while neighbours use Interfering of the same resource.
type Interference struct {
	Utilization float64 `json:"utilization"`
	Interfering float64 `json:"interfering"`
	Severity    float64 `json:"severity"`
	Runs        int     `json:"runs,omitempty"` // absent counts as one
}

// Required fields of a table's row.
var (
	isolationKeys = []string{"utilization", "probe_ms", "stddev_ms", "n"}
	responseKeys  = []string{"utilization", "severity", "latency_ms"}
	interfereKeys = []string{"utilization", "interfering", "severity"}
)

func decodePrima(f *file, text texts) Section {
	return &Prima{
		Isolation:    tables[Isolation](f, "isolation", text["isolation"], isolationKeys),
		ResponseTime: tables[ResponseTime](f, "response_time", text["response_time"], responseKeys),
		Interference: tables[Interference](f, "interference", text["interference"], interfereKeys),
	}
}

func (s *Prima) print(p *printer) {
	printTables(p, "isolation", s.Isolation)
	printTables(p, "response_time", s.ResponseTime)
	printTables(p, "interference", s.Interference)
}

func (s *Prima) check(c *check) {
	checkTable(c, "isolation", s.Isolation, (*check).isolation, sameUtilization)
	checkTable(c, "response_time", s.ResponseTime, (*check).responseTime, sameState)
	checkTable(c, "interference", s.Interference, (*check).interference, sameUse)
}

func sameUtilization(a, b Isolation) bool { return a.Utilization == b.Utilization }

// sameState returns whether two rows describe the same point. Severity 0 may repeat in a level, because every run with too
// little interference to be noticed has it.
func sameState(a, b ResponseTime) bool {
	return a.Utilization == b.Utilization && a.Severity == b.Severity && a.Severity > 0
}

func sameUse(a, b Interference) bool {
	return a.Utilization == b.Utilization && a.Interfering == b.Interfering
}

func (c *check) isolation(path string, r Isolation) {
	c.fraction(path+".utilization", r.Utilization)
	c.between(path+".probe_ms", r.ProbeMS, minProbeMS, maxValue)
	c.between(path+".stddev_ms", r.StddevMS, 0, maxValue)
	c.atLeast(path+".n", float64(r.N), 1)
	c.atLeast(path+".runs", float64(r.Runs), 0)
	if r.Waits != nil {
		c.fraction(path+".waits", *r.Waits)
	}
}

func (c *check) responseTime(path string, r ResponseTime) {
	c.fraction(path+".utilization", r.Utilization)
	c.between(path+".severity", r.Severity, 0, maxValue)
	c.latency(path+".latency_ms", r.LatencyMS)
	if !hasStatistic(r.LatencyMS) {
		c.addf(path+".latency_ms", "holds no statistic; give at least one of mean, p50, p90, p95, p99")
	}
	c.atLeast(path+".runs", float64(r.Runs), 0)
	c.between(path+".size", r.Size, 0, maxValue)
	c.fraction(path+".crowd", r.Crowd)
}

func (c *check) interference(path string, r Interference) {
	c.fraction(path+".utilization", r.Utilization)
	c.fraction(path+".interfering", r.Interfering)
	c.between(path+".severity", r.Severity, 0, maxValue)
	if r.Interfering == 0 && r.Severity > 0 {
		c.addf(path+".severity", "%v without interference; interfering 0 means severity 0", r.Severity)
	}
	c.atLeast(path+".runs", float64(r.Runs), 0)
}

// missing returns the error for a section, or a part of one, that a prediction needs but the models lack.
func missing(section string, r quell.Resource, what string) error {
	return fmt.Errorf("the models lack %s.%s%s: train and fit that resource: %w", section, r, what, quell.ErrNoData)
}
