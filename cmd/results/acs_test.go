package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/sensor"
)

func someACS() acsData {
	run := func(title string, unfairness float64) acsRun {
		return acsRun{Title: title, Unfairness: []float64{unfairness, unfairness + 0.2}, Mean: []float64{2, 3}, Worst: []float64{3, 4},
			Work: []float64{1, 0.98}, Rates: []float64{1, 0.9}, Worse: 1}
	}
	d := acsData{
		Simulated: []acsSize{{2, 2, []acsRun{run("kernel", 1.7), run("acs", 0.95)}, 0.7}},
		Pairs:     []acsPair{{"one task", []float64{1, 2}, []float64{1.5, 1.6}, []float64{0, 0.4}, []float64{0.3, 0.3}}},
	}
	for i, c := range acsTroubles {
		c.Gain, c.WindowS, c.Unfairness = 0.5, 2, 1+float64(i)/10
		d.Stability, d.Windows = append(d.Stability, c), append(d.Windows, c)
	}
	return d
}

// someACSLive has one mix, whose second tenant is slowed down twice as much as the first by the kernel, and as much with acs.
func someACSLive() *acsLiveData {
	mix := acsMix{{"numbers", 1}, {"sorting", 6}}
	l := &acsLiveData{Machine: somewhere.Machine, Alone: []acsLiveRun{
		{Title: "alone", Tenants: mix[:1], Rates: []float64{10}, Processors: []float64{1}},
		{Title: "alone", Tenants: mix[1:], Rates: []float64{20}, Processors: []float64{2}},
	}}
	size := acsLiveSize{Tenants: mix}
	for _, mode := range acsModes {
		for repeat := range mode.repeats {
			size.Runs = append(size.Runs, someACSRun(acsPlay{mix, mode, repeat}))
		}
	}
	l.Mixes = []acsLiveSize{size}
	return l
}

// someACSRun is a run of two tenants. The agent changes weights in two periods, and in a third one that is measured.
func someACSRun(p acsPlay) acsLiveRun {
	others := 0.05
	run := acsLiveRun{Title: p.mode.title, Repeat: p.repeat, Tenants: p.mix, SettleS: 12, MeasuredS: 15, Rates: []float64{10, 10},
		Steal: 0.002}
	if p.mode.groups {
		run.Processors, run.Others = []float64{1, 1}, &others
	}
	if len(p.mix) == 1 {
		run.Rates, run.Processors = run.Rates[1:], run.Processors[1:]
	}
	if strings.HasPrefix(p.mode.title, "acs") {
		run.Rates = []float64{20. / 3, 40. / 3}
	}
	if p.mode.policy != "" {
		for i, code := range []string{"acs_calm", "acs_uneven", "acs_solo", "acs_uneven", "acs_even", "acs_uneven"} {
			weight := 1 + float64(i)/10
			run.Moments = append(run.Moments, acsMoment{AtS: 2.5 * float64(i+1), Code: code,
				Limits: map[string]float64{acsGroup + "00": 2 - weight, acsGroup + "01": weight}})
		}
	}
	return run
}

// Every mix has programs that are known, and no two tenants alike.
func TestACSLiveMixes(t *testing.T) {
	sizes := map[int]int{}
	for _, mix := range acsLiveMixes {
		sizes[len(mix)]++
		seen := map[acsWorker]bool{}
		for _, w := range mix {
			if _, known := programOf(w.Program); !known || w.Workers < 1 || seen[w] {
				t.Errorf("%v: %s", mix, w)
			}
			seen[w] = true
		}
	}
	if sizes[2] < 4 || sizes[4] < 4 || sizes[8] < 4 {
		t.Errorf("mixes by the number of tenants: %v", sizes)
	}
}

func TestACSLiveSlowdowns(t *testing.T) {
	l := someACSLive()
	list, work := l.slowdowns(l.Mixes[0].Runs[0])
	if len(list) != 2 || list[0] != 1 || list[1] != 2 || work != 2 {
		t.Errorf("slowdowns %v, work %v; want 1 and 2, and 2", list, work)
	}
	again := l.Alone[0]
	again.Repeat, again.Rates = 1, []float64{30}
	l.Alone = append(l.Alone, again)
	if got := l.chance(l.Mixes[0].Tenants); got != 1 {
		t.Errorf("without repeats of all tenants alone, chance is %v, want 1", got)
	}
	second := l.Alone[1]
	second.Repeat = 1
	l.Alone = append(l.Alone, second)
	if got := l.chance(l.Mixes[0].Tenants); math.Abs(got-math.Sqrt(3)) > 1e-9 {
		t.Errorf("the mean of 10 and 30 may be off by the root of 3 either way; got %v", got)
	}
	if list, _ := l.slowdowns(l.Mixes[0].Runs[0]); list[0] != 2 || list[1] != 2 {
		t.Errorf("slowdowns %v; want 2 by the mean of the runs alone, and 2", list)
	}
}

// Pieces are chosen by the number of tenants, and by the number of the mix.
func TestACSLivePieces(t *testing.T) {
	for _, c := range []struct {
		name         string
		mixes, modes int // 0: there is no such piece
	}{
		{"live", len(acsLiveMixes), 2}, {"live-4", 4, 2}, {"live-8-2", 1, 2}, {"told", len(acsLiveMixes), 1}, {"told-4-1", 1, 1},
		{"beside", len(acsLiveMixes), 2}, {"beside-2-1", 1, 2},
		{"alone", len(acsLiveMixes), 0}, {"alone-8", 4, 0},
		{"live-3", 0, 0}, {"live-4-9", 0, 0}, {"live-", 0, 0}, {"none", 0, 0}, {"", 0, 0},
	} {
		if p, ok := acsPieceOf(c.name); ok != (c.mixes > 0) || ok && (len(p.mixes) != c.mixes || len(p.modes) != c.modes) {
			t.Errorf("%q: %v, %d mixes and %d modes", c.name, ok, len(p.mixes), len(p.modes))
		}
	}
	p, _ := acsPieceOf("live-4-2")
	if got := p.mixes[0].String(); got != "1 database, 2 memory streams, 4 Fourier transform, 6 numbers" {
		t.Errorf("the second mix of four is %s", got)
	}
}

// The piece live takes at most 37 minutes, and no mix of it more than five.
func TestACSLiveTakes(t *testing.T) {
	takes := func(names ...string) (sum time.Duration) {
		known := map[string]bool{}
		for _, name := range names {
			p, _ := acsPieceOf(name)
			for _, one := range p.plays() {
				if !known[one.file()] {
					sum += acsLiveTimes.takes(one)
				}
				known[one.file()] = true
			}
		}
		return sum
	}
	if sum := takes("live"); sum > 37*time.Minute {
		t.Errorf("the piece live takes %v", sum)
	}
	numbers := map[int]int{}
	for _, mix := range acsLiveMixes {
		numbers[len(mix)]++
		name := fmt.Sprintf("live-%d-%d", len(mix), numbers[len(mix)])
		if sum := takes(name); sum > 5*time.Minute {
			t.Errorf("%s takes %v", name, sum)
		}
	}
}

// A measurement that was interrupted continues where it stopped. Only mixes that were measured completely are on the page.
func TestACSLiveResumes(t *testing.T) {
	records := acsRecords(filepath.Join(t.TempDir(), "acs"))
	p, _ := acsPieceOf("live-2")
	list, played := p.plays(), map[string]int{}
	fill := func(until int) error {
		return records.fill(t.Context(), list, acsLiveTimes.takes, func(_ context.Context, p acsPlay) (acsLiveRun, error) {
			if until == 0 {
				return acsLiveRun{}, context.Canceled
			}
			until--
			played[p.file()]++
			return someACSRun(p), nil
		})
	}
	if l, err := records.live(); err != nil || len(l.Mixes) > 0 {
		t.Errorf("without records: %+v, %v", l, err)
	}
	if err := fill(9); !errors.Is(err, context.Canceled) { // the first mix, and one run of the second
		t.Fatal(err)
	}
	l, err := records.live()
	if err != nil || len(l.Mixes) != 1 || len(l.Alone) != 2 || len(l.Mixes[0].Runs) != 6 {
		t.Fatalf("after an interrupt: %+v, %v", l, err)
	}
	if err := fill(-1); err != nil {
		t.Fatal(err)
	}
	if again, _ := acsPieceOf("alone-2"); len(again.plays()) != 3*8 {
		t.Errorf("%d runs alone, want three of each of eight tenants", len(again.plays()))
	}
	for name, times := range played {
		if times != 1 {
			t.Errorf("%s was played %d times", name, times)
		}
	}
	d := acsData{}
	if err := d.collect(records); err != nil || len(d.Live.Mixes) != 4 {
		t.Errorf("%d mixes, %v", len(d.Live.Mixes), err)
	}
	if err := os.WriteFile(filepath.Join(string(records), list[0].file()), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := fill(-1); err == nil || !strings.Contains(err.Error(), list[0].file()) {
		t.Errorf("a record that cannot be read: %v", err)
	}
}

// A run that other programs disturbed is played again, three times at most, and never gets a record.
func TestACSLiveDisturbed(t *testing.T) {
	for _, c := range []struct {
		others, steal float64
		disturbed     bool
	}{{0.05, 0.002, false}, {0.5, 0, true}, {0, 0.2, true}} {
		run := acsLiveRun{Others: &c.others, Steal: c.steal}
		if err := run.disturbed(); errors.Is(err, errDisturbed) != c.disturbed {
			t.Errorf("%+v: %v", c, err)
		}
	}
	p, _ := acsPieceOf("live-2-1")
	list := p.plays()[:1]
	for _, c := range []struct{ disturbed, played int }{{2, 3}, {9, 3}} {
		records, played := acsRecords(t.TempDir()), 0
		err := records.fill(t.Context(), list, acsLiveTimes.takes, func(_ context.Context, p acsPlay) (acsLiveRun, error) {
			if played++; played <= c.disturbed {
				return acsLiveRun{}, fmt.Errorf("%w: a test", errDisturbed)
			}
			return someACSRun(p), nil
		})
		_, recorded, _ := records.read(list[0])
		if fails := c.disturbed >= c.played; errors.Is(err, errDisturbed) != fails || recorded == fails || played != c.played {
			t.Errorf("disturbed %d times: played %d times, recorded %v, %v", c.disturbed, played, recorded, err)
		}
	}
}

// What the page says of how acs settles.
func TestACSLiveSettles(t *testing.T) {
	run := someACSRun(acsPlay{mix: acsLiveMixes[0], mode: acsModes[1]})
	if n := run.settled(); n != 4 {
		t.Errorf("settled after %d periods; want 4, in which a weight goes from 0.6 to 0.5", n)
	}
	if got := run.moves(); math.Abs(got-0.1/0.6) > 1e-9 {
		t.Errorf("a weight moves by %v, want from 0.6 to 0.5", got)
	}
	for i := range run.Moments {
		run.Moments[i].Limits = run.Moments[0].Limits
		run.Moments[i].Caps = map[string]float64{acsGroup + "00": 0.5}
	}
	if n := run.settled(); n != 1 {
		t.Errorf("nothing moves, but it settled after %d periods; want 1", n)
	}
	run.Moments[2].Caps = nil // in a solo run
	run.Moments[5].Caps = map[string]float64{acsGroup + "00": 0.4}
	if n := run.settled(); n != 4 || math.Abs(run.moves()-0.2) > 1e-9 {
		t.Errorf("settled after %d periods, moves by %v; want a cap to move by 0.2 in the fourth", n, run.moves())
	}
	run.Moments[5].Caps = nil
	if got := run.moves(); got != 1 {
		t.Errorf("a cap that goes is a change by %v, want 1", got)
	}
	if n := (acsLiveRun{}).settled(); n != 0 {
		t.Errorf("nothing to do took %d periods", n)
	}
}

// Real programs are measured, an interrupt stops everything, and nothing is left in either case.
func TestACSLiveOnThisMachine(t *testing.T) {
	need.Root(t)
	mix := acsMix{{"numbers", 1}, {"bursts of numbers", 2}}
	need.Program(t, "awk")
	program := filepath.Join(t.TempDir(), "quell")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/quellhq/quell/cmd/quell").CombinedOutput(); err != nil {
		t.Fatalf("building quell: %v\n%s", err, out)
	}
	times := acsTimes{start: time.Second, settle: 4 * time.Second, measured: 2 * time.Second, alone: 2 * time.Second}
	rig, err := newACSRig(program, []acsMix{mix}, times)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []acsMode{acsModes[0], acsModes[2], acsModes[3]} {
		run, err := rig.play(t.Context(), acsPlay{mix: mix, mode: mode})
		if err != nil && !errors.Is(err, errDisturbed) {
			t.Fatalf("%s: %v", mode.title, err)
		}
		if len(run.Rates) != 2 || mode.groups != (len(run.Processors) == 2) || (mode.policy != "") != (len(run.Moments) > 0) {
			t.Errorf("%s: %+v", mode.title, run)
		}
		checkNothingLeft(t, rig)
	}
	for _, mode := range []acsMode{acsModes[1], acsModes[3]} {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		if _, err := rig.play(ctx, acsPlay{mix: mix, mode: mode}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, interrupted: %v", mode.title, err)
		}
		cancel()
		checkNothingLeft(t, rig)
	}
	if err := rig.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(rig.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left", rig.dir)
	}
}

// checkNothingLeft checks that no group of a tenant and no process of the rig is there.
func checkNothingLeft(t *testing.T, rig *acsRig) {
	t.Helper()
	groups, err := sensor.NewGroups(os.DirFS("/"), []sensor.Group{{Path: acsGroups + "*"}})
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := groups.Sample(time.Now()); len(s.Instances) > 0 {
		t.Errorf("%d groups are left", len(s.Instances))
	}
	folders, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range folders {
		if at, err := os.Readlink(link); err == nil && strings.HasPrefix(at, rig.dir) {
			t.Errorf("%s works in %s", filepath.Dir(link), at)
		}
	}
}

// A rate is that of the units between the first and the last one.
func TestUnitCount(t *testing.T) {
	u, at := &unitCount{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	u.add(at) // before it begins
	u.begin()
	for i := range 21 {
		u.add(at.Add(time.Duration(i) * 500 * time.Millisecond))
	}
	if rate, err := u.rate(); err != nil || rate != 2 {
		t.Errorf("rate %v, %v; want 2", rate, err)
	}
	few := &unitCount{}
	few.begin()
	few.follow(bytes.NewReader([]byte("..")), "", "")
	if rate, err := few.rate(); err == nil {
		t.Errorf("two units have a rate of %v", rate)
	}
	failed := &unitCount{}
	failed.begin()
	failed.follow(bytes.NewReader([]byte(".....!.....")), "", "")
	if _, err := failed.rate(); err == nil || !strings.Contains(err.Error(), "failed") {
		t.Errorf("a unit that failed: %v", err)
	}
}

// Predictions are compared with the rate of work, over the rate alone that follows from the reports.
func TestACSModelRun(t *testing.T) {
	moment := func(at time.Duration, from quell.SlowdownFrom, slowdown, rate float64) acsModelMoment {
		return acsModelMoment{at, quell.Tenant{Slowdown: &slowdown, From: from, Correlation: new(0.9)}, rate}
	}
	run, err := newACSModelRun([]acsModelMoment{
		moment(5*time.Second, quell.FromProgress, 9, 9), // too early to tell the rate alone
		moment(30*time.Second, quell.FromProgress, 2, 50),
		moment(41*time.Second, quell.FromModel, 4, 20), // truly 5
		moment(42*time.Second, quell.FromScheduling, 3, 25),
		moment(43*time.Second, quell.FromModel, 4, 0), // it did nothing that could be counted
	})
	off, kept := run.Median(run.Off), run.Median(run.Kept)
	if err != nil || run.Told != 2 || run.Periods != 2 || run.Between != [2]float64{4, 5} || off != "20%" || kept != "60%" {
		t.Errorf("%+v, %v", run, err)
	}
	if _, err := newACSModelRun(nil); err == nil {
		t.Error("no decision, and no error")
	}
}
