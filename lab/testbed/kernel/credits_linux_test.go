package kernel

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/internal/need"
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
	bucket := NewTokenBucket(credit.Bucket{Baseline: 0.1, Burst: 0.4, PerUse: 1.0 / 60, Cap: 1}, credits)
	ctx, stop := context.WithCancel(t.Context())
	burstable, slow := watched(l, quell.CPU, bucket)
	done := make(chan error, 1)
	defer spin(t, place(t, l, "h1", Instance))()
	before, err := l.groups.used(filepath.Join(top, "vm"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	go func() { done <- burstable.KeepCredits(ctx) }()
	awaitSlow(t, slow, done)
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
	for _, r := range []quell.Resource{quell.CPU, quell.Network, quell.Memory} {
		b := Burstable{Prefix: l.options.Prefix, Host: "h9", Resource: r, TokenBucket: bucket}
		if err := b.KeepCredits(t.Context()); err == nil || !strings.Contains(err.Error(), "h9") && !strings.Contains(err.Error(), "memory") {
			t.Errorf("credits of the %s of a host that does not exist: %v", r, err)
		}
	}
}

// watched is the instance of host h1. The channel is closed when it is slowed down for the first time.
func watched(l *Lab, r quell.Resource, bucket *TokenBucket) (b Burstable, slow <-chan struct{}) {
	fell, once := make(chan struct{}), sync.Once{}
	return Burstable{Prefix: l.options.Prefix, Host: "h1", Resource: r, Folder: l.options.Dir, TokenBucket: bucket, Counted: func(c Counted) {
		if c.Slow {
			once.Do(func() { close(fell) })
		}
	}}, fell
}

func awaitSlow(t *testing.T, slow <-chan struct{}, done <-chan error) {
	t.Helper()
	select {
	case <-slow:
	case err := <-done:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("the credits last for a minute")
	}
}

// An instance that sends as fast as it can has the whole link while it has credits, and then only its baseline.
func TestAnInstanceRunsOutOfNetworkCredits(t *testing.T) {
	const link, baseline, credits = 80e6, 8e6, 10e6 // bit/s, bit/s and bits
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Network: link}}})
	url := startNginx(t, l, "h1", map[string]int64{"file": 200_000})
	c := client(place(t, l, "", Client), true)
	bucket := NewTokenBucket(credit.Bucket{Baseline: baseline, Burst: link, PerUse: 1, Cap: credits}, credits)
	burstable, slow := watched(l, quell.Network, bucket)
	ctx, stop := context.WithCancel(t.Context())
	done, ended, enough := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go func() { done <- burstable.KeepCredits(ctx) }()
	go func() {
		defer close(ended)
		for {
			if _, err := get(c, url+"/file"); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-enough:
				return
			default:
			}
		}
	}()
	awaitSlow(t, slow, done)
	eventually(t, "the link to be slow", func() bool { return l.rate(t) < 1.5*baseline })
	close(enough)
	<-ended
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if rate := l.rate(t); math.Abs(rate-link) > 8 {
		t.Errorf("at the end the link has %v bit/s", rate)
	}
}

// rate returns the rate of h1's link.
func (l *Lab) rate(t *testing.T) float64 {
	t.Helper()
	m, err := newLinkMeter(l.options.Prefix, "h1")
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	list, err := m.(*linkMeter).handle.QdiscList(m.(*linkMeter).uplink)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	return 8 * float64(list[0].(*netlink.Tbf).Rate)
}

// An instance that reads past the cache has the whole disk while it has credits, and then only its baseline.
func TestAnInstanceRunsOutOfDiskCredits(t *testing.T) {
	const whole, baseline, credits = 400, 20, 200 // operations per second, and operations
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", DiskIOPS: whole}}})
	need.Program(t, "dd")
	file := filepath.Join(l.options.Dir, "data")
	if err := fill(file, 4<<20); err != nil {
		t.Fatal(err)
	}
	bucket := NewTokenBucket(credit.Bucket{Baseline: baseline, Burst: whole, PerUse: 1, Cap: credits}, credits)
	burstable, slow := watched(l, quell.Disk, bucket)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- burstable.KeepCredits(ctx) }()
	reader := exec.Command("sh", "-c", "while :; do dd if=data of=/dev/null bs=4096 iflag=direct 2> /dev/null || exit; done")
	reader.Dir, reader.SysProcAttr = l.options.Dir, &syscall.SysProcAttr{Setpgid: true}
	if err := place(t, l, "h1", Instance).Start(reader); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-reader.Process.Pid, syscall.SIGKILL)
		_ = reader.Wait()
	}()
	awaitSlow(t, slow, done)
	m, err := burstable.meter()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the disk to be slow", func() bool {
		before, began := mustUse(t, m), time.Now()
		time.Sleep(time.Second) // what is measured is a rate
		return (mustUse(t, m)-before)/time.Since(began).Seconds() < 3*baseline
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func mustUse(t *testing.T, m meter) float64 {
	t.Helper()
	used, err := m.used()
	if err != nil {
		t.Fatal(err)
	}
	return used
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

func TestOperationsOnADisk(t *testing.T) {
	for text, want := range map[string]float64{
		"": 0, "8:0\n": 0, "8:16 Read 5\n": 0,
		"8:0 Read 3\n8:0 Write 4\n8:0 Sync 7\n8:0 Total 7\nTotal 7\n":               7,
		"8:0 rbytes=9 wbytes=9 rios=3 wios=4 dbytes=0 dios=9\n8:16 rios=1 wios=1\n": 7,
	} {
		if got, err := operationsOn("8:0", text); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	if _, err := operationsOn("8:0", "8:0 rios=many wios=1\n"); err == nil {
		t.Error("a count that is no number is accepted")
	}
}
