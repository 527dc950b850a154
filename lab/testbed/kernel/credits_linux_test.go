package kernel

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/credit"
)

// A burstable instance that wants more has all of its host's processors while it has credits, and then only its baseline. It feels the
// limit, which is not its own. At the end the host is whole again.
func TestAnInstanceRunsOutOfCredits(t *testing.T) {
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Network: 100e6, Cores: 0.4}}})
	top := filepath.Join(base(l.options.Prefix), "h1")
	if got := l.quota(t, top); got != 0.4 {
		t.Fatalf("the host has %v processors", got)
	}
	const credits = 0.5 / 60 // half a second of a processor
	purse := NewPurse(credit.Bucket{Baseline: 0.1, Burst: 0.4, PerUse: 1.0 / 60, Cap: 1}, credits)
	ctx, stop := context.WithCancel(t.Context())
	slow, done := make(chan bool, 100), make(chan error, 1)
	defer spin(t, place(t, l, "h1", Instance))()
	before, err := l.groups.used(filepath.Join(top, "vm"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	go func() { done <- KeepCredits(ctx, l.options.Prefix, "h1", purse, func(is bool) { slow <- is }) }()
	select {
	case <-slow:
	case err := <-done:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("the credits last for a minute")
	}
	for deadline := time.Now().Add(time.Minute); l.quota(t, top) > 0.12; time.Sleep(counting / 4) {
		if time.Now().After(deadline) {
			t.Fatalf("without credits the host has %v processors", l.quota(t, top))
		}
	}
	if got := l.quota(t, filepath.Join(top, "vm")); got != 0 {
		t.Errorf("the instance has a quota of its own: %v", got)
	}
	used, err := l.groups.used(filepath.Join(top, "vm"))
	if err != nil {
		t.Fatal(err)
	}
	// A late count lets the last balance pass again, and quotas are enforced with a precision of some milliseconds.
	if most := 0.5 + 0.1*time.Since(began).Seconds() + 0.3; used-before > most {
		t.Errorf("used %v s of a processor, and had %v", used-before, most)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := l.quota(t, top); got != 0.4 {
		t.Errorf("at the end the host has %v processors", got)
	}
	if err := KeepCredits(t.Context(), l.options.Prefix, "h9", purse, nil); err == nil || !strings.Contains(err.Error(), "host h9") {
		t.Errorf("credits of a host that does not exist: %v", err)
	}
}

// quota reads how many processors a group is limited to; 0: no limit.
func (l *Lab) quota(t *testing.T, group string) float64 {
	t.Helper()
	read := func(file string) (fields []string) {
		text, err := os.ReadFile(filepath.Join(l.groups.cpu, group, file))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(text))
	}
	var fields []string
	if l.groups.version == 2 {
		fields = read("cpu.max")
	} else {
		fields = append(read("cpu.cfs_quota_us"), read("cpu.cfs_period_us")...)
	}
	quota, errQuota := strconv.ParseFloat(fields[0], 64)
	period, errPeriod := strconv.ParseFloat(fields[1], 64)
	if errQuota != nil || errPeriod != nil || quota < 0 {
		return 0 // max, or -1
	}
	return quota / period
}
