package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/rivals"
)

// alertCase is a service, and the alerts that must fire for it and no others.
type alertCase struct {
	name   string
	change func(*rig) // the options
	begin  func(*rig) // before the metrics are read
	talk   func(*rig, time.Time)
	extra  []string // series that there are beside the controller's, and their values
	want   []string
}

// ownedBalancer obeys another controller.
type ownedBalancer struct{ *fakeBalancer }

func (ownedBalancer) Own(context.Context, quell.Owner) error {
	return &quell.OwnedError{Owner: quell.Owner{ID: "other", Name: "another"}}
}

func (ownedBalancer) Disown(context.Context) error { return nil }

// well sends readings of a healthy service in a period.
func well(r *rig, now time.Time) {
	for _, id := range []string{"i1", "i2"} {
		reading := agentReading(id, 0.3)
		reading.Observation.Severity = map[quell.Resource]float64{quell.Network: 0}
		r.c.Observe(reading, now)
		r.c.Observe(balancerReading(r.t, id, "east", 16, 16, 16), now)
	}
}

// slow sends readings of a service of which one instance misses the objective.
func slow(r *rig, now time.Time) {
	well(r, now)
	r.c.Observe(balancerReading(r.t, "i1", "east", manyTimes(160)...), now)
}

// manyTimes are enough equal response times to judge an instance by.
func manyTimes(ms float64) []float64 { return slices.Repeat([]float64{ms}, 20) }

// budgeted sets an error budget.
func budgeted(target float64) func(*rig) {
	return func(r *rig) {
		r.opts.Service.SLO.Target, r.opts.Service.SLO.Of, r.opts.Service.SLO.Over = target, quell.OfTime, 7*24*time.Hour
	}
}

func alertCases(t *testing.T) []alertCase {
	prima := func(r *rig) { r.opts.Service.Policy.Name, r.opts.Models = "prima", goldenModels(t) }
	return []alertCase{
		{name: "healthy, with models"},
		{name: "healthy, models learned in place", change: func(r *rig) { r.opts.Service.Policy.Name, r.opts.Learn = "prima", true }},
		{name: "healthy, without models", change: func(r *rig) { r.opts.Service.Policy.Name = "static" }},
		{name: "responses are slow", want: []string{"QuellObjectiveMissed"}, talk: func(r *rig, now time.Time) {
			well(r, now)
			r.c.Observe(balancerReading(r.t, "i1", "east", 160, 160, 160), now)
		}},
		{name: "half of the budget is left", change: budgeted(0.99)},
		{name: "the budget burns fast", want: []string{"QuellBudgetBurnsFast", "QuellBudgetBurnsSlowly", "QuellObjectiveMissed"}, talk: slow,
			change: budgeted(0.99)},
		{name: "the budget burns slowly", want: []string{"QuellBudgetBurnsSlowly", "QuellObjectiveMissed"}, talk: slow,
			change: budgeted(0.7)},
		{name: "the budget is out of reach", want: []string{"QuellBudgetOutOfReach"}, change: func(r *rig) {
			budgeted(0.99)(r)
			r.opts.Service.Policy.Name = "static"
			r.opts.Policies = amended(rivals.Static, func(_ *policy.Group, p *quell.Plan) {
				p.Reserve = &quell.Reserve{Share: 0.5, OutOfReach: "9 machines"}
			})
		}},
		{name: "an agent is silent", want: []string{"QuellReadingsStopped"}, begin: func(r *rig) { r.alertTalk(30, well) },
			talk: func(r *rig, now time.Time) {
				reading := agentReading("i1", 0.3)
				reading.Observation.Severity = map[quell.Resource]float64{quell.Network: 0}
				r.c.Observe(reading, now)
			}},
		{name: "a probe port is closed", want: []string{"QuellUnprobed"}, talk: func(r *rig, now time.Time) {
			r.c.Observe(agentReading("i2", 0.1), now)
			reading := agentReading("i1", 0.1)
			reading.Observation.Severity = map[quell.Resource]float64{quell.Network: 0}
			r.c.Observe(reading, now)
		}},
		{name: "no models", want: []string{"QuellModelsMissing"}, change: func(r *rig) { prima(r); r.opts.Models = nil }},
		{name: "the journal fails", want: []string{"QuellPartFails"}, begin: func(r *rig) { r.journal.fault.set(errBroken) }},
		{name: "not all requests are measured", want: []string{"QuellPartFails"},
			change: func(r *rig) { prima(r); r.opts.Measured = func() error { return errBroken } }},
		{name: "scaler and balancer do not answer", want: []string{"QuellNotDeciding", "QuellPartFails"},
			begin: func(r *rig) { r.alertTalk(5, well); r.balancer.fault.set(errBroken) }},
		{name: "no decision since the start", want: []string{"QuellNotDeciding", "QuellPartFails"},
			change: func(r *rig) { prima(r); r.balancer.fault.set(errBroken) }},
		{name: "no controller", want: []string{"QuellDown"}, begin: (*rig).kill},
		formerLeader(),
		alone(),
		handedOver(),
		{name: "no leader", want: []string{"QuellNobodyLeads"}, change: func(r *rig) {
			prima(r)
			r.opts.Lead = func(context.Context) (bool, error) { return false, nil }
		}},
		{name: "another controller owns the balancer", want: []string{"QuellChangesNothing"},
			change: func(r *rig) { prima(r); r.opts.Balancer = ownedBalancer{r.balancer} }},
		{name: "the bus is away", want: []string{"QuellStoreFails"},
			change: func(r *rig) { prima(r); r.opts.Bus = func() error { return errors.New("away") } }},
		{name: "paused", want: []string{"QuellPausedForLong"}, begin: func(r *rig) { r.do(bus.Command{Name: bus.Pause}) }},
		{name: "more load than fits", want: []string{"QuellSaturated"}, change: func(r *rig) {
			r.opts.Service.Policy.Name = "static"
			r.opts.Policies = amended(rivals.Static, func(_ *policy.Group, p *quell.Plan) { p.Capacity = map[string]float64{"i1": .1, "i2": .1} })
		}},
		{name: "a probe measures nothing", want: []string{"QuellProbeFails"}, talk: func(r *rig, now time.Time) {
			well(r, now)
			reading := agentReading("i1", 0.3)
			reading.Observation.Severity = map[quell.Resource]float64{quell.Network: 0}
			reading.Observation.ProbeFailed = map[quell.Resource]string{quell.Disk: "no space"}
			r.c.Observe(reading, now)
		}},
		{name: "the configuration is bad", extra: []string{"{series: 'quell_config_last_reload_successful', values: '0x120'}"},
			want: []string{"QuellConfigBad"}},
		{name: "an instance is out", want: []string{"QuellInstanceHeldForLong"},
			begin: func(r *rig) { r.alertTalk(5, well); r.do(bus.Command{Name: bus.Drain, Instance: "i1"}) },
			talk: func(r *rig, now time.Time) {
				well(r, now)
				idle := agentReading("i1", 0)
				idle.Observation.Severity = map[quell.Resource]float64{quell.Network: 0}
				r.c.Observe(idle, now)
			}},
	}
}

// formerLeader is a controller that had much to alert about when another one took over, which has nothing.
func formerLeader() alertCase {
	l := &lead{held: true}
	other := `{series: 'quell_leading{instance="10.0.0.3:9464",job="quell",service="shop"}', values: '1x120'}`
	return alertCase{name: "another controller leads now", extra: []string{other},
		change: func(r *rig) { budgeted(0.99)(r); r.opts.Lead = l.ask },
		begin: func(r *rig) {
			r.alertTalk(60, slow)
			r.do(bus.Command{Name: bus.Drain, Instance: "i1"})
			r.do(bus.Command{Name: bus.Pause})
			r.memory.fault.set(errBroken)
			r.alertTalk(5, well)
			l.set(false, fmt.Errorf("%w: held by another", ErrStandby))
			r.alertTalk(30, well)
		}}
}

// alone is the only controller of a service, whose lease ended because the bus and its store do not answer: what was wrong still is.
func alone() alertCase {
	l := &lead{held: true}
	return alertCase{name: "store and lease fail, and no other controller leads",
		want: []string{"QuellBudgetBurnsFast", "QuellBudgetBurnsSlowly", "QuellNobodyLeads", "QuellObjectiveMissed", "QuellPartFails",
			"QuellPausedForLong", "QuellStoreFails"},
		change: func(r *rig) { budgeted(0.99)(r); r.opts.Lead = l.ask },
		begin: func(r *rig) {
			r.alertTalk(60, slow)
			r.do(bus.Command{Name: bus.Pause})
			r.memory.fault.set(errBroken)
			r.alertTalk(5, slow)
			l.set(false, errBroken)
		},
		talk: slow}
}

// handedOver is a service of two controllers; one stands by. The lead passes to the other one in the middle of two hours, and once more at
// their end. Each time there is a minute without the metrics that only a leader has.
func handedOver() alertCase {
	tc := alertCase{name: "the lead changes hands",
		want: []string{"QuellBudgetBurnsFast", "QuellBudgetBurnsSlowly", "QuellBudgetOutOfReach", "QuellInstanceHeldForLong",
			"QuellPausedForLong", "QuellSaturated"},
		change: func(r *rig) {
			r.opts.Lead = func(context.Context) (bool, error) { return false, fmt.Errorf("%w: held by another", ErrStandby) }
		}}
	const first, second = `instance="10.0.0.3:9464",job="quell",service="shop"`, `instance="10.0.0.4:9464",job="quell",service="shop"`
	tc.extra = []string{fmt.Sprintf("{series: 'quell_leading{%s}', values: '1x120'}", second)}
	for series, v := range map[string]float64{
		`quell_paused{%s}`: 1, `quell_saturation{%s}`: 1.5, `quell_slo_out_of_reach{%s}`: 1, `quell_slo_burn_rate{%s,window="5m"}`: 20,
		`quell_slo_burn_rate{%s,window="1h"}`: 20, `quell_slo_burn_rate{%s,window="6h"}`: 2, `quell_slo_burn_rate{%s,window="3d"}`: 2,
		`quell_instance_held_since_timestamp_seconds{%s,member="i1"}`: -600,
	} {
		tc.extra = append(tc.extra,
			fmt.Sprintf("{series: '%s', values: '%gx58 stale'}", fmt.Sprintf(series, first), v),
			fmt.Sprintf("{series: '%s', values: '_x60 %gx58 stale'}", fmt.Sprintf(series, second), v))
	}
	return tc
}

// withStandby repeats some cases with a second controller, which stands by: one that decides, too, and one that has stopped deciding.
func withStandby(cases []alertCase) (repeated []alertCase) {
	for _, tc := range cases {
		if !slices.Contains([]string{"healthy, with models", "responses are slow", "scaler and balancer do not answer",
			"no decision since the start"}, tc.name) {
			continue
		}
		for name, decided := range map[string]string{"decides": "0+60x120", "has stopped": "0x120"} {
			again := tc
			again.name = tc.name + ", and one that stands by " + name
			for series, values := range map[string]string{
				`quell_leading{%s}`: "0x120", `quell_objective_seconds{%s}`: "0.075x120", `quell_sampling_seconds{%s}`: "1x120",
				`quell_latency_seconds{%s,member="i1"}`: "0.016x120", `quell_last_decision_timestamp_seconds{%s}`: decided,
			} {
				labels := `instance="10.0.0.3:9464",job="quell",service="shop"`
				again.extra = append(again.extra, fmt.Sprintf("{series: '%s', values: '%s'}", fmt.Sprintf(series, labels), values))
			}
			repeated = append(repeated, again)
		}
	}
	return repeated
}

// alertTalk plays some periods.
func (r *rig) alertTalk(periods int, talk func(*rig, time.Time)) {
	for range periods {
		if r.stop != nil {
			talk(r, time.Now())
		}
		r.pass(time.Second)
	}
}

// scrape returns the metrics by series, none if no controller runs.
func (r *rig) scrape() map[string]float64 {
	series := map[string]float64{}
	if r.stop == nil {
		return series
	}
	for line := range strings.SplitSeq(r.get("/metrics").Body.String(), "\n") {
		i := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || i < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			r.t.Fatal(err)
		}
		series[line[:i]] = v
	}
	return series
}

// promtest writes a case as a test of promtool: each series that the rules name goes on for two hours as it went in a minute.
func (r *rig) promtest(tc *alertCase, rules string, out *strings.Builder) {
	talk := tc.talk
	if talk == nil {
		talk = well
	}
	if tc.begin != nil {
		tc.begin(r)
	}
	r.alertTalk(60, talk)
	epoch, before := time.Now(), r.scrape()
	r.alertTalk(60, talk)
	fmt.Fprintf(out, "- name: %s\n  interval: 1m\n  input_series:\n  - {series: 'up{job=\"quell\"}', values: '1+0x120'}\n", tc.name)
	for _, series := range tc.extra {
		fmt.Fprintf(out, "  - %s\n", series)
	}
	for series, v := range r.scrape() {
		if name, _, _ := strings.Cut(series, "{"); !strings.Contains(rules, name) {
			continue
		}
		old, ok := before[series]
		if !ok {
			old = v
		}
		slope := v - old
		if strings.Contains(series, "_timestamp_seconds") {
			old -= float64(epoch.UnixMilli()) / 1000
		}
		named := strings.Replace(series, "{", `{instance="10.0.0.2:9464",job="quell",`, 1)
		fmt.Fprintf(out, "  - {series: '%s', values: '%g%+gx120'}\n", named, old, slope)
	}
	out.WriteString("  promql_expr_test:\n  - expr: group by (alertname) (ALERTS{alertstate=\"firing\"})\n" +
		"    eval_time: 2h\n    exp_samples: [")
	for _, name := range tc.want {
		fmt.Fprintf(out, "{labels: '{alertname=\"%s\"}', value: 1}, ", name)
	}
	out.WriteString("]\n")
}

// Every alert that the guide shows fires for its fault, and none for a healthy service.
func TestAlerts(t *testing.T) {
	promtool := need.Program(t, "promtool")
	rules, err := filepath.Abs("../examples/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	run := func(tests string) ([]byte, error) {
		file := filepath.Join(t.TempDir(), "test.yml")
		tests = fmt.Sprintf("rule_files: [%s]\nevaluation_interval: 1m\ntests:\n%s", rules, tests)
		if err := os.WriteFile(file, []byte(tests), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.Command(promtool, "test", "rules", file).CombinedOutput()
	}
	fired, cases, all := map[string]bool{}, alertCases(t), []string{}
	cases = append(cases, withStandby(cases)...)
	for _, tc := range cases {
		var out strings.Builder
		play(t, func(r *rig) {
			r.opts.Service.Policy.Name, r.opts.Models, r.opts.Service.Guard.StaleAfter = "prima", goldenModels(t), 3
			r.opts.Service.Group = quell.Group{Min: 2, Max: 2, Fixed: true}
			if tc.change != nil {
				tc.change(r)
			}
		}, func(r *rig) {
			r.run(0)
			r.promtest(&tc, string(text), &out)
		})
		all = append(all, out.String())
		for _, name := range tc.want {
			fired[name] = true
		}
	}
	if _, err := run(strings.Join(all, "")); err != nil {
		for i, tc := range cases {
			if said, err := run(all[i]); err != nil {
				t.Errorf("%s: want %v to fire: %s\n%s", tc.name, tc.want, said, all[i])
			}
		}
	}
	runbooks, err := os.ReadFile("../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "- alert: ")
		if !ok {
			continue
		}
		if !fired[name] {
			t.Errorf("no case has the fault of %s", name)
		}
		if !strings.Contains(string(text), "/docs/runbooks.md#"+strings.ToLower(name)+"\"\n") ||
			!strings.Contains(string(runbooks), "\n## "+name+"\n\n") {
			t.Errorf("%s has no runbook", name)
		}
	}
}

// Prometheus's own rules for names and units hold.
func TestMetricsAreWellNamed(t *testing.T) {
	promtool := need.Program(t, "promtool")
	play(t, nil, func(r *rig) {
		r.run(0)
		r.alertTalk(5, well)
		cmd := exec.Command(promtool, "check", "metrics")
		cmd.Stdin = r.get("/metrics").Body
		if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%v: %s", err, said)
		}
		for series := range r.scrape() {
			if slices.ContainsFunc([]string{`{instance="`, `,instance="`, `{job="`, `,job="`}, func(s string) bool { return strings.Contains(series, s) }) {
				t.Errorf("%s has a label that Prometheus gives to what it asks", series)
			}
		}
	})
}
