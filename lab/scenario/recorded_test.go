package scenario

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// recordedIn writes a recorded load beside a scenario of two classes that has it, and parses the scenario.
func recordedIn(t *testing.T, csv, more string) (*Scenario, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "load.csv"), []byte(csv), 0o644); err != nil {
		t.Fatal(err)
	}
	return Parse(filepath.Join(dir, "own.yaml"), []byte(`
scenario: own
duration: 40s
service: {slo: {metric: p90, threshold: 30ms}}
hosts: [{id: h, count: 2, network: 50Mbps}]
workload:
  kind: classes
  recorded: load.csv
  classes: [{name: page, cpu: 2ms}, {name: search, cpu: 8ms}]
`+more))
}

func TestRecordedLoad(t *testing.T) {
	sc, err := recordedIn(t, "# made up\nseconds, search,page\n0,0,100\n10,50,50\n30,0,0\n", "")
	if err != nil {
		t.Fatal(err)
	}
	if c := sc.Workload.Classes; c[0].Share != 50 || c[1].Share != 25 { // requests per second on average
		t.Errorf("shares %v and %v", c[0].Share, c[1].Share)
	}
	var rates []float64
	for _, step := range sc.Rates() {
		rates = append(rates, step.PerSecond)
	}
	if !slices.Equal(rates, []float64{100, 100, 0}) || sc.Rates()[1].At != 10*time.Second {
		t.Errorf("rates %v", sc.Rates())
	}
	if got := sc.LoadAt(20 * time.Second); got != 100/sc.RatePerSecond(1) || sc.LoadAt(time.Hour) != 0 {
		t.Errorf("loads %v and %v", got, sc.LoadAt(time.Hour))
	}
	mixes := sc.Mixes()
	if len(mixes) != 3 || !slices.Equal(mixes[0].Shares, []float64{100, 0}) || !slices.Equal(mixes[1].Shares, []float64{50, 50}) {
		t.Errorf("mixes %v", mixes)
	}
	before := sc.Workload.Recorded
	if sc.Stretch(80 * time.Second); sc.Workload.Recorded.Steps[1].At != 20*time.Second || before.Steps[1].At != 10*time.Second {
		t.Errorf("stretched to %v, before %v", sc.Workload.Recorded.Steps, before.Steps)
	}
	if noisy().Mixes() != nil {
		t.Error("a load that is not recorded changes the shares")
	}
}

func TestMistakesInRecordedLoads(t *testing.T) {
	const good = "seconds,page,search\n0,10,10\n"
	for _, c := range []struct{ csv, more, want string }{
		{"", "", "is empty"},
		{"seconds,page,search\n", "", "has a heading and no rates"},
		{"time,page,search\n0,1,1\n", "", "the heading must be seconds and the names of classes"},
		{"seconds\n0\n", "", "the heading must be seconds and the names of classes"},
		{"seconds,page,page\n0,1,1\n", "", `the heading has "page" twice`},
		{"seconds,page,search\n0,1\n", "", "wrong number of fields"},
		{"seconds,page,search\n5,1,1\n", "", "line 2: seconds must begin with 0"},
		{"seconds,page,search\n0,1,1\n0,1,1\n", "", "line 3: seconds must begin with 0 and go up"},
		{"seconds,page,search\n0,1,-1\n", "", "line 2: a rate must be a number from 0 on"},
		{"seconds,page,search\n0,1,NaN\n", "", "line 2: a rate must be a number"},
		{"seconds,page,search\n1e300,1,1\n", "", "line 2: seconds must be a number"},
		{"seconds,page\n0,1\n", "", "is not in the recorded load, which has page"},
		{"seconds,page,search,other\n0,1,1,1\n", "", "has requests of class other, which workload.classes lacks"},
		{"seconds,page,search\n0,1,0\n", "", "share"},
		{"seconds,page,search\n0,1e9,1\n", "", "is more than 10 times what all 2 hosts carry"},
		{good, "  load: 1\n", "workload.load: must not be given: the recorded load has the rates"},
		{good, "timeline: [{at: 1s, load: 2}]\n", "timeline[0].load: the recorded load has the rates"},
		{good, "  arrivals: ramp\n", "a recorded load has no step"},
	} {
		if _, err := recordedIn(t, c.csv, c.more); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v, want %q", c.csv, c.more, err, c.want)
		}
	}
	if _, err := recordedIn(t, good, "  arrivals: deterministic\n"); err != nil {
		t.Error(err)
	}
}

func TestApplication(t *testing.T) {
	for classes, want := range map[string]string{
		"{name: HomePage, cpu: 1ms}, {name: EventDetail, cpu: 1ms}": "",
		"{name: home, cpu: 1ms}":                                    "calendar has the pages HomePage, TagSearch, EventDetail, not home",
	} {
		_, err := Parse("own.yaml", []byte(`
scenario: own
duration: 10s
service: {slo: {metric: p90, threshold: 30ms}}
hosts: [{id: h1, network: 50Mbps}]
workload: {kind: classes, load: 0.5, application: calendar, classes: [`+classes+`]}
`))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", classes, err, want)
		}
	}
}
