package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/train"
)

// writeValidation writes Table II from what `quell lab validate` measured.
func writeValidation(b *bytes.Buffer, name string) error {
	data, err := os.ReadFile(filepath.Join(labDir, name, "validation.json"))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(b, "Not measured yet: `go run ./cmd/results prima:%s`.\n", name)
		return nil
	}
	if err != nil {
		return err
	}
	var v experiment.Validation
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	fmt.Fprintf(b, "| U | U_int | SF | R | predicted | error | p95 | predicted | error | 1 + SF | joint | error | total | error |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range v.Points {
		fmt.Fprintf(b, "| %s | %s | %.2f | %.1f ms | %.1f ms | %.1f%% | %.1f ms | %.1f ms | %.1f%% | %.2f | %.2f | %.1f%% | %.2f | %.1f%% |\n", percent(p.Utilization), percent(p.Interfering), p.Severity,
			p.MeanMS, p.PredictedMeanMS, 100*off(p.PredictedMeanMS, p.MeanMS), p.P95MS, p.PredictedP95MS, 100*off(p.PredictedP95MS, p.P95MS),
			1+p.Severity, 1+p.SeverityJoint, 100*off(1+p.SeverityJoint, 1+p.Severity), 1+p.SeverityTotal, 100*off(1+p.SeverityTotal, 1+p.Severity))
	}
	fmt.Fprintf(b, "\n| model | paper: mean, largest | ours: mean, largest |\n|---|---|---|\n")
	for _, line := range []struct {
		name, paper string
		error       func(experiment.ValidationPoint) float64
	}{
		{"response time, mean (Eq. 2)", "7.2%, 9.8%", func(p experiment.ValidationPoint) float64 { return off(p.PredictedMeanMS, p.MeanMS) }},
		{"response time, p95", "-", func(p experiment.ValidationPoint) float64 { return off(p.PredictedP95MS, p.P95MS) }},
		{"interference, joint, of the probe time 1 + SF", "-", func(p experiment.ValidationPoint) float64 { return off(1+p.SeverityJoint, 1+p.Severity) }},
		{"interference, total (Eq. 3), of 1 + SF", "6.9%, -", func(p experiment.ValidationPoint) float64 { return off(1+p.SeverityTotal, 1+p.Severity) }},
	} {
		var values []float64
		for _, p := range v.Points {
			values = append(values, line.error(p))
		}
		mean, most := meanAndMost(values)
		fmt.Fprintf(b, "| %s | %s | %.1f%%, %.1f%% |\n", line.name, line.paper, 100*mean, 100*most)
	}
	fmt.Fprintf(b, "\n%d runs in training; the errors are relative to what was measured.\n", v.Rows)
	return nil
}

// writeProbing writes what `quell lab probing` measured.
func writeProbing(b *bytes.Buffer, p labPart) error {
	data, err := os.ReadFile(filepath.Join(labDir, p.of, "probing.json"))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(b, "Not measured yet: `go run ./cmd/results prima:%s`.\n", p.name)
		return nil
	}
	if err != nil {
		return err
	}
	var scores []train.ProbingScore
	if err := json.Unmarshal(data, &scores); err != nil {
		return err
	}
	const link = 100e6 // bit/s, of the scenario
	fmt.Fprintf(b, "| downloads | bytes each | share of the link | severity | error | alone | against 1 x 1 MB |\n|---|---|---|---|---|---|---|\n")
	for _, s := range scores {
		fmt.Fprintf(b, "| %d | %d | %.1f%% | %.2f | %.3f | %.3f | %.2f |\n", s.Count, s.Bytes, 100*s.Share(link), s.Severity, s.Error, s.Alone, s.Error/scores[0].Error)
	}
	return nil
}

// writeReaction takes the time from each onset to the first change after it.
func writeReaction(b *bytes.Buffer, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	r := plays[0][0]
	const lasts = 7 // seconds of interference: what is done later is no reaction to it
	var delays []float64
	for _, mark := range sc.Marks() {
		at := mark.Seconds()
		if i := slices.IndexFunc(r.Changes, func(c float64) bool { return c >= at }); i >= 0 && r.Changes[i] < at+lasts {
			delays = append(delays, r.Changes[i]-at)
		}
	}
	if len(delays) == 0 {
		fmt.Fprintln(b, "No plan was applied at all.")
		return nil
	}
	slices.Sort(delays)
	fmt.Fprintf(b, "A plan was applied in %d of %d onsets: after %.1f s in the median, %.1f s at least, %.1f s at most. The interferer's own start, until its first byte, is part of it. %d requests failed.\n",
		len(delays), len(sc.Marks()), delays[len(delays)/2], delays[0], delays[len(delays)-1], r.Result.Errors)
	return nil
}

func writeQuiet(b *bytes.Buffer, _ string, sc *scenario.Scenario, plays [][]*experiment.Record) error {
	r := plays[0][0]
	periods := sc.Duration.Seconds() / sc.Service.Sampling.Seconds()
	fmt.Fprintf(b, "%d plans changed something in %.0f periods: %.1f%%.\n", r.Result.Decisions, periods, 100*float64(r.Result.Decisions)/periods)
	return nil
}
