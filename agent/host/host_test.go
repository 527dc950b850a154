package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/sensor"
)

// machine is a Reader whose groups wait as long as the test says for each sample. The first sample only sets the starting point.
type machine struct {
	samples    int
	subsamples int
	waits      func(sample int) map[string]float64 // seconds of waiting per second, by group; each group also runs for half a second
	fails      func(sample int) []sensor.Failure
}

func (m *machine) Sample(now time.Time) (quell.Snapshot, []sensor.Failure) {
	m.samples++
	s := quell.Snapshot{At: now.UTC()}
	if m.samples > 1 {
		s.Machine = &quell.Observation{At: now.UTC(), WindowS: 1, CPU: &quell.CPUTime{User: 1}, Sched: &quell.Sched{Cores: 1, RunS: 1}}
		for id, wait := range m.waits(m.samples - 1) {
			run := 0.5
			s.Instances = append(s.Instances, quell.Instance{ID: id, State: quell.Ready, Observation: &quell.Observation{
				At: now.UTC(), WindowS: 1, Sched: &quell.Sched{RunS: run, WaitS: &wait, TaskRunS: &run},
			}})
		}
	}
	if m.fails == nil {
		return s, nil
	}
	return s, m.fails(m.samples)
}

func (m *machine) Subsample(time.Time) { m.subsamples++ }

func waiting(seconds float64) func(int) map[string]float64 {
	return func(int) map[string]float64 { return map[string]float64{"web": seconds} }
}

func open(t *testing.T, dir string) *Home {
	t.Helper()
	h, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// reports is a policy for control groups that needs no settings, so that every test can run it.
var reports = quell.Policy{Name: table.All.NamesOf(policy.HostScope)[0]}

// homeless is a home without a socket, for tests with synthetic time.
func homeless(t *testing.T) *Home {
	dir := t.TempDir()
	return &Home{dir: dir, journal: journalOf(dir)}
}

// run runs a loop for the given time with synthetic time.
func run(t *testing.T, o Options, duration time.Duration) {
	t.Helper()
	o.Host, o.Policy = "h1", reports
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	time.Sleep(duration)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func entries(t *testing.T, path string) (list []bus.Entry) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var e bus.Entry
		if err := strictjson.Decode(line, &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, e)
	}
	return list
}

// The loop decides each period, writes changes to the journal, and shows its state on its socket and in metrics.
func TestLoopDecidesAndTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home, registry := homeless(t), prometheus.NewRegistry()
		m := &machine{waits: func(sample int) map[string]float64 {
			if sample < 4 {
				return map[string]float64{"web": 0}
			}
			return map[string]float64{"web": 0.5}
		}}
		run(t, Options{Period: time.Second, Reader: m, Home: home, Metrics: registry}, 20500*time.Millisecond)
		s := home.Status()
		if s.Decisions != 20 || s.Host != "h1" || s.Plan == nil || *s.Plan.Waits["web"].Neighbours < .1 || s.ReasonOf("web") == "" ||
			s.Unread != nil || s.Problems != nil {
			t.Errorf("status %+v", s)
		}
		if m.subsamples < 190 || m.subsamples > 210 {
			t.Errorf("%d subsamples in 20 periods, want ten in each", m.subsamples)
		}
		var kinds []string
		for _, e := range entries(t, home.journal.path) {
			kinds = append(kinds, string(e.Kind))
			if e.Kind == bus.PlanEntry && (!e.Applied || e.Plan.Host != "h1") {
				t.Errorf("entry %+v", e)
			}
		}
		if got := strings.Join(kinds, " "); got != "event plan" {
			t.Errorf("the journal holds %q, want the start and the one plan that named something new", got)
		}
		if got := testutil.CollectAndCount(registry, "quell_agent_group_waits"); got != 4 {
			t.Errorf("%d causes in the metrics, want 4", got)
		}
		var b bytes.Buffer
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			b.WriteString(f.String())
		}
		if !strings.Contains(b.String(), `quell_agent_policy_decisions_total`) ||
			!strings.Contains(b.String(), `quell_agent_policy_failures_total`) {
			t.Error(b.String())
		}
	})
}

// If a loop was killed, the next loop continues with the stored memory. If the stored memory is invalid, the next loop reports that and
// starts with an empty one.
func TestLoopRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := homeless(t)
		run(t, Options{Period: time.Second, Reader: &machine{waits: waiting(0.5)}, Home: home}, 30500*time.Millisecond)
		before := *home.Status().Plan.Waits["web"].Share
		run(t, Options{Period: time.Second, Reader: &machine{waits: waiting(0)}, Home: home}, 1500*time.Millisecond)
		if after := *home.Status().Plan.Waits["web"].Share; after > before || after < 0.9*before {
			t.Errorf("waited %v before and %v after", before, after)
		}
		if err := os.WriteFile(home.memory(), []byte("{\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, Options{Period: time.Second, Reader: &machine{waits: waiting(0)}, Home: home}, 3500*time.Millisecond)
		if after := *home.Status().Plan.Waits["web"].Share; after != 0 {
			t.Errorf("waited %v after the memory was lost", after)
		}
		said := false
		for _, e := range entries(t, home.journal.path) {
			said = said || strings.Contains(e.Text, "is begun anew")
		}
		if !said {
			t.Error("the journal does not tell of the lost memory")
		}
	})
}

// Failures to read or write are reported and do not end the loop.
func TestLoopSurvivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home, registry := homeless(t), prometheus.NewRegistry()
		var log bytes.Buffer
		home.journal.path = filepath.Join(home.dir, "missing", "journal.jsonl")
		if err := os.Mkdir(home.memory(), 0o700); err != nil { // a folder cannot be replaced by a file
			t.Fatal(err)
		}
		m := &machine{waits: waiting(0.5), fails: func(sample int) []sensor.Failure {
			if sample == 2 || sample == 3 {
				return []sensor.Failure{{Sensor: "group db", Err: errors.New("it is gone")}}
			}
			return nil
		}}
		run(t, Options{Period: time.Second, Reader: m, Home: home, Metrics: registry, Logger: slog.New(slog.NewTextHandler(&log, nil))},
			5500*time.Millisecond)
		s := home.Status()
		if s.Decisions != 5 || len(s.Problems) != 2 || s.Plan.Waits["web"].Share == nil {
			t.Errorf("status %+v", s)
		}
		for _, line := range []string{`msg="reading group db failed"`, `msg="reading group db works again" failures=2`,
			`msg="the host policy's journal failed"`, `msg="the host policy's memory failed"`} {
			if strings.Count(log.String(), line) != 1 {
				t.Errorf("%s is not logged once:\n%s", line, log.String())
			}
		}
		if err := os.Mkdir(filepath.Dir(home.journal.path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(home.memory()); err != nil {
			t.Fatal(err)
		}
		run(t, Options{Period: time.Second, Reader: m, Home: home}, 2500*time.Millisecond)
		if s := home.Status(); s.Problems != nil || len(entries(t, home.journal.path)) != 2 {
			t.Errorf("afterwards %+v", s)
		}
	})
}

func TestRefusesWhatNobodyCarriesOut(t *testing.T) {
	home := homeless(t)
	l, err := New(Options{Host: "h", Period: time.Second, Policy: reports, Reader: &machine{}, Home: home})
	if err != nil {
		t.Fatal(err)
	}
	waits := map[string]quell.Waits{"web": {}}
	if got := l.refused(&quell.Plan{Waits: waits, Reasons: []quell.Reason{{Code: "x"}}}); len(got) != 0 {
		t.Errorf("a report asks for nothing, got %v", got)
	}
	got := l.refused(&quell.Plan{Limits: []quell.Limit{{Instance: "web", Resource: quell.CPU}}, Weights: map[string]float64{"web": 1},
		Replace: []string{"web"}, Factor: map[string]quell.Factor{"web": {}}})
	if words(got) != "replace, weights, limits, factor" {
		t.Errorf("got %v", got)
	}
	plan := quell.Plan{At: time.Now(), Host: "h", Limits: []quell.Limit{{Instance: "web", Resource: quell.CPU}}}
	l.record(plan, l.refused(&plan), nil)
	e := entries(t, home.journal.path)
	if len(e) != 1 || e[0].Applied || e[0].Why != "failed: nothing in the agent carries out limits" {
		t.Errorf("the journal says %+v", e)
	}
}

// refuser is a Limiter that refuses the limits of one group.
type refuser struct {
	group   string
	applied [][]quell.Limit
}

func (r *refuser) Apply(limits []quell.Limit) map[string]error {
	r.applied = append(r.applied, limits)
	failed := map[string]error{}
	for _, l := range limits {
		if l.Instance == r.group {
			failed[l.Instance] = errors.New("somebody else limits it")
		}
	}
	return failed
}

// A plan's limits are applied in each period. What is not in force is told, logged when it begins and when it ends, and in the journal.
func TestLoopAppliesLimits(t *testing.T) {
	var log bytes.Buffer
	limiter, home := &refuser{group: "db"}, homeless(t)
	l, err := New(Options{Host: "h", Period: time.Second, Policy: reports, Reader: &machine{}, Home: home, Limiter: limiter,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	limits := []quell.Limit{{Instance: "db", Resource: quell.CPU, Value: 1}, {Instance: "web", Resource: quell.CPU, Value: 1}}
	if refused := l.refused(&quell.Plan{Limits: limits}); len(refused) > 0 {
		t.Errorf("refused %v", refused)
	}
	plan := quell.Plan{At: time.Now(), Host: "h", Limits: limits, Reasons: []quell.Reason{{Code: "divided"}}}
	for range 2 { // the second plan is not written: it says nothing new
		failed := l.limit(limits)
		if len(failed) != 1 || failed["db"] != "somebody else limits it" {
			t.Errorf("failed %v", failed)
		}
		l.record(plan, nil, failed)
	}
	l.record(plan, nil, nil)
	if e := entries(t, home.journal.path); len(e) != 2 || e[0].Applied || !strings.Contains(e[0].Why, "the limits of db are not in force") ||
		!e[1].Applied || e[1].Why != "" {
		t.Errorf("the journal says %+v", e)
	}
	if failed := l.limit(nil); failed != nil || len(limiter.applied) != 3 || len(limiter.applied[2]) != 0 {
		t.Errorf("failed %v after %v", failed, limiter.applied)
	}
	for _, line := range []string{`msg="limiting group db failed"`, `msg="limiting group db works again" failures=2`} {
		if strings.Count(log.String(), line) != 1 {
			t.Errorf("%s is not logged once:\n%s", line, log.String())
		}
	}
}

func TestNewChecksItsOptions(t *testing.T) {
	good := Options{Host: "h", Period: time.Second, Policy: reports, Reader: &machine{}, Home: homeless(t)}
	for name, change := range map[string]func(*Options){
		"no host":   func(o *Options) { o.Host = "" },
		"no period": func(o *Options) { o.Period = 0 },
		"no reader": func(o *Options) { o.Reader = nil },
		"no home":   func(o *Options) { o.Home = nil },
		"a service's policy": func(o *Options) {
			o.Policy.Name = table.All.Default()
		},
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// An agent that is stopped, as by SIGSTOP, takes connections and answers none.
func TestAskingAStoppedAgent(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", socketIn(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Ask(ctx, dir); err == nil || !strings.Contains(err.Error(), "it is stopped") {
		t.Errorf("%v", err)
	}
}

// Only one agent may use the folder. If a killed agent left its socket, the next agent replaces it.
func TestHomeIsForOneAgent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "agent")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(socketIn(dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := open(t, dir)
	h.shown.Store(&Status{Host: "h1", Decisions: 3})
	answer, err := Ask(t.Context(), dir)
	var s Status
	if err != nil || json.Unmarshal(answer, &s) != nil || s.Host != "h1" || s.Decisions != 3 {
		t.Errorf("the socket says %s, %v", answer, err)
	}
	var user *quell.UserError
	if _, err := Open(dir, slog.New(slog.DiscardHandler)); !errors.As(err, &user) || !strings.Contains(err.Error(), "a folder of its own") {
		t.Errorf("a second agent: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Ask(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "start quell agent with agent.policy") {
		t.Errorf("nobody is there, and asking said %v", err)
	}
	open(t, dir)
	if _, err := Open(filepath.Join(dir, strings.Repeat("x", longestSocket)), slog.New(slog.DiscardHandler)); !errors.As(err, &user) {
		t.Errorf("a long path: %v", err)
	}
}

func TestJournalIsBounded(t *testing.T) {
	j := &journal{path: filepath.Join(t.TempDir(), "journal.jsonl"), most: 1000}
	e := bus.Entry{At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Kind: bus.EventEntry, Text: strings.Repeat("x", 100)}
	for range 50 {
		if err := j.append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{j.path, j.aside()} {
		info, err := os.Stat(path)
		if err != nil || info.Size() > j.most || info.Size() == 0 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if n := len(entries(t, j.path)) + len(entries(t, j.aside())); n < 6 {
		t.Errorf("%d entries are left", n)
	}
}

// An incomplete line that a killed agent left is removed before the next entry.
func TestJournalAfterAKill(t *testing.T) {
	j := &journal{path: filepath.Join(t.TempDir(), "journal.jsonl"), most: 1 << 20}
	e := bus.Entry{At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Kind: bus.EventEntry, Text: "a"}
	for _, torn := range []string{"", `{"at":"2026`, strings.Repeat("x", 100_000)} {
		if err := errors.Join(j.append(e), j.close()); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(j.path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(torn)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(j.append(e), j.close()); err != nil {
		t.Fatal(err)
	}
	if got := len(entries(t, j.path)); got != 4 {
		t.Errorf("%d entries, want 4", got)
	}
	if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// A journal is read from both of its files, from a given time on, even while the agent writes.
func TestReadJournal(t *testing.T) {
	dir := t.TempDir()
	var got []string
	read := func(since time.Time) error {
		got = nil
		return ReadJournal(dir, since, func(e bus.Entry) error {
			got = append(got, e.Text)
			return nil
		})
	}
	if err := read(time.Time{}); !errors.Is(err, quell.ErrNoData) || !strings.Contains(err.Error(), "start quell agent") {
		t.Errorf("without a journal: %v", err)
	}
	j := journalOf(dir)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, text := range []string{"a", "b", "c", "d"} {
		if text == "c" {
			j.most = 1 // the next entry begins a new file
		}
		if err := j.append(bus.Entry{At: start.Add(time.Duration(i) * time.Second), Kind: bus.EventEntry, Text: text}); err != nil {
			t.Fatal(err)
		}
		if text == "c" {
			j.most = journalBytes
		}
	}
	if err := read(time.Time{}); err != nil || strings.Join(got, "") != "abcd" {
		t.Errorf("read %v, %v", got, err)
	}
	if err := read(start.Add(2 * time.Second)); err != nil || strings.Join(got, "") != "cd" {
		t.Errorf("from the third on: %v, %v", got, err)
	}
	if _, err := j.file.WriteAt([]byte("{}\n{\"at\":\"2026"), j.size); err != nil {
		t.Fatal(err)
	}
	if err := read(time.Time{}); err == nil || !strings.Contains(err.Error(), "1 damaged lines") || strings.Join(got, "") != "abcd" {
		t.Errorf("with a damaged line and half of one: %v, %v", got, err)
	}
	stop := errors.New("stop")
	if err := ReadJournal(dir, time.Time{}, func(bus.Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a reader that stops: %v", err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
}

// On a full disk the new entry is lost, earlier ones stay, and no incomplete line is left.
func TestJournalOnAFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this machine has no /dev/full")
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{path: filepath.Join(t.TempDir(), "journal.jsonl"), most: 1 << 20, file: full}
	e := bus.Entry{At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Kind: bus.EventEntry, Text: "a"}
	if err := j.append(e); err == nil {
		t.Fatal("a full disk took an entry")
	}
	if err := errors.Join(j.append(e), j.close()); err != nil || len(entries(t, j.path)) != 1 {
		t.Errorf("once there is room again: %v", err)
	}
}
