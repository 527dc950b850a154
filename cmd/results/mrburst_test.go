package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/lab/testbed/kernel"
)

func someMRburst() *mrburstFigures {
	return &mrburstFigures{
		Instances: 10, Seeds: 2, Use: 7, Baseline: 4, Hours: 18, Credits: 2880,
		Runs:      []mrburstRun{{Title: "PRIMA", Held: []float64{15.5, 15.7}, Missed: []float64{2.2, 2.4}, Pooled: 16}},
		Price:     0.05,
		Bills:     []mrburstBill{{Title: "PRIMA", Dollars: 0.31, Held: 1, Least: 0.3}},
		Forecasts: []mrburstForecast{{AtH: 1, SaidH: 10.1, SoonestH: 9.6, LatestH: 10.8, TrueH: 10}},
	}
}

// someBurstRun is a run in which every download takes so long, until the credits are spent; afterwards the objective is missed.
func someBurstRun(piece string, ms, depleted float64, limits ...burstLimit) burstRun {
	r := burstRun{Piece: piece, Seed: 1, LastedS: depleted + 20, DepletedS: &depleted, Others: 0.05, Operations: 150, Downloads: 900}
	for at := 0.0; at < r.LastedS; at += 10 {
		own := ms
		if at >= depleted {
			own = 9000
		}
		users := burstFiles.usersAt(time.Duration(at) * time.Second)
		r.Windows = append(r.Windows, burstWindow{AtS: at, Users: users, N: 100, P95MS: &own, Mbits: 90, Limited: limits})
	}
	return r
}

func someBurst(set burstSettings) *burstLiveData {
	network := burstLimit{quell.Network, 45e6}
	l := &burstLiveData{Settings: set, Off: []burstOff{{Seed: 1, N: 12, Mean: 0.04, Bias: 0.01}}}
	l.Runs = []burstRun{
		{Piece: "profile", Seed: 1, Profile: "profile.jsonl: 60 windows\n\nLOAD  NO LIMIT\n"},
		someBurstRun("default", 1100, 41), someBurstRun("mrburst", 2100, 190, network), someBurstRun("search-45", 2300, 100),
		someBurstRun("search-30", 2800, 150), someBurstRun("constant", 2100, 150, network),
	}
	constant := &l.Runs[5]
	for at := 1.0; at < 150; at++ {
		constant.Forecasts = append(constant.Forecasts, burstForecast{at, 155})
	}
	replaced := someBurstRun("replace-mrburst", 2100, 300, network)
	replaced.Replaced, replaced.DepletedS = []float64{150, 290}, nil
	l.Runs = append(l.Runs, replaced)
	for i := range l.Runs {
		l.Runs[i].Machine = somewhere.Machine
	}
	return l
}

// A page without measurements says so.
func TestMRburstPageBeforeMeasuring(t *testing.T) {
	text, err := fill("mrburst", newMRburstPage(burstData{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Not measured yet: `go run ./cmd/results mrburst:live`", "Not measured yet: `go run ./cmd/results mrburst:store`",
		"Not simulated yet"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// Pieces are chosen by name, and each lasts for at most five minutes.
func TestBurstPieces(t *testing.T) {
	for _, e := range burstExperiments() {
		for seed, prefix := range map[int]string{1: e.part, 2: e.part + "-2", 3: e.part + "-3"} {
			if w, ok := burstWorkOf(prefix); !ok || w.again || len(w.pieces) != len(e.set.pieces()) || w.part != e.part || w.seed != seed {
				t.Errorf("%s: %+v", prefix, w)
			}
			for _, p := range e.set.pieces() {
				name := prefix + "-" + p.name
				if w, ok := burstWorkOf(name); !ok || !w.again || len(w.pieces) != 1 || w.pieces[0] != p || w.part != e.part || w.seed != seed {
					t.Errorf("%s: %+v", name, w)
				}
			}
		}
		if most := e.set.Longest + burstAfter; most > 5*time.Minute {
			t.Errorf("a piece of %s takes %v", e.part, most)
		}
	}
	for _, bad := range []string{"", "lives", "live-", "live-none", "default", "store-none", "live-1", "live-4-default", "live-2-"} {
		if w, ok := burstWorkOf(bad); ok {
			t.Errorf("%q is %+v", bad, w)
		}
	}
	for at, want := range map[time.Duration]int{-time.Second: 50, 0: 50, 29 * time.Second: 50, 30 * time.Second: 20, 180 * time.Second: 50} {
		if got := burstFiles.usersAt(at); got != want {
			t.Errorf("%d users at %v, want %d", got, at, want)
		}
	}
}

// Each seed has the same numbers of users, in an order of its own that stays.
func TestBurstSeeds(t *testing.T) {
	seen := map[string]bool{}
	for seed := 1; seed <= burstSeeds; seed++ {
		s := burstFiles.seeded(seed)
		if order := fmt.Sprint(s.Users); seen[order] || order != fmt.Sprint(burstFiles.seeded(seed).Users) {
			t.Errorf("seed %d: %v again, or not the same twice", seed, s.Users)
		} else {
			seen[order] = true
		}
		if !slices.Equal(slices.Sorted(slices.Values(s.Users)), slices.Sorted(slices.Values(burstFiles.Users))) {
			t.Errorf("seed %d: %v", seed, s.Users)
		}
	}
	if !slices.Equal(burstFiles.seeded(1).Users, []int{50, 20, 35, 10, 45, 25}) {
		t.Error("the first seed has another order than the settings")
	}
}

// Records of one seed replace the stored runs of that seed and piece only. Stored runs of other settings go.
func TestBurstCollect(t *testing.T) {
	e := burstExperiment{"live", burstFiles, burstRecords(t.TempDir())}
	if err := os.MkdirAll(string(e.records.of(2)), 0o755); err != nil {
		t.Fatal(err)
	}
	profile := burstLines(t, someBurstProfile())
	if err := os.WriteFile(e.records.of(2).profile(), profile, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []burstRun{someBurstRun("default", 1100, 51), someBurstRun("mrburst", 2100, 150)} {
		if err := writeJSON(e.records.of(2).file(r.Piece), r); err != nil {
			t.Fatal(err)
		}
	}
	old := someBurst(burstFiles)
	stale := someBurstRun("default", 1100, 99)
	stale.Seed, stale.Machine = 2, "another machine"
	old.Runs = append(old.Runs, stale)
	got, err := e.collect(old)
	if err != nil {
		t.Fatal(err)
	}
	f := newBurstFigures("live", got)
	if r := f.Rows[0]; r.Seeds != 2 || r.Depleted != "41 s, 51 s" || r.Times != "1.00, 1.00" {
		t.Errorf("default: %+v", r)
	}
	if r := f.Rows[1]; r.Seeds != 2 || r.Depleted != "190 s, 150 s" || r.Times != "4.63, 2.94" || r.Windows != 19+15 {
		t.Errorf("mrburst: %+v", r)
	}
	if len(got.Off) != 2 || f.Off.N != got.Off[0].N+got.Off[1].N {
		t.Errorf("errors of the profiles: %+v, together %+v", got.Off, f.Off)
	}
	if got := got.machines(); got != somewhere.Machine+" (seed 1), and "+here().Machine+" (seed 2)" {
		t.Errorf("measured on %s", got)
	}
	if w := e.profiled(3); w != e.records.of(2) {
		t.Errorf("seed 3 without a profile of its own uses that of %s", w)
	}
	other := someBurst(burstObjects)
	if got, err = e.collect(other); err != nil || len(got.runs("default")) != 1 {
		t.Errorf("runs of other settings are kept: %v, %v", got, err)
	}
}

func burstLines(t *testing.T, rows []credit.ProfileRow) []byte {
	t.Helper()
	var lines bytes.Buffer
	for _, row := range rows {
		if err := json.NewEncoder(&lines).Encode(row); err != nil {
			t.Fatal(err)
		}
	}
	return lines.Bytes()
}

// What the page concludes from runs.
func TestBurstFigures(t *testing.T) {
	l := someBurst(burstFiles)
	f := newBurstFigures("live", l)
	row := f.Rows[1]
	if row.Title != "MRburst" || row.Depleted != "190 s" || row.Times != "4.63" || row.Windows != 19 || row.Kept != "100%" {
		t.Errorf("mrburst: %+v", row)
	}
	if !strings.Contains(f.Best, "45 Mbit/s all the time: 100 s (mean, seeds: 1)") || !strings.Contains(f.Best, "1.90 times") {
		t.Errorf("the best constant limit: %s", f.Best)
	}
	if strings.Contains(f.Best, "not tried") {
		t.Errorf("the next lower limit of the search was played: %s", f.Best)
	}
	if len(f.Forecasts) != 7 || math.Abs(f.Forecasts[0].Error()-5.0/150) > 1e-9 || f.Forecasts[0].AtS != 10 {
		t.Errorf("forecasts %+v", f.Forecasts)
	}
	if r := f.Replacing[0]; r.Replaced != "2" || r.Windows != 32 {
		t.Errorf("replacements: %+v", r)
	}
	if !strings.Contains(f.Missing, "live-cpu") || strings.Contains(f.Missing, "live-default") {
		t.Errorf("missing: %s", f.Missing)
	}
	profile, err := credit.NewProfile(someBurstProfile())
	if err != nil {
		t.Fatal(err)
	}
	// At 45 Mbit/s, users wait for users * 2.1 Mbit / 45 Mbit/s; the runs say 2.1 s whatever the number of users.
	if off := l.off(profile, 1); off == nil || off.N < 20 || off.Mean < 0.1 {
		t.Errorf("off by %+v", off)
	}
	for i, r := range l.Runs {
		for k, w := range r.Windows {
			link := 45e6
			switch r.Piece {
			case "default":
				link = burstFiles.Link
			case "search-30":
				link = 30e6
			}
			*l.Runs[i].Windows[k].P95MS = 1000 * float64(w.Users) * 8 * float64(burstFiles.File) / link
		}
	}
	if off := l.off(profile, 1); off == nil || off.N < 20 || off.Mean > 0.02 {
		t.Errorf("off by %+v where all is as profiled", off)
	}
}

// someBurstProfile is what a profiler measures if nothing but the link takes time.
func someBurstProfile() (rows []credit.ProfileRow) {
	add := func(r quell.Resource, limit float64, users int) {
		link := burstFiles.Link
		if r == quell.Network {
			link = limit
		}
		for range 3 {
			rows = append(rows, credit.ProfileRow{Limited: r, Limit: limit, Load: float64(users),
				LatencyMS: 1000 * float64(users) * 8 * float64(burstFiles.File) / link,
				Use:       map[quell.Resource]float64{quell.Network: link, quell.CPU: 0.1}})
		}
	}
	for _, limit := range []float64{12e6, 25e6, 50e6, 95e6} {
		add(quell.Network, limit, 50)
	}
	for _, users := range []int{10, 20, 35, 50} {
		add("", 0, users)
		add(quell.Network, 50e6, users)
	}
	return rows
}

// A short experiment with a real file server, agent and credits: the default runs out of credits, mrburst limits the network and lasts
// longer, and an instance is replaced without a failed download. Nothing is left.
func TestBurstOnThisMachine(t *testing.T) {
	need.Root(t)
	need.Program(t, "vsftpd")
	program := filepath.Join(t.TempDir(), "quell")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/quellhq/quell/cmd/quell").CombinedOutput(); err != nil {
		t.Fatalf("building quell: %v\n%s", err, out)
	}
	set := burstFiles
	set.Credits, set.Users, set.Each, set.Window, set.Longest = 5*88, []int{10, 5}, 5*time.Second, 2*time.Second, 14*time.Second
	records := burstRecords(t.TempDir())
	if err := os.WriteFile(records.profile(), burstLines(t, someBurstProfile()), 0o600); err != nil {
		t.Fatal(err)
	}
	rig, err := newBurstRig(program, burstExperiment{"live", set, records}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rig.close(); err != nil {
			t.Error(err)
		}
		if left, err := kernel.Clean(rig.prefix); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}()
	free, err := rig.playPiece(t.Context(), burstPiece{name: "default", mode: burstDefault})
	if err != nil {
		t.Fatal(err)
	}
	if free.DepletedS == nil || free.Downloads == 0 || len(free.Windows) < 3 {
		t.Errorf("default: %+v", free)
	}
	limited, err := rig.playPiece(t.Context(), burstPiece{name: "mrburst", mode: burstAll})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(limited.Windows); n < 3 {
		t.Errorf("mrburst: %+v", limited)
	} else if last := limited.Windows[n-1].Limited; len(last) == 0 || last[0].Resource != quell.Network {
		t.Errorf("mrburst limits %+v", last)
	}
	if limited.DepletedS != nil && free.DepletedS != nil && *limited.DepletedS < *free.DepletedS {
		t.Errorf("credits last for %v s, without a limit for %v s", *limited.DepletedS, *free.DepletedS)
	}
	rig.set.Objective = time.Nanosecond // each window misses it
	replaced, err := rig.playPiece(t.Context(), burstPiece{name: "replace-default", mode: burstDefault, replaces: true})
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, w := range replaced.Windows {
		failed += w.Failed
	}
	if len(replaced.Replaced) < 2 || failed > 0 {
		t.Errorf("replaced at %v, %d downloads failed", replaced.Replaced, failed)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := rig.playPiece(ctx, burstPiece{name: "cpu", mode: burstCPU}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("interrupted: %v", err)
	}
}

// As long as limits just below the best one were not tried, the page says that the factor is an upper bound.
func TestBurstLimitsToTry(t *testing.T) {
	l := someBurst(burstFiles)
	l.Runs = slices.DeleteFunc(l.Runs, func(r burstRun) bool { return r.Piece == "search-45" })
	l.Runs = append(l.Runs, someBurstRun("search-45", 2800, 100), someBurstRun("search-55", 2300, 84))
	best := l.best()
	if !strings.Contains(best, "55 Mbit/s all the time") || !strings.Contains(best, "48 and 50 Mbit/s were not tried yet") ||
		!strings.Contains(best, "last for 98 and 93 s") {
		t.Errorf("the best constant limit: %s", best)
	}
	l.Runs = append(l.Runs, someBurstRun("search-48", 2800, 95), someBurstRun("search-50", 2800, 90))
	if best := l.best(); !strings.Contains(best, "55 Mbit/s all the time") || strings.Contains(best, "tried") {
		t.Errorf("the best constant limit: %s", best)
	}
}

// More limits to search do not drop what was played with fewer; any other setting does.
func TestBurstKeepsWhatWasPlayed(t *testing.T) {
	e := burstExperiment{"live", burstFiles, burstRecords(t.TempDir())}
	old := someBurst(burstFiles)
	old.Settings.Search = []float64{30e6, 45e6}
	runs := len(old.Runs)
	live, err := e.collect(old)
	if err != nil || live == nil || len(live.Runs) != runs || len(live.Off) != 1 || !slices.Equal(live.Settings.Search, burstFiles.Search) {
		t.Errorf("%+v, %v", live, err)
	}
	old.Settings.Margin *= 2
	if live, err := e.collect(old); live != nil || err != nil {
		t.Errorf("%+v, %v", live, err)
	}
}
