package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
)

// TestDecisionsAreTheSame plays every example under each of its runs, and the demo's scenario under every policy. Models, decisions and
// results must equal the recorded ones exactly. A commit that only moves code leaves the files as they are; one that changes decisions on
// purpose rewrites them: go test ./lab/sim -run Decisions -update
func TestDecisionsAreTheSame(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("recorded on amd64; other processors fuse multiplication and addition and round differently")
	}
	files, err := filepath.Glob("../../examples/scenarios/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sc, err := scenario.Parse(file, data)
			if err != nil {
				t.Fatal(err)
			}
			got, plans := decisions(t, sc)
			golden.Compare(t, filepath.Join("testdata", "decisions", name+".golden"), got)
			golden.Explain(t, filepath.Join("testdata", "plans", name+".golden"), plans)
		})
	}
}

// recorded are the policies that are played in the demo's scenario. One that comes later has scenarios of its own.
var recorded = []string{"cswrr", "dial", "hpa", "ice", "knapsack", "lr", "lsf", "pid", "prima", "static"}

// decisions returns a line about the models and a line for each run. The line of a run has three digests: of weights and group changes, of
// whole plans, and of the result. It also returns the plans of each run.
func decisions(t *testing.T, sc *scenario.Scenario) (lines []byte, all []golden.List) {
	t.Helper()
	var out bytes.Buffer
	models := prepared(t, sc)
	var written bytes.Buffer
	of := &model.Models{Trained: models.Trained, Sections: []model.Section{models.Prima()}} // the data from which policies decide
	if err := of.Encode(&written); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "models %s\n", digest(t, written.String()))
	runs := slices.Clone(sc.Runs)
	if sc.Name == "noisy-neighbour" {
		for _, name := range recorded {
			runs = append(runs, scenario.Run{Policy: quell.Policy{Name: name}, Scheduling: quell.EWMA})
		}
		for _, name := range table.All.NamesOf(policy.FastScope) {
			fast := quell.Fast{Name: name, Sampling: 500 * time.Millisecond}
			runs = append(runs, scenario.Run{Policy: quell.Policy{Name: table.All.Plain(), Fast: fast}, Scheduling: quell.RoundRobin})
		}
		runs = append(runs, scenario.Run{Policy: quell.Policy{Name: Clairvoyant}, Scheduling: quell.LeastConn})
	}
	for _, run := range runs {
		var acts, plans []any
		o := Options{Scenario: sc, Run: run, Models: models, Plans: func(p *quell.Plan) {
			acts = append(acts, p.Weights, p.Group)
			plans = append(plans, *p)
		}}
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", run.Policy.Name, err)
		}
		r.LargestOverMean = nil // a figure about the run, which came later than the recorded files
		fmt.Fprintf(&out, "%s %s %d: %d plans, acts %s, plans %s; %d requests, %.3f s of violation, %.3f instance-seconds, result %s\n",
			run.Policy.Name, r.Scheduling, r.Fixed, len(plans), digest(t, acts), digest(t,
				plans), r.Requests, r.SLO.ViolationS, r.InstanceSeconds, digest(t, r))
		all = append(all, golden.List{Name: fmt.Sprintf("%d %s %s", len(all)+1, run.Policy.Name, r.Scheduling), Items: plans})
	}
	return out.Bytes(), all
}

func digest(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))[:12]
}
