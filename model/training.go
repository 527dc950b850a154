package model

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/quellhq/quell"
)

// TrainingRow is one training run: a line of training.jsonl.
type TrainingRow struct {
	Resource         quell.Resource     `json:"resource"`
	Level            float64            `json:"level"`                       // commanded utilisation
	InterferingLevel *float64           `json:"interfering_level,omitempty"` // commanded interference; groups runs
	Interfering      float64            `json:"interfering"`                 // utilisation that the interferer really caused
	Utilization      float64            `json:"utilization"`                 // utilisation that the service really caused
	RequestRate      float64            `json:"request_rate"`
	LatencyMS        quell.Latency      `json:"latency_ms,omitzero"`
	ProbeMS          ProbeRun           `json:"probe_ms"`
	By               *quell.Probing     `json:"by,omitempty"` // how it was probed
	CPU              *quell.CPUTime     `json:"cpu,omitempty"`
	ClassRates       map[string]float64 `json:"class_rates,omitempty"` // requests per second of each class

	// Observation is everything that was measured in the run. It is nil in rows that older versions wrote.
	Observation *quell.Observation `json:"observation,omitempty"`

	// Windows are set if the interferer came and went during the run. They are in order of time, and follow each other without gaps.
	Windows []TrainingWindow `json:"windows,omitempty"`

	DurationS float64 `json:"duration_s,omitempty"`
	Requests  int64   `json:"requests,omitempty"`
	Errors    int64   `json:"errors,omitempty"`
	Seed      uint64  `json:"seed,omitempty"`
	// Interval is half the width of the confidence interval so far, as a fraction of the mean.
	Interval  *float64 `json:"interval,omitempty"`
	Converged *bool    `json:"converged,omitempty"` // whether that was narrow enough to stop
}

// ProbeRun summarises the N single probes of a run, in milliseconds.
type ProbeRun struct {
	Mean   float64 `json:"mean"`
	Stddev float64 `json:"stddev"`
	N      int     `json:"n"`
}

var trainingKeys = []string{"resource", "level", "interfering", "utilization", "request_rate", "probe_ms"}

// ReadTraining reads training.jsonl; blank lines are skipped. If a row has mistakes, the error is one *quell.UserError that names the line
// and the path of each mistake in the first such row. where is put before the line's number.
func ReadTraining(r io.Reader, where string) ([]TrainingRow, error) {
	var rows []TrainingRow
	lines := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading training rows: %w", err)
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			row, err := decodeRow(text)
			if err != nil {
				return nil, &quell.UserError{Err: fmt.Errorf("%s%d: %w", where, number, err)}
			}
			rows = append(rows, row)
		}
		if err != nil {
			break
		}
	}
	if len(rows) == 0 {
		return nil, &quell.UserError{Err: fmt.Errorf("%s1: no training rows: `quell train` writes them", where)}
	}
	return rows, nil
}

func decodeRow(text []byte) (TrainingRow, error) {
	var row TrainingRow
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		return row, fmt.Errorf("not JSON: %w", err)
	}
	f := file{layout: mapLayout(text, func(string) bool { return false })}
	f.errs = f.layout.repeated
	f.strict("", text, trainingKeys, &row)
	for _, name := range []string{"probe_ms.mean", "probe_ms.stddev", "probe_ms.n"} {
		if _, ok := f.layout.lines[name]; !ok && len(f.errs) == 0 {
			f.addf(name, "is missing")
		}
	}
	if len(f.errs) == 0 {
		f.join(row.Validate())
	}
	return row, errors.Join(f.errs...)
}

// Validate returns an error that joins a *quell.InvalidError for each rule the row breaks.
func (r *TrainingRow) Validate() error {
	var c check
	c.resource("resource", r.Resource)
	c.fraction("level", r.Level)
	c.fraction("utilization", r.Utilization)
	c.fraction("interfering", r.Interfering)
	if r.InterferingLevel != nil {
		c.fraction("interfering_level", *r.InterferingLevel)
	}
	c.between("request_rate", r.RequestRate, 0, maxValue)
	c.latency("latency_ms", r.LatencyMS)
	c.between("probe_ms.mean", r.ProbeMS.Mean, minProbeMS, maxValue)
	c.between("probe_ms.stddev", r.ProbeMS.Stddev, 0, maxValue)
	c.atLeast("probe_ms.n", float64(r.ProbeMS.N), 1)
	if r.By != nil && !r.By.Sound() {
		c.addf("by.bytes", "%d is no size of a probe", r.By.Bytes)
	}
	if r.CPU != nil {
		c.fraction("cpu.user", r.CPU.User)
		c.fraction("cpu.system", r.CPU.System)
		if r.CPU.IOWait != nil {
			c.fraction("cpu.iowait", *r.CPU.IOWait)
		}
		c.fraction("cpu.steal", r.CPU.Steal)
	}
	for _, class := range sortedKeys(r.ClassRates) {
		c.between("class_rates."+class, r.ClassRates[class], 0, maxValue)
	}
	if r.Observation != nil {
		c.within("observation", r.Observation.Validate())
	}
	for i := range r.Windows {
		path := fmt.Sprintf("windows[%d].", i)
		c.fraction(path+"interfering", r.Windows[i].Interfering)
		c.within(path+"observation", r.Windows[i].Observation.Validate())
	}
	c.atLeast("duration_s", r.DurationS, 0)
	c.atLeast("requests", float64(r.Requests), 0)
	c.atLeast("errors", float64(r.Errors), 0)
	if r.Interval != nil {
		c.atLeast("interval", *r.Interval, 0)
	}
	return c.err()
}
