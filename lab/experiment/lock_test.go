package experiment

import (
	"errors"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// TestARunIsPlayedByOne: until a process that plays a run has ended, a second process may not play the same run. It may play other runs.
func TestARunIsPlayedByOne(t *testing.T) {
	dir, run := t.TempDir(), scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.RoundRobin}
	release, err := LockRun(dir, 0, run)
	if err != nil {
		t.Fatal(err)
	}
	var user *quell.UserError
	if _, err := LockRun(dir, 0, run); !errors.As(err, &user) || !strings.Contains(err.Error(), "run1-prima-roundrobin: wait for it") {
		t.Errorf("a second player: %v", err)
	}
	other, err := LockRun(dir, 1, run)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other(), release()); err != nil {
		t.Fatal(err)
	}
	again, err := LockRun(dir, 0, run)
	if err != nil {
		t.Fatal(err)
	}
	if err := again(); err != nil {
		t.Error(err)
	}
}
