package top

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/policy"
)

var began = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// shop is a status of n machines. The third one has a neighbour and misses the objective, the fourth one is drained.
func shop(n int) controller.Status {
	s := controller.Status{
		Service: "shop", Policy: "prima", Mode: quell.Act, Leading: true, Models: "learned in place", SLO: "p95 <= 75ms", ThresholdMS: 75,
		At: began, Load: 0.93, Capacity: new(1.62), MissedSince: began.Add(-time.Minute), SamplingS: 10, Coming: 1, Wanted: new(n),
	}
	for i := range n {
		row := controller.InstanceStatus{ID: fmt.Sprintf("web-%d", i+1), State: quell.Ready, RequestRate: new(55.0), CanTakeRate: new(110.0),
			Utilization: new(0.31 + 0.001*float64(i)), Capacity: new(0.72), Severity: new(0.0), Now: new(1 / float64(n)),
			Would: new(1 / float64(n)), LatencyMS: new(50.0)}
		s.Instances = append(s.Instances, row)
	}
	if n > 2 {
		sick, hidden := &s.Instances[2], 0.25
		sick.LatencyMS, sick.Severity, sick.Capacity, sick.Would = new(92.1), new(0.41), new(0.18), new(0.106)
		sick.Limiter = "network"
		sick.Interference = map[quell.Resource]policy.Interference{quell.Network: {Hidden: &hidden}}
		s.Reasons = []quell.Reason{{Code: "interference", Instance: "web-3"}}
	}
	if n > 3 {
		s.Instances[3].Held = &quell.Held{By: "ann@host", Since: began}
		s.Instances[3].Utilization, s.Instances[3].LatencyMS = nil, nil
	}
	return s
}

// fake is a controller that answers with a status, and notes commands.
type fake struct {
	status controller.Status
	err    error
	sent   []bus.Command
}

func (f *fake) Status(context.Context) (controller.Status, error) { return f.status, f.err }

func (f *fake) Command(_ context.Context, cmd bus.Command) (string, error) {
	f.sent = append(f.sent, cmd)
	return "paused", f.err
}

func options(all ...*fake) Options {
	o := Options{Every: time.Hour, Clock: func(at time.Time) string { return at.Format(time.TimeOnly) },
		Now: func() time.Time { return began.Add(3 * time.Second) }}
	for i, f := range all {
		o.Services = append(o.Services, Service{Name: []string{"shop", "video"}[i], Controller: f})
	}
	return o
}

// shown is a live view of services with an answer of each, at a size.
func shown(t *testing.T, width, height int, all ...*fake) *view {
	v := newView(t.Context(), options(all...))
	v.screen.live = true
	v.Update(tea.WindowSizeMsg{Width: width, Height: height})
	for i := range all {
		v.Update(v.poll(i)())
	}
	return v
}

// past gives a service response times from half the objective to twice as much.
func past(v *view) {
	var samples []Sample
	for i := range 40 {
		s := Sample{At: began.Add(time.Duration(i-40) * 10 * time.Second), MS: new(37.5 + 3*float64(i))}
		if i == 20 {
			s.MS = nil
		}
		samples = append(samples, s)
	}
	v.Update(remembered{0, samples})
}

func keys(v *view, all ...string) (last tea.Cmd) {
	for _, key := range all {
		last = v.press(key)
	}
	return last
}

// The pictures in testdata are what a person sees.
func TestFrames(t *testing.T) {
	for name, draw := range map[string]func() *view{
		"80x24": func() *view { v := shown(t, 80, 24, &fake{status: shop(5)}); past(v); keys(v, "down"); return v },
		"120x12": func() *view {
			v := shown(t, 120, 12, &fake{status: shop(30)})
			past(v)
			keys(v, "end", "s", "s")
			return v
		},
		"40x10": func() *view { return shown(t, 40, 10, &fake{status: shop(5)}) },
		"services": func() *view {
			v := shown(t, 80, 16, &fake{status: shop(3)}, &fake{err: errors.New("no controller answers")})
			keys(v, "tab", "tab", "o", "3", "7", "%")
			return v
		},
		"silent": func() *view {
			f := &fake{status: shop(3)}
			v := shown(t, 80, 14, f)
			f.err = errors.New("no controller answers for service \"shop\": is `quell controller` running?")
			v.Update(v.poll(0)())
			keys(v, "d")
			return v
		},
		"problems": func() *view {
			s := shop(2)
			s.LastFailure, s.Failures = map[string]string{"a": "x", "b": "x", "c": "x", "d": "x", "e": "x"}, map[string]int{}
			return shown(t, 80, 20, &fake{status: s})
		},
		"help": func() *view { v := shown(t, 80, 24, &fake{status: shop(3)}); keys(v, "?"); return v },
		"none": func() *view {
			return shown(t, 80, 8, &fake{status: controller.Status{Service: "shop", SLO: "p95 <= 75ms"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := draw()
			lines := v.screen.draw()
			if v.screen.height != len(lines) {
				t.Errorf("%d lines, want %d", len(lines), v.screen.height)
			}
			for _, line := range lines {
				if n := ansi.StringWidth(line); n > v.screen.width {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			golden.Compare(t, "testdata/"+name+".txt", []byte(strings.Join(lines, "\n")+"\n"))
			plain := strings.Join(lines, "\n")
			v.screen.styled = true
			styled := strings.Join(v.screen.draw(), "\n")
			if styled == plain || ansi.Strip(styled) != plain {
				t.Errorf("styles change the text, or there are none:\n%q", styled)
			}
		})
	}
}

// Every size of a terminal and every number of instances gives a picture of that size.
func TestSizes(t *testing.T) {
	for _, n := range []int{0, 1, 3, 10_000} {
		v := shown(t, 80, 24, &fake{status: shop(n)}, &fake{status: shop(n)})
		past(v)
		for _, size := range [][2]int{{1, 1}, {2, 3}, {20, 5}, {80, 24}, {500, 200}} {
			v.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
			for _, key := range []string{"end", "home", "pgdown", "up", "s", "S", "?", "?", "tab"} {
				keys(v, key)
				lines := v.screen.draw()
				if len(lines) != size[1] {
					t.Fatalf("%d instances, %v, key %s: %d lines", n, size, key, len(lines))
				}
				for _, line := range lines {
					if ansi.StringWidth(line) > size[0] {
						t.Fatalf("%d instances, %v, key %s: too wide: %q", n, size, key, line)
					}
				}
			}
		}
	}
}

// A command is sent after the question about it was answered with y, and in no other case.
func TestCommandsAreConfirmed(t *testing.T) {
	for _, tc := range []struct {
		keys []string
		want bus.Command // none: nothing is sent
	}{
		{[]string{"p", "y"}, bus.Command{Name: bus.Pause}},
		{[]string{"r", "Y"}, bus.Command{Name: bus.Resume}},
		{[]string{"down", "d", "y"}, bus.Command{Name: bus.Drain, Instance: "web-4"}},
		{[]string{"u", "y"}, bus.Command{Name: bus.Undrain, Instance: "web-3"}},
		{[]string{"o", "2", "5", "%", "enter", "y"}, bus.Command{Name: bus.Override, Instance: "web-3", Weight: new(0.25)}},
		{[]string{"o", "5", "backspace", "0", ".", "5", "enter", "y"}, bus.Command{Name: bus.Override, Instance: "web-3", Weight: new(0.5)}},
		{[]string{"o", "c", "l", "e", "a", "r", "enter", "y"}, bus.Command{Name: bus.Clear, Instance: "web-3"}},
		{[]string{"o", "2", "enter", "esc"}, bus.Command{}},
		{[]string{"o", "enter", "y", "enter", "esc"}, bus.Command{}},
		{[]string{"p", "n"}, bus.Command{}},
		{[]string{"p", "enter"}, bus.Command{}},
		{[]string{"p", "esc", "y"}, bus.Command{}},
		{[]string{"y"}, bus.Command{}},
	} {
		f := &fake{status: shop(5)}
		v := shown(t, 80, 24, f)
		if cmd := keys(v, tc.keys...); cmd != nil {
			v.Update(cmd())
		}
		if tc.want.Name == "" && len(f.sent) > 0 || tc.want.Name != "" && !reflect.DeepEqual(f.sent, []bus.Command{tc.want}) {
			t.Errorf("%v: sent %+v, want %+v", tc.keys, f.sent, tc.want)
		}
		if tc.want.Name != "" && v.screen.message != "shop: paused" {
			t.Errorf("%v: the answer is not shown: %q", tc.keys, v.screen.message)
		}
	}
}

// A refusal is shown, and a command is for the service and the instance that the question named.
func TestCommandsAreForWhatWasAsked(t *testing.T) {
	f := &fake{status: shop(5)}
	v := shown(t, 80, 24, f)
	keys(v, "d") // web-3, which is first as it needs attention
	f.status.Instances[2].LatencyMS, f.status.Instances[0].LatencyMS = new(10.0), new(500.0)
	v.Update(v.poll(0)())
	cmd := keys(v, "y")
	f.err = errors.New("it is\nthe last one")
	v.Update(cmd())
	if len(f.sent) != 1 || f.sent[0].Instance != "web-3" || v.screen.message != "REFUSED: it is; the last one" {
		t.Errorf("sent %+v, shown %q", f.sent, v.screen.message)
	}
}

// The cursor stays at its instance when rows change their places or go.
func TestTheCursorStays(t *testing.T) {
	f := &fake{status: shop(9)}
	v := shown(t, 80, 24, f)
	keys(v, "down", "down", "down")
	id := v.screen.services[0].selected().ID
	keys(v, "s", "s")
	f.status = shop(9)
	f.status.Instances = append([]controller.InstanceStatus{{ID: "a"}, {ID: "b"}}, f.status.Instances...)
	v.Update(v.poll(0)())
	if got := v.screen.services[0].selected().ID; got != id {
		t.Errorf("the cursor is at %s, was at %s", got, id)
	}
	f.status.Instances = f.status.Instances[:1]
	v.Update(v.poll(0)())
	if got := v.screen.services[0].selected(); got == nil || got.ID != "a" {
		t.Errorf("the cursor is at %+v", got)
	}
}

// The objective is the middle of a sparkline: no bar of a period within it is taller, no bar of a missed one is as low.
func TestSparkline(t *testing.T) {
	var samples []Sample
	for _, ms := range []float64{0, 18, 20, 40, 56, 75, 75.1, 94, 130, 1e9} {
		samples = append(samples, Sample{MS: &ms})
	}
	line, above := sparkline(append(samples, Sample{}), 75, 100)
	if got := string(line); got != "▁▁▂▃▃▄▅▆▇█ " {
		t.Errorf("got %q", got)
	}
	if got := fmt.Sprint(above); got != fmt.Sprint([]bool{false, false, false, false, false, false, true, true, true, true, false}) {
		t.Errorf("above: %s", got)
	}
	if line, _ := sparkline(samples, 75, 2); string(line) != "▇█" {
		t.Errorf("the newest two: %q", string(line))
	}
	if line, _ := sparkline(nil, 0, 10); len(line) != 0 {
		t.Errorf("nothing measured: %q", string(line))
	}
}

// Print writes all instances as plain text, and names the services that do not answer.
func TestPrint(t *testing.T) {
	var out strings.Builder
	o := options(&fake{status: shop(40)}, &fake{err: errors.New("down")})
	o.Services[0].Past = func(context.Context, *controller.Status) []Sample {
		return []Sample{{At: began.Add(-time.Minute), MS: new(30.0)}, {At: began, MS: new(1.0)}}
	}
	err := Print(t.Context(), o, &out, 80)
	if err == nil || err.Error() != "service video: down" {
		t.Errorf("error %v", err)
	}
	if n := strings.Count(out.String(), "web-"); n < 40 || strings.Contains(out.String(), "\x1b") || strings.Contains(out.String(), "quit") {
		t.Errorf("printed:\n%s", &out)
	}
	if !strings.Contains(out.String(), "p95 ▂▁ 92.1 of 75 ms; load 0.93 of 1.62; 40 machines, 1 coming") {
		t.Errorf("no response times of before:\n%s", &out)
	}
}

// A sample is of the objective's statistic, also if the objective is about the time to the first byte.
func TestSampleOfTheFirstByte(t *testing.T) {
	ms := 42.0
	snapshot := quell.Snapshot{At: began, Instances: []quell.Instance{{Observation: &quell.Observation{LatencyMS: &quell.Latency{P95: &ms}}}}}
	for _, slo := range []string{"p95 <= 200ms", "ttfb_p95 <= 200ms"} {
		if s := SampleOf(&snapshot, slo); s.MS == nil || *s.MS != ms {
			t.Errorf("%s: %+v", slo, s)
		}
	}
}
