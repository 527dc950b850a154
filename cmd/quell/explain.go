package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/tell"
)

func explainCommand() *cobra.Command {
	var path, saved string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain INSTANCE [--config FILE]",
		Short: "Say why an instance has its weight: its capacity, who slows it, what was predicted and measured, and who holds it",
		Args:  named("INSTANCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := statusesToExplain(cmd, path, saved)
			for i := range list {
				if i > 0 && !asJSON {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				err = errors.Join(err, writeExplanation(cmd.OutOrStdout(), &list[i], args[0], asJSON))
			}
			return err
		},
	}
	addConfigFlag(cmd, &path)
	serviceFlag(cmd)
	cmd.Flags().StringVar(&saved, "status", "", "read what quell status --json printed from this `FILE` (- for standard input) "+
		"instead of asking the controller")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func writeExplanation(w io.Writer, s *controller.Status, instance string, asJSON bool) error {
	e, err := explanationOf(s, instance)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(w).Encode(e)
	}
	return e.write(w)
}

// statusesToExplain returns the status of each service, or a saved one. The error names the services that did not answer.
func statusesToExplain(cmd *cobra.Command, path, saved string) (list []controller.Status, err error) {
	if saved != "" {
		s, err := savedStatus(cmd, saved)
		if err != nil {
			return nil, err
		}
		return []controller.Status{s}, nil
	}
	if err := findConfig(cmd, &path); err != nil {
		return nil, err
	}
	r, err := services(cmd, path)
	if err != nil {
		return nil, err
	}
	answers := r.askEach(func(file *config.File) ([]byte, error) { return askOne(cmd, file, bus.Command{Name: bus.Status}) })
	for i, a := range answers {
		if a.err != nil {
			continue
		}
		s, err := statusIn(a.text)
		if err != nil {
			answers[i].err = err
			continue
		}
		list = append(list, s)
	}
	return list, r.failures(answers)
}

// savedStatus reads a saved status; saved is a file, or - for standard input.
func savedStatus(cmd *cobra.Command, saved string) (s controller.Status, err error) {
	var text []byte
	switch saved {
	case "-":
		text, err = io.ReadAll(cmd.InOrStdin())
	default:
		if text, err = os.ReadFile(saved); err != nil {
			err = &quell.UserError{Err: err}
		}
	}
	if err != nil {
		return s, err
	}
	if s, err = statusIn(text); err != nil {
		err = &quell.UserError{Err: fmt.Errorf("%s: %w: save one with quell status --json", saved, err)}
	}
	return s, err
}

// statusIn reads a status, and makes its texts printable.
func statusIn(text []byte) (s controller.Status, err error) {
	if err = json.Unmarshal(text, &s); err == nil && s.Service == "" {
		err = errors.New("it names no service")
	}
	if err != nil {
		return s, fmt.Errorf("reading the status: %w", err)
	}
	printable(&s)
	return s, nil
}

// explanation is what a status says of one instance.
type explanation struct {
	Service  string                    `json:"service"`
	At       time.Time                 `json:"at,omitzero"`
	SLO      string                    `json:"slo"`
	Equal    *float64                  `json:"equal_weight,omitempty"`   // what the weight would be in an even split, by base weight
	Override *float64                  `json:"override,omitempty"`       // the weight that a person set
	Until    *time.Time                `json:"override_until,omitempty"` // when that ends by itself
	Instance controller.InstanceStatus `json:"instance"`
	Tested   *controller.Tested        `json:"tested,omitempty"` // its last red-line test by night
	Reasons  []quell.Reason            `json:"reasons"`          // of the last plans, about this instance and about the whole group
	Idle     string                    `json:"idle,omitempty"`
}

// explanationOf picks what a status says of an instance.
func explanationOf(s *controller.Status, id string) (*explanation, error) {
	i := slices.IndexFunc(s.Instances, func(row controller.InstanceStatus) bool { return row.ID == id })
	if i < 0 {
		var known []string
		for _, row := range s.Instances {
			known = append(known, row.ID)
		}
		const most = 20
		if more := len(known) - most; more > 0 {
			known = append(known[:most], fmt.Sprintf("%d more", more))
		}
		return nil, userErrorf("service %s has no instance %q (there are: %s)", s.Service, id, strings.Join(known, ", "))
	}
	e := &explanation{Service: s.Service, At: s.At, SLO: s.SLO, Instance: s.Instances[i], Reasons: []quell.Reason{}}
	for _, r := range slices.Concat(s.FastReasons, s.Reasons) {
		if r.Instance == id || r.Instance == "" {
			e.Reasons = append(e.Reasons, r)
		}
	}
	e.Equal = evenShare(s.Instances, &s.Instances[i])
	if w, ok := s.Overrides[id]; ok {
		e.Override = &w
	}
	if o, ends := s.Temporary[id]; ends {
		e.Until = &o.Until
	}
	if s.Nightly != nil {
		if i := slices.IndexFunc(s.Nightly.Tested, func(t controller.Tested) bool { return t.Instance == id }); i >= 0 {
			e.Tested = &s.Nightly.Tested[i]
		}
	}
	switch {
	case s.Lost != "":
		e.Idle = "nothing is changed until quell resume: " + s.Lost
	case s.Refused != "":
		e.Idle = s.Refused
	case s.Released != nil:
		e.Idle = s.Released.Text()
	case s.Paused:
		e.Idle = "paused by " + s.PausedBy
	case s.Mode == quell.Advise:
		e.Idle = "mode advise: plans are only recorded"
	}
	return e, nil
}

// evenShare returns an instance's part of an even split by base weight among those that share the traffic; nil if none does.
func evenShare(rows []controller.InstanceStatus, row *controller.InstanceStatus) *float64 {
	base := func(row *controller.InstanceStatus) float64 { return (&quell.Instance{Base: row.Base}).BaseWeight() }
	sum := 0.0
	for i := range rows {
		if rows[i].Weight != nil {
			sum += base(&rows[i])
		}
	}
	if sum == 0 {
		return nil
	}
	return new(base(row) / sum)
}

// write prints the explanation for a person, a line for each question.
func (e *explanation) write(w io.Writer) error {
	row := &e.Instance
	at := "before the first decision"
	if !e.At.IsZero() {
		at = "at " + e.At.UTC().Format(time.DateTime) + " UTC"
	}
	fmt.Fprintf(w, "%s of service %s, %s\n", row.ID, e.Service, at)
	line := func(what, text string) {
		for i, part := range wrapped(text, statusWidth-explainIndent) {
			if i > 0 {
				what = ""
			}
			fmt.Fprintf(w, "%-*s%s\n", explainIndent, what, part)
		}
	}
	line("state", stateText(row))
	line("held", holderText(row))
	line("weight", e.weightText())
	line("load", loadText(row))
	line("capacity", capacityText(row))
	line("response", e.responseText())
	line("red line", testedText(e.Tested))
	for _, resource := range slices.Sorted(maps.Keys(row.Interference)) {
		line("neighbours", string(resource)+": "+interferenceText(row.Interference[resource]))
	}
	for _, resource := range slices.Sorted(maps.Keys(row.Credits)) {
		line("credits", string(resource)+": "+creditsText(row.Credits[resource]))
	}
	line("waiting", waitsText(row.Waits))
	for _, resource := range slices.Sorted(maps.Keys(row.ProbeFailed)) {
		line("not probed", string(resource)+": "+row.ProbeFailed[resource])
	}
	for _, name := range slices.Sorted(maps.Keys(row.Settings)) {
		line("setting", fmt.Sprintf("%s: %.15g", name, row.Settings[name]))
	}
	for _, r := range quell.ShownReasons(e.Reasons, e.At) {
		line("reason", r.Code+": "+r.Text)
	}
	line("not applied", e.Idle)
	return nil
}

// explainIndent is the width of the first column of an explanation.
const explainIndent = 13

// wrapped divides a text into lines at its spaces; none if it is empty.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// testedText says what the last red-line test by night found.
func testedText(t *controller.Tested) string {
	if t == nil {
		return ""
	}
	return "tested by night at " + t.At.UTC().Format(time.DateTime) + " UTC: " + cmp.Or(t.Text, "not over yet")
}

func stateText(row *controller.InstanceStatus) string {
	text := string(row.State)
	if row.AgeS > 0 {
		text += ", started " + tell.Age(row.AgeS) + " ago"
	}
	switch {
	case row.Unprobed:
		text += "; it reports, but nobody probes it"
	case row.Stale:
		text += "; its readings have stopped"
	}
	if row.Replaces != "" {
		text += "; it will replace " + row.Replaces
	}
	if row.Missing != nil {
		text += "; the scaler does not list it since " + row.Missing.UTC().Format(time.DateTime) + " UTC"
	}
	if row.Health != "" {
		text += "; health check: " + row.Health
	}
	return text
}

// holderText says who took the instance out of rotation.
func holderText(row *controller.InstanceStatus) string {
	if row.Held == nil {
		return ""
	}
	text := fmt.Sprintf("out of rotation by %s since %s UTC", row.Held.By, row.Held.Since.UTC().Format(time.DateTime))
	if row.Held.Why != "" {
		text += ": " + row.Held.Why
	}
	switch {
	case row.Empty:
		text += ", empty"
	case row.Open != nil:
		text += fmt.Sprintf(", %d request(s) open", *row.Open)
	}
	return text + "; quell undrain " + row.ID + " puts it back"
}

func (e *explanation) weightText() string {
	row := &e.Instance
	if row.Weight == nil {
		return "none in the last plan"
	}
	text := fmt.Sprintf("%.3f of the traffic", *row.Weight)
	switch {
	case e.Equal != nil && row.Base != nil:
		text += fmt.Sprintf("; an even share by base weight is %.3f", *e.Equal)
	case e.Equal != nil:
		text += fmt.Sprintf("; an equal share is %.3f", *e.Equal)
	}
	if e.Override != nil {
		text += fmt.Sprintf("; a person set it to %.3f", *e.Override)
		if e.Until != nil {
			text += " until " + e.Until.UTC().Format(time.DateTime) + " UTC"
		}
	}
	if row.Cut != nil {
		text += fmt.Sprintf("; a fast policy cut it to %.0f%%", 100**row.Cut)
	}
	return text
}

func loadText(row *controller.InstanceStatus) string {
	var parts []string
	if row.RequestRate != nil {
		parts = append(parts, fmt.Sprintf("%.1f requests/s", *row.RequestRate))
	}
	if row.Utilization != nil {
		parts = append(parts, fmt.Sprintf("own use %.3f", *row.Utilization))
	}
	if row.ErrorRate != nil && *row.ErrorRate > 0 {
		parts = append(parts, fmt.Sprintf("%.1f%% failed", 100**row.ErrorRate))
	}
	if row.ShedRate != nil {
		parts = append(parts, fmt.Sprintf("%.1f%% refused (429, 503)", 100**row.ShedRate))
	}
	return strings.Join(parts, ", ")
}

func capacityText(row *controller.InstanceStatus) string {
	if row.Capacity == nil {
		return "not known"
	}
	text := fmt.Sprintf("%.3f within the objective", *row.Capacity)
	if row.CanTakeRate != nil {
		text += ", " + tell.Rate(*row.CanTakeRate)
	}
	if row.Limiter != "" {
		text += ", limited by " + row.Limiter
	}
	return text
}

func (e *explanation) responseText() string {
	row := &e.Instance
	measured, predicted := "not measured", "no prediction"
	if row.LatencyMS != nil {
		measured = fmt.Sprintf("measured %.1f ms", *row.LatencyMS)
	}
	if row.PredictedMS != nil {
		predicted = fmt.Sprintf("predicted %.1f ms at the planned load", *row.PredictedMS)
	}
	if row.MissedSince != nil {
		measured += ", above the objective since " + row.MissedSince.UTC().Format(time.DateTime) + " UTC"
	}
	return fmt.Sprintf("%s, %s; objective %s", measured, predicted, e.SLO)
}

func interferenceText(x policy.Interference) string {
	var parts []string
	if x.Severity != nil {
		text := fmt.Sprintf("severity %.2f", *x.Severity)
		if x.Held {
			text += ", held from before"
		}
		parts = append(parts, text)
	}
	if x.ProbeMS != nil && x.ExpectedMS != nil {
		at := ""
		if x.Use != nil {
			at = fmt.Sprintf(" at own use %.3f", *x.Use)
		}
		parts = append(parts, fmt.Sprintf("probes take %.3g ms, without neighbours %.3g ms%s", *x.ProbeMS, *x.ExpectedMS, at))
	}
	if x.Hidden != nil {
		parts = append(parts, fmt.Sprintf("they use about %.3f of it", *x.Hidden))
	}
	if x.Origin != "" {
		parts = append(parts, "cause "+x.Origin)
	}
	return strings.Join(parts, "; ")
}

// creditsText says how many credits are left, and when they run out.
func creditsText(b quell.Balance) string {
	text := fmt.Sprintf("%.4g left", b.Left)
	if b.High-b.Low > 0.02*b.High {
		text += fmt.Sprintf(" (%.4g to %.4g)", b.Low, b.High)
	}
	switch {
	case b.DepletedS == nil && b.SoonestS == nil:
		return text + ", which do not run out at this use"
	case b.DepletedS == nil:
		return text + fmt.Sprintf(", which do not run out at this use, or in %s if it is a little higher", tell.Age(*b.SoonestS))
	}
	text += ", which run out in " + tell.Age(*b.DepletedS)
	switch {
	case b.SoonestS != nil && b.LatestS != nil:
		text += fmt.Sprintf(" (%s to %s)", tell.Age(*b.SoonestS), tell.Age(*b.LatestS))
	case b.SoonestS != nil:
		text += fmt.Sprintf(" (%s or later)", tell.Age(*b.SoonestS))
	}
	return text + fmt.Sprintf(" at this use; the baseline is %.3g%%", 100*b.Baseline)
}

func waitsText(waits *quell.Waits) string {
	if waits == nil {
		return ""
	}
	if parts := waits.Parts(); parts != "" {
		return "of the time its tasks wanted to run: " + parts
	}
	return "its tasks waited for nobody"
}
