package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/lab/testbed/kernel"
)

// On an emulated burstable machine, whose limits nobody tells it, quell credits measure finds baseline and balance, and stops before it has
// spent all that it may.
func TestCreditsOfAnEmulatedMachineAreMeasured(t *testing.T) {
	need.Root(t)
	prefix := fmt.Sprintf("tcm%d", os.Getpid())
	lab, err := kernel.New(kernel.Options{Prefix: prefix, Dir: t.TempDir(), Hosts: []kernel.Host{{ID: "h1", Network: 100e6, Cores: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	}()
	place, err := lab.Place("h1", kernel.Instance)
	if err != nil {
		t.Fatal(err)
	}
	const baseline, balance, tries = 0.25, 0.03, 3 // 0.03 credits are 1.8 s of a processor: 2.4 s at full speed
	undisturbed := false
	for range tries {
		before, began := busy(t), time.Now()
		wrong := measureEmulated(t, place, prefix, baseline, balance)
		if wrong == "" {
			return
		}
		used := (busy(t) - before) / time.Since(began).Seconds()
		t.Logf("%s; all programs together used %.2f processors", wrong, used)
		undisturbed = undisturbed || used < 1.2 // the emulated machine has one
	}
	if undisturbed {
		t.Error("wrong although nothing else used the processors")
	}
	t.Skip("other programs used the processors during every try")
}

// busy returns for how many seconds this machine's processors have worked so far, added up.
func busy(t *testing.T) float64 {
	t.Helper()
	machine, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	stat, err := machine.Stat()
	if err != nil {
		t.Fatal(err)
	}
	all := stat.CPUTotal
	return all.User + all.Nice + all.System + all.IRQ + all.SoftIRQ + all.Steal
}

// measureEmulated measures a machine of one processor with a fresh balance, and returns what is wrong with the result.
func measureEmulated(t *testing.T, place kernel.Place, prefix string, baseline, balance float64) (wrong string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	bucket := kernel.NewTokenBucket(credit.Bucket{Baseline: baseline, Burst: 1, PerUse: 1.0 / 60, Cap: 1}, balance)
	burstable := kernel.Burstable{Prefix: prefix, Host: "h1", Resource: quell.CPU, TokenBucket: bucket}
	go func() { kept <- burstable.KeepCredits(ctx) }()
	defer func() {
		stop()
		if err := <-kept; err != nil {
			t.Error(err)
		}
	}()
	var out, errs strings.Builder
	cmd := exec.Command("quell", "credits", "measure", "--spend", "0.2", "--processors", "1", "--window", "100ms", "--json")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := place.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var m credit.Measured
	if err := json.Unmarshal([]byte(out.String()), &m); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	t.Logf("measured %s", out.String())
	near := func(e *credit.Estimate, want float64) bool { return e != nil && math.Abs(e.Middle()-want) <= 0.3*want }
	switch {
	case m.Spent > 0.2:
		t.Errorf("spent %v credits of 0.2", m.Spent)
	case !near(m.Baseline, baseline):
		return fmt.Sprintf("baseline %v, want %v processors", m.Baseline, baseline)
	case !near(m.Balance, balance):
		return fmt.Sprintf("balance %v, want %v credits", m.Balance, balance)
	}
	return ""
}
