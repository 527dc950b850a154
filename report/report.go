// Package report concludes from a service's recorded decisions and readings: how long the objective was missed and why, what acting on the
// plans would have changed, how far predictions held, and what to do next. It is pure: records go in, a Report comes out.
package report

import (
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/switchback"
)

// Options say what was recorded, and what things cost.
type Options struct {
	Service  quell.Service
	Resource quell.Resource // whose utilisation is the unit of loads
	Since    time.Time      // the beginning of what was asked for
	Until    time.Time
	Config   string // the configuration's path, for the command to run next

	// PerMachineHour is the price of an instance for an hour, in Currency; 0: unknown.
	PerMachineHour float64
	Currency       string
}

// Estimate is a figure with its 90% interval.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Verdict is what a report concludes.
type Verdict string

// The verdicts.
const (
	NoData      Verdict = "no_data"       // nothing was recorded, or no requests were measured
	CannotTell  Verdict = "cannot_tell"   // predictions were too far off, or there are no plans
	NothingLost Verdict = "nothing"       // nothing is to be gained, or was gained
	WouldSave   Verdict = "would_save"    // acting would have shortened the time above the objective
	WouldCost   Verdict = "would_cost"    // acting would have prolonged it
	DidSave     Verdict = "did_save"      // acting did shorten it
	DidCost     Verdict = "did_cost"      // acting did prolong it
	WouldFree   Verdict = "would_free"    // acting would have needed fewer machines for the same objective
	NotMeasured Verdict = "few_requests"  // too few requests in a period to judge it
	defaultUnit         = "USD"           // of prices
	hour                = float64(3600.0) // seconds
)

// Report is what is known about a span of time. Durations are seconds.
type Report struct {
	Service  string    `json:"service"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	SLO      string    `json:"slo"`
	Sentence string    `json:"sentence"` // the conclusion
	Verdict  Verdict   `json:"verdict"`
	Next     string    `json:"next"` // a command
	Notes    []string  `json:"notes,omitempty"`

	RecordedS float64  `json:"recorded_s"` // for how long snapshots exist
	JudgedS   float64  `json:"judged_s"`   // and for how long there were requests enough to judge
	MissedS   float64  `json:"missed_s"`   // an instance was above the objective
	Requests  float64  `json:"requests"`
	Over      float64  `json:"requests_over"` // requests at instances while these were above the objective
	Causes    []Cause  `json:"causes,omitempty"`
	Spans     []Span   `json:"spans,omitempty"` // the longest times above the objective, in order
	Change    Change   `json:"change"`
	Advised   *Outcome `json:"advised,omitempty"` // periods in which nothing was applied
	Acted     *Outcome `json:"acted,omitempty"`   // periods in which plans were applied
	Currency  string   `json:"currency,omitempty"`

	Predictions Predictions        `json:"predictions"`
	Compared    *switchback.Result `json:"compared,omitempty"` // what the last comparison found; absent: there was none
	Timeline    []Bin              `json:"timeline,omitempty"` // for the picture
}

// Cause is a reason for which the objective was missed, and for how long.
type Cause struct {
	Kind      Kind           `json:"kind"`
	Instance  string         `json:"instance,omitempty"`
	Resource  quell.Resource `json:"resource,omitempty"`
	MissedS   float64        `json:"missed_s"`
	First     time.Time      `json:"first"`
	Last      time.Time      `json:"last"`
	Neighbour float64        `json:"neighbour,omitempty"` // interference: the mean use by neighbours, a fraction of the resource
}

// Kind is a kind of cause.
type Kind string

// The kinds of causes.
const (
	Interference Kind = "interference"
	OwnLoad      Kind = "own load"
	OwnWork      Kind = "own work"
	Failure      Kind = "failures"
	Release      Kind = "release"
	Unknown      Kind = "unknown"
)

// Span is a time in which the objective was missed without a pause.
type Span struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Instance string    `json:"instance"` // the slowest one
	Kind     Kind      `json:"kind"`
	WorstMS  float64   `json:"worst_ms"` // 0: no response time was measured, because all requests failed
}

// Change is what the plans would have changed.
type Change struct {
	Plans     int     `json:"plans"`
	Different int     `json:"different"`            // plans that differ from what was in force by at least 2% of a share, or in size
	MovedMean float64 `json:"moved_mean"`           // the mean part of the traffic that these move
	Instance  string  `json:"instance,omitempty"`   // that would have lost most
	Share     float64 `json:"share,omitempty"`      // its mean share while it would have lost some
	Planned   float64 `json:"planned,omitempty"`    // and the share of the plans
	AddedMean float64 `json:"added_mean"`           // instances more or fewer, averaged over time
	AddedMost int     `json:"added_most,omitempty"` // instances more at most
}

// Outcome compares what happened with what would have happened otherwise. Positive savings mean that acting is, or was, better.
type Outcome struct {
	Seconds      float64   `json:"seconds"`
	MissedS      float64   `json:"missed_s"`       // as recorded
	OtherS       Estimate  `json:"other_missed_s"` // with the plans applied, or, if they were, with the weights that people gave
	SavedS       Estimate  `json:"saved_s"`
	SavedOver    Estimate  `json:"saved_requests_over"`
	MachineHours float64   `json:"machine_hours"` // that acting needs more
	Money        *Estimate `json:"money,omitempty"`
}

// Predictions compares the response times that plans predicted with those that were measured, where the planned shares were in force.
type Predictions struct {
	Checked int     `json:"checked"`
	Bias    float64 `json:"bias"`   // median of measured over predicted
	Low     float64 `json:"low"`    // its 5% quantile
	High    float64 `json:"high"`   // its 95% quantile
	Within  float64 `json:"within"` // part of the predictions that were at most 25% off
}

// Bin is a part of the time, for pictures.
type Bin struct {
	At      time.Time `json:"at"`
	MissedS float64   `json:"missed_s"`
	OtherS  float64   `json:"other_s"`
	Kind    Kind      `json:"kind,omitempty"` // that missed most
}
