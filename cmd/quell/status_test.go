package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/policy"
)

// fleet is a status of three machines. The third one has a neighbour and misses the objective.
func fleet() controller.Status {
	now := time.Now()
	s := controller.Status{
		Service: "shop", Policy: "prima", Mode: quell.Act, Leading: true, Models: "learned in place", SLO: "p95 <= 75ms", ThresholdMS: 75,
		At: now, ArrivalRate: new(130.0), MissedSince: now.Add(-time.Minute), InstanceSeconds: 7200,
	}
	for i, id := range []string{"web-1", "web-2", "web-3"} {
		row := controller.InstanceStatus{ID: id, State: quell.Ready, RequestRate: new(55.0 - 15*float64(i)), CanTakeRate: new(110.0),
			Share: new(0.4), Now: new(0.4), Would: new(0.4), LatencyMS: new(50.0), PredictedMS: new(52.5)}
		s.Instances = append(s.Instances, row)
	}
	sick := &s.Instances[2]
	hidden := 0.25
	sick.LatencyMS, sick.PredictedMS, sick.CanTakeRate, sick.MissedSince = new(92.1), new(13019.0), new(18.0), &s.MissedSince
	sick.Interference = map[quell.Resource]policy.Interference{quell.Network: {Hidden: &hidden}}
	s.Reasons = []quell.Reason{
		{Code: "interference", Instance: "web-3", Text: "severity 0.41 at own use 0.300: neighbours take about 0.25 of the network, and so on"},
		{Code: "shift", Text: strings.Repeat("web-3 carries more than it can within the threshold ", 5)},
	}
	return s
}

func shown(t *testing.T, s controller.Status, all bool) []string {
	t.Helper()
	var out strings.Builder
	if err := writeStatus(&out, s, all); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// The first line is the state of the objective, in each state of a service.
func TestTheFirstLineIsTheObjective(t *testing.T) {
	at := fleet().MissedSince.Local().Format(time.TimeOnly)
	for _, tc := range []struct {
		change func(*controller.Status)
		want   string
	}{
		{func(*controller.Status) {}, "shop MISSES its objective since " + at + ": p95 is 92.1 ms (web-3); objective p95 <= 75ms"},
		{func(s *controller.Status) { s.Instances[0].LatencyMS = new(80.0) }, "shop MISSES its objective since " + at +
			": p95 is 92.1 ms (web-3 and 1 more); objective p95 <= 75ms"},
		{func(s *controller.Status) { s.Instances[2].LatencyMS = new(61.0) },
			"shop is well: p95 is 61 ms at most (web-3); objective p95 <= 75ms"},
		{func(s *controller.Status) { s.Instances[2].LatencyMS = new(10994.4) }, "shop MISSES its objective since " + at +
			": p95 is 10994 ms (web-3); objective p95 <= 75ms"},
		{func(s *controller.Status) { s.At = time.Time{} }, "shop: no decision yet; objective p95 <= 75ms"},
		{func(s *controller.Status) {
			for i := range s.Instances {
				s.Instances[i].State = quell.Failed
			}
		}, "shop is DOWN: no instance is ready; objective p95 <= 75ms"},
		{func(s *controller.Status) {
			for i := range s.Instances {
				s.Instances[i].LatencyMS = nil
			}
		}, "shop: not known if it is well, no response time in the last period; objective p95 <= 75ms"},
	} {
		s := fleet()
		tc.change(&s)
		if got := shown(t, s, false)[0]; got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

// The second line says in an operator's words whether anything is changed, and why not.
func TestTheSecondLineSaysWhoActs(t *testing.T) {
	for want, change := range map[string]func(*controller.Status){
		"policy prima: acts": func(*controller.Status) {},
		"policy prima with outlier: changes nothing until quell resume, paused by ann": func(s *controller.Status) {
			s.Paused, s.PausedBy, s.Fast = true, "ann", "outlier"
		},
		"policy prima: changes nothing (mode: advise), WOULD BE is what it would set": func(s *controller.Status) { s.Mode = quell.Advise },
		"policy prima: changes nothing until its predictions are proven, WOULD BE is what it would set": func(s *controller.Status) {
			s.Authority = quell.AuthorityAdvise
		},
		"policy prima: changes shares in small steps, until its predictions are proven": func(s *controller.Status) {
			s.Authority = quell.AuthorityStep
		},
		"policy prima: changes nothing, another controller leads (standby)": func(s *controller.Status) { s.Leading, s.Standby = false, true },
		"policy prima: waits for models, shares are equal":                  func(s *controller.Status) { s.Models = "no models yet" },
	} {
		s := fleet()
		change(&s)
		if got := shown(t, s, false)[1]; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// A row says what an instance can still take, one clause on why, and no absurd prediction. A change that was taken back long ago is gone.
func TestRowsAreInAnOperatorsWords(t *testing.T) {
	s := fleet()
	s.TakenBack, s.TakenBackAt = "the change of 9:00 was taken back", s.At.Add(-40*time.Minute)
	text := strings.Join(shown(t, s, false), "\n")
	for _, want := range []string{
		"load 130/s; 3 of 3 instances can take 238/s; cost 2h0m0s of instances; decided ",
		"web-3     25/s  18/s      0.400  0.400  0.400     92.1 ms  > 750 ms   neighbours on 25% of network",
		"shift: web-3 carries more than it can within the threshold web-3 carries more than it can within...",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, not := range []string{"taken back", "13019", "severity 0.41", "authority"} {
		if strings.Contains(text, not) {
			t.Errorf("%q in\n%s", not, text)
		}
	}
	s.TakenBackAt = s.At.Add(-time.Minute)
	if text := strings.Join(shown(t, s, false), "\n"); !strings.Contains(text, "taken back ") {
		t.Errorf("a change of a minute ago that was taken back is not shown:\n%s", text)
	}
}

// A status that is cut says how to see the rest, and only then.
func TestACutStatusSaysSo(t *testing.T) {
	const hint = "quell status --all shows in full what ends in ..."
	s := fleet()
	if lines := shown(t, s, false); lines[len(lines)-1] != hint {
		t.Errorf("a cut status ends with %q", lines[len(lines)-1])
	}
	if text := strings.Join(shown(t, s, true), "\n"); strings.Contains(text, hint) {
		t.Errorf("--all has the hint:\n%s", text)
	}
	s.Reasons = nil
	if text := strings.Join(shown(t, s, false), "\n"); strings.Contains(text, hint) {
		t.Errorf("nothing is cut, and the hint is there:\n%s", text)
	}
}

// A status of a hundred instances with all that can be told fits a screen, and shows first what needs attention.
func TestAStatusFitsAScreen(t *testing.T) {
	s := fleet()
	for len(s.Instances) < 100 {
		s.Instances = append(s.Instances[:1:1], s.Instances...)
	}
	s.Learned = []string{strings.Repeat("network ", 30), "cpu"}
	s.LastFailure = map[string]string{"measure": strings.Repeat("lines are in an unknown format ", 20)}
	s.LastFailureAt = map[string]time.Time{"measure": s.At}
	s.Changes, s.ChangedAt = []string{"weights"}, s.At
	lines := shown(t, s, false)
	if len(lines) > 25 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.HasPrefix(lines[5], "web-3 ") {
		t.Errorf("the first row is %s", lines[5])
	}
	if all := shown(t, s, true); len(all) < 100 || !strings.Contains(strings.Join(all, "\n"), s.LastFailure["measure"]) {
		t.Errorf("--all shows %d lines", len(all))
	}
}

// Whether an instance can be drained follows from what the others can take.
func TestWhetherAnInstanceCanBeDrained(t *testing.T) {
	for _, tc := range []struct {
		id     string
		change func(*controller.Status)
		yes    bool
		want   string
	}{
		{"web-3", func(*controller.Status) {}, true, "yes: the other 2 can take 220/s within the objective, and there are 120/s"},
		{"web-1", func(s *controller.Status) { s.Instances[1].CanTakeRate = new(40.0) }, false,
			"no: the other 2 can take 58/s within the objective, and there are 120/s"},
		{"web-1", func(s *controller.Status) { s.Instances[1].CanTakeRate = nil }, false, "not known: what web-2 can take"},
		{"web-1", func(s *controller.Status) { s.Instances = s.Instances[:1] }, false, "no: without web-1 no instance is in rotation"},
		{"web-9", func(*controller.Status) {}, false, `service shop has no instance "web-9"`},
	} {
		s := fleet()
		tc.change(&s)
		text, err := withoutInstance(&s, tc.id)
		if err != nil {
			text = err.Error()
		}
		if (err == nil) != tc.yes || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %s, want %s", tc.id, text, tc.want)
		}
	}
}

func TestLongProblems(t *testing.T) {
	var b strings.Builder
	v := &statusView{w: &b}
	v.problem("asking the scaler: " + strings.Repeat("the role lacks autoscaling:DescribeAutoScalingGroups, ", 12))
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != problemLines || !strings.HasPrefix(lines[1], "         ") || !strings.HasSuffix(lines[3], "...") {
		t.Errorf("%q", lines)
	}
	for _, l := range lines {
		if utf8.RuneCountInString(l) > statusWidth {
			t.Errorf("%d columns: %q", utf8.RuneCountInString(l), l)
		}
	}
	b.Reset()
	v.problem(strings.Repeat("ä", 150))
	if got := b.String(); strings.Count(got, "ä") != 150 {
		t.Errorf("letters are lost: %q", got)
	}
}
