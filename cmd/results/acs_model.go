package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent/host"
)

// acsModelRun is a run in which a tenant stops reporting its progress, so that the agent predicts its slowdown (Eq. 5).
type acsModelRun struct {
	Correlation float64    `json:"correlation"` // of reported slowdowns and waiting, when it stopped (Eq. 9)
	Told        int        `json:"told"`        // decisions with reports
	Periods     int        `json:"periods"`     // decisions after it stopped
	Off         []float64  `json:"off"`         // of the predicted slowdowns, as parts of the true ones
	Kept        []float64  `json:"kept"`        // of the last reported slowdown, if it were kept
	Between     [2]float64 `json:"between"`     // smallest and largest true slowdown in that time
}

// Parts of such a run.
const (
	acsModelRuns   = 3
	acsModelTells  = 40 * time.Second
	acsModelSilent = 25 * time.Second
	acsModelTurn   = 5 * time.Second // the third tenant works and stops in turns
)

// acsModelMix are the tenants: the first one stops reporting.
var acsModelMix = acsMix{{"numbers", 1}, {"sorting", 2}, {"compiling", 4}}

// playModels plays the runs of the part model.
func playModels(ctx context.Context, d *acsData) error {
	dir, err := os.MkdirTemp("", "quell-acs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "quell")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/quell").CombinedOutput(); err != nil {
		return fmt.Errorf("building quell: %w\n%s", err, out)
	}
	rig, err := newACSRig(program, []acsMix{acsModelMix}, acsLiveTimes)
	if err != nil {
		return err
	}
	defer rig.close()
	var runs []acsModelRun
	for i := range acsModelRuns {
		fmt.Fprintf(os.Stderr, "acs: model, run %d of %d\n", i+1, acsModelRuns)
		run, err := rig.playModel(ctx)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	d.Model = runs
	return nil
}

// acsModelMoment is a decision, and how fast the tenant worked since the one before.
type acsModelMoment struct {
	at     time.Duration
	tenant quell.Tenant
	rate   float64 // units of work per second
}

// playModel plays one run.
func (r *acsRig) playModel(ctx context.Context) (run acsModelRun, err error) {
	agent, err := r.agent(acsMode{policy: "by: weights"})
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, agent.stop()) }()
	socket := agent.socket()
	var list []*acsTenant
	defer func() { err = stopTenants(list, err) }()
	for i := range 2 {
		t, err := r.tenant(i, acsModelMix[i], true, socket)
		if err != nil {
			return run, err
		}
		list = append(list, t)
	}
	watched := list[0]
	watched.units.begin()
	moments, err := r.watchModel(ctx, agent, watched)
	if err != nil {
		return run, err
	}
	return newACSModelRun(moments)
}

// watchModel records the decisions while a third tenant comes and goes; the watched one becomes silent in between.
func (r *acsRig) watchModel(ctx context.Context, agent *acsAgent, watched *acsTenant) (moments []acsModelMoment, err error) {
	var third []*acsTenant
	defer func() { err = stopTenants(third, err) }()
	began, decisions, before, at := time.Now(), 0, 0, time.Now()
	for time.Since(began) < acsModelTells+acsModelSilent {
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
		if working := int(time.Since(began)/acsModelTurn)%2 == 1; working != (len(third) > 0) {
			if third, err = r.turn(third); err != nil {
				return nil, err
			}
		}
		if time.Since(began) > acsModelTells {
			watched.units.silence()
		}
		data, err := host.Ask(ctx, filepath.Join(agent.dir, "data", "agent"))
		if err != nil {
			continue // it has just been started
		}
		var s host.Status
		if err := json.Unmarshal(data, &s); err != nil || s.Plan == nil || s.Decisions == decisions {
			continue
		}
		units, now := watched.units.total(), time.Now()
		if t, known := s.Plan.Tenants[acsGroup+"00"]; known && t.Slowdown != nil && decisions > 0 {
			moments = append(moments, acsModelMoment{time.Since(began), t, float64(units-before) / now.Sub(at).Seconds()})
		}
		decisions, before, at = s.Decisions, units, now
	}
	return moments, nil
}

// turn starts the third tenant, or stops it if it works.
func (r *acsRig) turn(working []*acsTenant) ([]*acsTenant, error) {
	if len(working) > 0 {
		return nil, stopTenants(working, nil)
	}
	t, err := r.tenant(2, acsModelMix[2], true, "")
	if err != nil {
		return nil, err
	}
	return []*acsTenant{t}, nil
}

// newACSModelRun compares predictions with how fast the tenant really worked. What it would do alone follows from the reported slowdowns:
// the median of rate times slowdown.
func newACSModelRun(moments []acsModelMoment) (run acsModelRun, err error) {
	var alone []float64
	last := 0.0
	for _, m := range moments {
		if m.tenant.From != quell.FromProgress {
			continue
		}
		if run.Told++; m.at > acsModelTells/2 && m.rate > 0 {
			alone = append(alone, m.rate**m.tenant.Slowdown)
		}
		if last = *m.tenant.Slowdown; m.tenant.Correlation != nil {
			run.Correlation = *m.tenant.Correlation
		}
	}
	if len(alone) == 0 {
		return run, fmt.Errorf("none of %d decisions had a slowdown from progress", len(moments))
	}
	slices.Sort(alone)
	rate := stat.Quantile(0.5, stat.Empirical, alone, nil)
	run.Between = [2]float64{math.Inf(1), 0}
	for _, m := range moments {
		if m.at < acsModelTells || m.tenant.From == quell.FromProgress || m.rate == 0 {
			continue
		}
		truth := rate / m.rate
		run.Periods++
		run.Between = [2]float64{min(run.Between[0], truth), max(run.Between[1], truth)}
		if m.tenant.From == quell.FromModel {
			run.Off = append(run.Off, math.Abs(*m.tenant.Slowdown/truth-1))
			run.Kept = append(run.Kept, math.Abs(last/truth-1))
		}
	}
	if run.Periods == 0 {
		return run, errors.New("no decision after the tenant became silent")
	}
	return run, nil
}

// Median is the middle of errors, "-" if there are none.
func (acsModelRun) Median(off []float64) string {
	if len(off) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*stat.Quantile(0.5, stat.Empirical, slices.Sorted(slices.Values(off)), nil))
}
