package arena

import (
	"context"
	"errors"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy/table"
)

// brief is a scenario of half a minute with four machines, one of which gets a neighbour. Its runs need no models.
func brief() *scenario.Scenario {
	service := quell.DefaultService()
	service.Name, service.Sampling = "web", time.Second
	service.SLO = quell.SLO{Metric: quell.Mean, Threshold: 40 * time.Millisecond}
	service.Group.Max = 4
	sc := &scenario.Scenario{
		Name: "brief", Seed: 3, Duration: 30 * time.Second, Service: service, Judge: scenario.DefaultJudging(),
		Instances: scenario.Instances{Start: 2, Fixed: 2},
		Workload:  scenario.Workload{Kind: scenario.File, Arrivals: scenario.Poisson, Size: 50_000, Load: 1.3},
		Runs:      []scenario.Run{{Policy: quell.Policy{Name: plain}, Scheduling: quell.LeastConn, Fixed: 2}},
	}
	for i := range 4 {
		sc.Hosts = append(sc.Hosts, scenario.Host{ID: fmt.Sprintf("h%d", i+1), Network: 40e6, Cores: 1, DiskIOPS: 1000, Memory: 1})
	}
	sc.Timeline = []scenario.Event{
		{At: 10 * time.Second, Interfere: &scenario.Interference{Host: "h1", Resource: quell.Network, Use: 0.5}},
		{At: 20 * time.Second, Interfere: &scenario.Interference{Host: "h1", Resource: quell.Network}},
	}
	return sc
}

func options(t *testing.T, dir string) Options {
	t.Helper()
	return Options{Scenarios: []*scenario.Scenario{brief()}, Policies: []string{plain}, Seeds: 3, Dir: dir}
}

func mustRun(t *testing.T, o Options) *Contest {
	t.Helper()
	contests, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return contests[0]
}

func lines(t *testing.T, dir string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, resultsFile))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// Every rival takes part with every scheduling that it could use, because another scheduling than least connections may be better for it.
func TestCandidates(t *testing.T) {
	sc := brief()
	sc.Runs = append(sc.Runs, scenario.Run{Policy: quell.Policy{Name: subject}, Scheduling: quell.LeastConn},
		scenario.Run{Policy: quell.Policy{Name: plain, Fast: quell.Fast{Name: "outlier"}}, Scheduling: quell.Random2},
		scenario.Run{Policy: quell.Policy{Name: plain}, Scheduling: quell.Random2, Balancer: scenario.Envoy, Ejection: scenario.EjectionTuned})
	var titles []string
	for _, e := range candidates(sc, []string{plain, subject, "lsf", "hpa", "knapsack"}) {
		titles = append(titles, e.Title())
	}
	want := []string{
		"static/roundrobin x2", "static/leastconn x2", "static/random2 x2", "static/ewma x2",
		"static/leasttime x2", "static/prequal x2",
		"static (fast outlier)/random2 x2", "static/random2 ejection tuned x2",
		"prima/roundrobin", "prima/leastconn", "prima/random2", "prima/ewma", "prima/leasttime", "prima/prequal",
		"prima (total)/leastconn", "prima (total)/roundrobin", "prima (headroom 70%)/leastconn", "prima (spare 1)/leastconn",
		"prima (share tail)/leastconn", "prima (share tail)/roundrobin",
		"prima/leastconn learning", "prima/ewma learning",
		"lsf/roundrobin", "lsf/leastconn", "lsf/random2", "lsf/ewma", "lsf/leasttime",
		"knapsack/roundrobin x2", "knapsack/leastconn x2", "knapsack/random2 x2", "knapsack/ewma x2", "knapsack/leasttime x2",
	}
	for _, s := range quell.Schedulings {
		for _, u := range []int{30, 40, 50, 60, 70, 80} {
			want = append(want, fmt.Sprintf("hpa/%s %d%%", s, u))
		}
	}
	slices.Sort(want)
	if slices.Sort(titles); !slices.Equal(titles, want) {
		t.Errorf("these enter: %q\nwant %q", titles, want)
	}
}

// For groups of fixed size the arena tries larger sizes until one keeps the objective, and smaller sizes until one misses it for half of
// the time. No other size is tried.
func TestLadder(t *testing.T) {
	c := mustRun(t, options(t, t.TempDir()))
	violation := func(e Candidate) (float64, bool) {
		if len(c.Results[e]) == 0 {
			return 0, false
		}
		return c.Results[e][0].SLO.ViolationShare, true
	}
	hosts, sizes := len(c.Scenario.Hosts), map[string][]int{}
	for _, e := range c.Candidates {
		sizes[e.Series()] = append(sizes[e.Series()], e.Fixed)
		if n := len(c.Results[e]); n != 3 {
			t.Errorf("%s has %d results", e.Title(), n)
		}
		share, _ := violation(e)
		larger, smaller := e, e
		larger.Fixed++
		smaller.Fixed--
		_, up := violation(larger)
		_, down := violation(smaller)
		if e.Fixed >= 2 && share <= kept && up || e.Fixed >= 2 && kept < share && share < lost && e.Fixed < hosts && !up {
			t.Errorf("%s misses the objective for %.2f of the time; the next size was tried: %v", e.Title(), share, up)
		}
		if e.Fixed == 2 && down != (share < lost && !smaller.idle()) {
			t.Errorf("%s misses the objective for %.2f of the time; a smaller size was tried: %v", e.Title(), share, down)
		}
	}
	if len(sizes) != len(quell.Schedulings) || len(c.Candidates) <= len(sizes) {
		t.Errorf("sizes %v", sizes)
	}
}

func TestSweep(t *testing.T) {
	sc := &scenario.Scenario{Hosts: make([]scenario.Host, 20)}
	for _, c := range []struct {
		from int
		up   bool
		want int
		ok   bool
	}{{1, true, 2, true}, {16, true, 18, true}, {20, true, 22, false}, {16, false, 14, true}, {1, false, 0, false}} {
		got, ok := sweep{Candidate{Fixed: c.from}, c.up}.next(sc)
		if got.Fixed != c.want || ok != c.ok {
			t.Errorf("from %d: %d, %v", c.from, got.Fixed, ok)
		}
	}
}

// Rivals of fixed size also run at PRIMA's mean size, rounded down and up. PRIMA uses models that were trained with the run's seed.
func TestRivalsOfPRIMAsSize(t *testing.T) {
	o := options(t, t.TempDir())
	o.Policies, o.Seeds = []string{subject, plain, "knapsack"}, 2
	c := mustRun(t, o)
	size, ok := primaSize(c.Results[primaItself])
	if !ok {
		t.Fatal("PRIMA did not play")
	}
	for _, n := range []float64{math.Floor(size), math.Ceil(size)} {
		for _, s := range quell.Schedulings {
			if e := (Candidate{Policy: plain, Scheduling: s, Fixed: int(n)}); !e.idle() && len(c.Results[e]) != 2 {
				t.Errorf("PRIMA's mean size is %.2f; %s has %d results", size, e.Title(), len(c.Results[e]))
			}
		}
		for _, s := range weighted {
			if e := (Candidate{Policy: "knapsack", Scheduling: s, Fixed: int(n)}); !e.idle() && len(c.Results[e]) != 2 {
				t.Errorf("PRIMA's mean size is %.2f; %s has %d results", size, e.Title(), len(c.Results[e]))
			}
		}
	}
	models, err := filepath.Glob(filepath.Join(o.Dir, "*.models.json"))
	if err != nil || len(models) != 2 {
		t.Errorf("models %v, %v: want one file for each seed", models, err)
	}
	if got := mustRun(t, o).Rows(); !reflect.DeepEqual(got, c.Rows()) {
		t.Error("the same call gives other rows the second time")
	}
}

// If a run in the scenario's list is also one of the arena's runs, it is simulated only once.
func TestOwnRunsEnterOnce(t *testing.T) {
	sc := brief()
	sc.Runs = []scenario.Run{{Policy: quell.Policy{Name: "knapsack"}, Scheduling: quell.LeastConn},
		{Policy: quell.Policy{Name: "hpa"}, Scheduling: quell.LeastConn}}
	titles := map[string]bool{}
	for _, e := range candidates(sc, []string{"knapsack", "hpa"}) {
		titles[e.Title()] = true
	}
	if len(titles) != len(weighted)+len(table.All.Variants(quell.Policy{Name: "hpa"}))*len(quell.Schedulings) ||
		!titles["knapsack/leastconn x2"] || !titles["hpa/leastconn 80%"] {
		t.Errorf("candidates %v", titles)
	}
}

func TestTwoArenasInOneFolder(t *testing.T) {
	dir := t.TempDir()
	o := options(t, dir)
	o.Progress = func(p Progress) {
		if p.Done > 1 {
			return
		}
		_, err := Run(t.Context(), options(t, dir))
		var user *quell.UserError
		if !errors.As(err, &user) || !strings.Contains(err.Error(), "another arena is writing to "+dir) {
			t.Errorf("a second arena: %v", err)
		}
	}
	mustRun(t, o)
	o = options(t, dir)
	o.Program = "another"
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), ":1: a result of another build") {
		t.Errorf("another program: %v", err)
	}
}

func TestCheckReport(t *testing.T) {
	dir := t.TempDir()
	for _, made := range []string{"folder.md", "made"} {
		if err := os.Mkdir(filepath.Join(dir, made), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"report.md": "", "made/report.md": "", "new/new/report.md": "", "report": "ends in .md", "report.txt": "ends in .md",
		"folder.md": "is a folder",
		"file.md":   "in the way", "file/report.md": "nothing can be written",
	} {
		err := CheckReport(filepath.Join(dir, path))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// If an arena is interrupted at any moment and called again, its results equal those of an arena without interruption.
func TestGoesOnAfterInterruption(t *testing.T) {
	whole := t.TempDir()
	want := mustRun(t, options(t, whole)).Rows()
	dir := t.TempDir()
	for after := 2; ; after += 3 {
		ctx, cancel := context.WithCancel(t.Context())
		o := options(t, dir)
		o.Progress = func(p Progress) {
			if p.Done >= after {
				cancel()
			}
		}
		contests, err := Run(ctx, o)
		cancel()
		if err == nil {
			if got := contests[0].Rows(); !reflect.DeepEqual(got, want) {
				t.Errorf("rows %+v\nwant %+v", got, want)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if after > 1000 {
			t.Fatal("it does not come to an end")
		}
	}
	if got, want := len(lines(t, dir)), len(lines(t, whole)); got != want {
		t.Errorf("%d results were written, %d are needed: finished runs were played again", got, want)
	}
}

func TestStrayFiles(t *testing.T) {
	dir := t.TempDir()
	want := mustRun(t, options(t, dir)).Rows()
	path := filepath.Join(dir, resultsFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := lines(t, dir)[0]
	for name, c := range map[string]struct{ content, problem string }{
		"whole":           {string(good), ""},
		"a last line cut": {string(good[:len(good)-40]), ""},
		"a line twice":    {first + "\n" + string(good), ""},
		"another version": {strings.Replace(string(good), `"scenario_digest":"`, `"scenario_digest":"0`, 1),
			":1: a result of another version of scenario brief"},
		"garbage":           {string(good) + "{]\n", fmt.Sprintf(":%d: not a result", len(lines(t, dir))+1)},
		"two that disagree": {strings.Replace(first, `"requests":`, `"requests":1`, 1) + "\n" + string(good), ":2: a second result"},
		"another scenario":  {strings.ReplaceAll(first, `"scenario":"brief"`, `"scenario":"other"`) + "\n" + string(good), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(c.content), 0o644); err != nil {
				t.Fatal(err)
			}
			contests, err := Run(t.Context(), options(t, dir))
			if c.problem == "" {
				if err != nil {
					t.Fatal(err)
				}
				if got := contests[0].Rows(); !reflect.DeepEqual(got, want) {
					t.Errorf("rows %+v\nwant %+v", got, want)
				}
				return
			}
			var user *quell.UserError
			if !errors.As(err, &user) || !strings.Contains(err.Error(), path+c.problem) {
				t.Errorf("error %v, want %s%s", err, path, c.problem)
			}
			if left, _ := os.ReadFile(path); string(left) != c.content {
				t.Error("the stray files were changed")
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"unknown policy":        {func(o *Options) { o.Policies = []string{"clairvoyance"} }, `unknown policy "clairvoyance" (known: `},
		"no seed":               {func(o *Options) { o.Seeds = 0 }, "seeds: must be between 1 and 10000, is 0"},
		"a scenario twice":      {func(o *Options) { o.Scenarios = append(o.Scenarios, brief()) }, "two scenarios have the name brief"},
		"a scenario that is no": {func(o *Options) { o.Scenarios[0].Duration = 0 }, "duration"},
	} {
		o := options(t, t.TempDir())
		c.change(&o)
		_, err := Run(t.Context(), o)
		var user *quell.UserError
		if !errors.As(err, &user) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If one run fails, the others are played all the same.
func TestFailureIsReportedBesideResults(t *testing.T) {
	o := options(t, t.TempDir())
	o.Scenarios[0].Runs = append(o.Scenarios[0].Runs, scenario.Run{Policy: quell.Policy{Name: "nobody"}, Scheduling: quell.LeastConn})
	contests, err := Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "nobody/leastconn in brief with seed 3") {
		t.Fatalf("error %v", err)
	}
	if rows := contests[0].Rows(); len(rows) < len(quell.Schedulings) {
		t.Errorf("%d rows only", len(rows))
	}
}

func TestReport(t *testing.T) {
	o := options(t, t.TempDir())
	contests, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := Report(t.Context(), page, contests, map[string]string{"brief": "Because of *this*.\n"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## brief", "| static/leastconn x2 |", "Because of *this*.", "(page/brief-tradeoff.png)",
		"(page/brief-latency.png)"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "%!") {
		t.Errorf("a sentence of the report lacks a figure:\n%s", text)
	}
	all, err := os.ReadFile(filepath.Join(filepath.Dir(page), "page", "brief.md"))
	n := strings.Count(string(all), "| static/")
	if link := fmt.Sprintf("[All %d runs](page/brief.md)", n); err != nil || n != len(contests[0].Candidates) ||
		!strings.Contains(string(text), link) {
		t.Errorf("%d rows, %v:\n%s", n, err, all)
	}
	for _, name := range []string{"brief-tradeoff.png", "brief-latency.png"} {
		f, err := os.Open(filepath.Join(filepath.Dir(page), "page", name))
		if err != nil {
			t.Fatal(err)
		}
		if img, err := png.Decode(f); err != nil || img.Bounds().Dx() < 500 {
			t.Errorf("%s: %v", name, err)
		}
		f.Close()
	}
}

func TestShades(t *testing.T) {
	sc := brief()
	want := []shade{{10, 20, 1}}
	if got := shades(sc, 1); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	sc.Timeline = slices.Insert(sc.Timeline, 1, scenario.Event{At: 15 * time.Second,
		Interfere: &scenario.Interference{Host: "h2", Resource: quell.Network, Use: 0.5}})
	want = []shade{{10, 15, 0.5}, {15, 20, 1}, {20, 30, 0.5}}
	if got := shades(sc, 1); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A row is on the front if and only if no other row has at most its violation and at most its cost, with at least one of the two lower.
func TestFrontByDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Contest{Results: map[Candidate][]scenario.Result{}}
		for i := range rapid.IntRange(1, 12).Draw(t, "n") {
			e := Candidate{Policy: rapid.SampledFrom([]string{plain, "hpa"}).Draw(t, "policy"), Fixed: i + 1}
			r := scenario.Result{InstanceSeconds: float64(rapid.IntRange(1, 6).Draw(t, "cost"))}
			r.SLO.ViolationShare = float64(rapid.IntRange(0, 5).Draw(t, "violation")) / 5
			c.Candidates = append(c.Candidates, e)
			c.Results[e] = []scenario.Result{r}
		}
		rows := c.Rows()
		for _, r := range rows {
			beats := func(o Row) bool {
				v, k := o.Violation.Mean-r.Violation.Mean, o.Cost.Mean-r.Cost.Mean
				return v <= 0 && k <= 0 && v+k < 0
			}
			beaten := slices.ContainsFunc(rows, beats)
			if r.Best == slices.ContainsFunc(rows, func(o Row) bool { return o.Candidate.Policy == r.Candidate.Policy && beats(o) }) {
				t.Fatalf("%+v is marked wrongly among the forms of its policy in %+v", r, rows)
			}
			if r.Front && beaten {
				t.Fatalf("%+v is beaten in %+v", r, rows)
			}
			if !beaten && !r.Front {
				t.Fatalf("%+v is not on the front of %+v", r, rows)
			}
		}
	})
}
