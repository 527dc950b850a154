package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/lab/arena"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/sim"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/train"
)

// atRoot moves to the root of the repository, where pages are written, and hides what this machine measured.
func atRoot(t *testing.T) {
	t.Helper()
	t.Chdir(filepath.Join("..", ".."))
	before := labDir
	labDir = t.TempDir()
	t.Cleanup(func() { labDir = before })
}

var resultsDir = filepath.Join("docs", "results")

// A part that was measured elsewhere stays on the page. A part that is measured here replaces it, with its commit.
func TestLivePartsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	page := func(a, b string) []byte {
		return []byte("# Page\n" + liveBegins + "a" + liveNamed + a + liveEnds + "\n" + liveBegins + "b" + liveNamed + b + liveEnds + "\n")
	}
	none := notMeasured + ": `go run ./cmd/results x`."
	for i, c := range []struct{ a, b, commit, want string }{
		{none, none, "c1", "# Page\n" + none + "\n" + none + "\n"},
		{"1 s", none, "c1", "# Page\n1 s\n" + none + "\n\nWhat was measured on machines is from commit c1.\n"},
		{none, "2 s", "c2", "# Page\n1 s\n2 s\n\nWhat was measured on machines is from commits c1 (a), c2 (b).\n"},
		{"3 s", none, "c3", "# Page\n3 s\n2 s\n\nWhat was measured on machines is from commits c2 (b), c3 (a).\n"},
		{none, none, "c4", "# Page\n3 s\n2 s\n\nWhat was measured on machines is from commits c2 (b), c3 (a).\n"},
	} {
		got, err := keepLive(dir, "page", c.commit, page(c.a, c.b))
		if err != nil || string(got) != c.want {
			t.Errorf("%d: %v, %q, want %q", i, err, got, c.want)
		}
	}
}

// In a fresh checkout each page that keeps its figures is written as it is: no figure is on a page only, and no page was edited.
func TestPagesAreWhatTheirFiguresSay(t *testing.T) {
	atRoot(t)
	dir := filepath.Join(t.TempDir(), "results")
	if err := os.CopyFS(dir, os.DirFS(resultsDir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"acs", "dial", "fleet", "fronts", "group", "haproxy", "ice", "learn", "mix", "mrburst", "outlier", "plans",
		"prima", "probing", "resources", "stranger", "train-on"} {
		if err := pageParts[name](t.Context(), dir, "page"); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := os.ReadFile(filepath.Join(dir, name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(resultsDir, name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("docs/results/%s.md is stale: go run ./cmd/results %s:page\n%s", name, name, golden.FirstDifference(got, want))
		}
	}
}

// The cheapest part of each simulated page is simulated again, and gives the same figures. Others may be stale as well then.
func TestSimulatedPagesAreNotStale(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates for some seconds")
	}
	atRoot(t)
	for page, again := range map[string]func(*testing.T) (now, stored any){
		"dial:harm":         dialAgain,
		"ice:training":      iceAgain,
		"acs:simulated":     acsAgain,
		"outlier:simulated": outlierAgain,
		"learn:prima-lsf":   learnAgain,
		"mrburst:simulated": mrburstAgain,
		"mrburst:table-2":   table2Again,
		"group:cells":       groupAgain,
		"plans:grid":        gridAgain,
		"probing:simulated": probingAgain,
		"twin":              twinAgain,
		"arena":             arenaAgain,
	} {
		t.Run(page, func(t *testing.T) {
			now, stored := again(t)
			got, want := asJSON(t, now), asJSON(t, stored)
			if !bytes.Equal(got, want) {
				t.Errorf("the page is older than the code: go run ./cmd/results %s (arena: make arena)\nnow:\n%s\non the page:\n%s", page, got, want)
			}
		})
	}
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func stored(t *testing.T, page string, into any) {
	t.Helper()
	if found, err := readJSON(filepath.Join(resultsDir, page+".json"), into); err != nil || !found {
		t.Fatalf("%s.json: found %t, %v", page, found, err)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func dialAgain(t *testing.T) (now, old any) {
	var f dialFigures
	stored(t, "dial", &f)
	sc, err := exampleScenario("prima-lsf")
	if err != nil {
		t.Fatal(err)
	}
	models, err := simulatedModels(t.Context(), sc, 1)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(f.Harm, func(r harmRow) bool { return r.Scenario == sc.Name })
	if i < 0 {
		t.Skip("not simulated yet: go run ./cmd/results dial:harm")
	}
	return must[harmRow](t)(playHarm(t.Context(), sc, quell.RoundRobin, models)), f.Harm[i]
}

func iceAgain(t *testing.T) (now, old any) {
	var f iceFigures
	stored(t, "ice", &f)
	models, rows, err := iceTrained(t.Context(), "ice-periodic", quell.Memory)
	if err != nil {
		t.Fatal(err)
	}
	training := newIceTraining(models.ICE(), len(rows))
	training.Machines, training.Resource = "ice-periodic", quell.Memory
	return training, f.Trainings[1]
}

func acsAgain(t *testing.T) (now, old any) {
	var d acsData
	stored(t, "acs", &d)
	return must[acsSize](t)(simulateSize(t.Context(), 2)), d.Simulated[0]
}

func outlierAgain(t *testing.T) (now, old any) {
	var d outlierData
	stored(t, "outlier", &d)
	scenarios, err := outlierScenarios()
	if err != nil {
		t.Fatal(err)
	}
	i, all := len(scenarios)-2, d.Simulated[len(scenarios)-2].Runs
	run := len(all) - 1
	return must[outlierRun](t)(simulateOutlierRun(t.Context(), scenarios[i], outlierContenders()[run], outlierSeeds)), all[run]
}

// learnAgain plays the first seed with a cold start, and with trained models.
func learnAgain(t *testing.T) (now, old any) {
	var d learnData
	stored(t, "learn", &d)
	i := slices.IndexFunc(d.Cases, func(c learnCase) bool { return c.Scenario == "prima-lsf" })
	sc, err := exampleScenario("prima-lsf")
	if err != nil {
		t.Fatal(err)
	}
	models, err := simulatedModels(t.Context(), sc, 1)
	if err != nil {
		t.Fatal(err)
	}
	play := func(run scenario.Run, models *model.Models) [2]float64 {
		r := must[scenario.Result](t)(sim.Run(t.Context(), sim.Options{Scenario: sc, Run: run, Models: models, Seed: 1}))
		return [2]float64{r.SLO.ViolationS, r.InstanceSeconds}
	}
	trained := learningRun
	trained.Models = ""
	first := func(r learnRun) [2]float64 { return [2]float64{r.ViolationS[0], r.Cost[0]} }
	return [][2]float64{play(learningRun, nil), play(trained, models)}, [][2]float64{first(d.Cases[i].Cold), first(d.Cases[i].Trained)}
}

func table2Again(t *testing.T) (now, old any) {
	var d burstData
	stored(t, "mrburst", &d)
	return must[[]burstResource](t)(playTable2()), d.Table2
}

// mrburstAgain plays the forecasts of a balance.
func mrburstAgain(t *testing.T) (now, old any) {
	var d burstData
	stored(t, "mrburst", &d)
	sc, err := mrburstScenario()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := sim.Train(t.Context(), sc, sim.Plan(), sc.Seed)
	if err != nil {
		t.Fatal(err)
	}
	models, _, err := model.Fit(rows, model.FitOptions{Service: sc.Name, Metric: sc.Service.SLO.Metric})
	if err != nil {
		t.Fatal(err)
	}
	return must[[]mrburstForecast](t)(mrburstForecasts(t.Context(), sc, models)), d.Simulated.Forecasts
}

// groupAgain plays the first group.
func groupAgain(t *testing.T) (now, old any) {
	var d groupData
	stored(t, "group", &d)
	cell := d.Cells[0]
	cell.Answer = quell.Latency{}
	if err := cell.play(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return cell, d.Cells[0]
}

// twinAgain writes the whole page again, without what says when the live figures are from.
func twinAgain(t *testing.T) (now, old any) {
	dir := filepath.Join(t.TempDir(), "results")
	if err := os.CopyFS(dir, os.DirFS(resultsDir)); err != nil {
		t.Fatal(err)
	}
	lines := func(dir string) []string {
		page, err := os.ReadFile(filepath.Join(dir, "twin.md"))
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(strings.Split(string(page), "\n"), func(l string) bool { return strings.HasPrefix(l, "What was measured") })
	}
	old = lines(dir)
	if err := twinPage(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return lines(dir), old
}

// arenaAgain plays PRIMA in the shortest scenario of the arena's page, with all seeds.
func arenaAgain(t *testing.T) (now, old any) {
	old, seeds := primaRows(t, filepath.Join(resultsDir, "arena", "twin.md"))
	sc := must[*scenario.Scenario](t)(exampleScenario("twin"))
	dir := t.TempDir()
	contests := must[[]*arena.Contest](t)(arena.Run(t.Context(), arena.Options{
		Scenarios: []*scenario.Scenario{sc}, Policies: []string{"prima"}, Seeds: seeds, Dir: dir,
	}))
	if err := arena.Report(t.Context(), filepath.Join(dir, "again.md"), contests, nil); err != nil {
		t.Fatal(err)
	}
	now, _ = primaRows(t, filepath.Join(dir, "again", "twin.md"))
	return now, old
}

// primaRows are the rows of PRIMA's forms in a table of the arena, and their number of seeds: the last column but one. The last (front) is
// left out, because it depends on the rivals.
func primaRows(t *testing.T, path string) (rows []string, seeds int) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if strings.HasPrefix(strings.TrimSpace(cells[0]), "prima") {
			last := len(cells) - 2
			seeds = must[int](t)(strconv.Atoi(strings.TrimSpace(cells[last])))
			rows = append(rows, strings.Join(cells[:last], "|"))
		}
	}
	if rows == nil {
		t.Fatalf("%s has no row of PRIMA", path)
	}
	slices.Sort(rows)
	return rows, seeds
}

// gridAgain trains by the smallest grid, with all seeds.
func gridAgain(t *testing.T) (now, old any) {
	var d plansData
	stored(t, "plans", &d)
	o := d.Objectives[0]
	sc := must[*scenario.Scenario](t)(simulatedService())
	return must[train.PlanScore](t)(train.Compare(t.Context(), grids[0].name(), grids[0].plan(), planMachines(sc), d.Truth, o.Metric,
		o.ThresholdMS, planSeedsOf())), o.Grids[0]
}

// probingAgain probes by one large download.
func probingAgain(t *testing.T) (now, old any) {
	var d probingData
	stored(t, "probing", &d)
	return must[[]train.ProbingScore](t)(simulateProbing(t.Context(), probings(nil, nil))), d.Simulated[:1]
}
