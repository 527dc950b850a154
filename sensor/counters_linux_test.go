package sensor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
)

// clocks is a pair that the kernel itself counts, so every machine has it: twice the time of a processor, in ns.
var clocks = [2]event{{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK}, {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK}}

// openClocks counts the clocks on all processors, of a group or, without a folder, of everything.
func openClocks(t *testing.T, folder string) *pairSensor {
	t.Helper()
	need.Root(t)
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	online, err := parseProcessors(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	p := &pairSensor{}
	t.Cleanup(p.close)
	for _, processor := range online {
		f, err := openEvents(clocks, processor, "/", folder)
		if err != nil {
			need.Skip(t, "needs perf events: "+err.Error())
		}
		p.files = append(p.files, f)
	}
	return p
}

func readAll(t *testing.T, p *pairSensor) []counts {
	t.Helper()
	list, err := p.read()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestTheKernelCounts checks what the kernel returns for a pair of a whole processor.
func TestTheKernelCounts(t *testing.T) {
	p := openClocks(t, "")
	before := readAll(t, p)
	work()
	for i, after := range readAll(t, p) {
		then := before[i]
		if after.enabled <= then.enabled || after.running <= then.running || after.first <= then.first || after.second <= then.second {
			t.Errorf("processor %d: %+v, then %+v", i, then, after)
		}
		if after.running > after.enabled {
			t.Errorf("processor %d counted for longer than it should have: %+v", i, after)
		}
	}
}

// work keeps a processor busy for some milliseconds of its time.
func work() {
	x := uint64(1)
	for range 20_000_000 {
		x = x*6364136223846793005 + 1
	}
	if x == 0 {
		fmt.Println(x) // else the compiler might leave the loop out
	}
}

// TestTheKernelCountsOneGroup checks that only the tasks of the group are counted.
func TestTheKernelCountsOneGroup(t *testing.T) {
	need.Root(t)
	folder := filepath.Join(mountOfGroups(t), "quell-counters-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(folder, 0o755); err != nil {
		need.Skip(t, "needs control groups of version 2: "+err.Error())
	}
	t.Cleanup(func() {
		if err := os.Remove(folder); err != nil {
			t.Error(err)
		}
	})
	busy := exec.Command("sh", "-c", "read go; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
	in, err := busy.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = busy.Wait() }) // usually it has ended
	if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(busy.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	p := openClocks(t, strings.TrimPrefix(folder, "/"))
	before := readAll(t, p)
	work() // not in the group
	after := readAll(t, p)
	if idle := between(before, after); idle > time.Millisecond {
		t.Errorf("a group that waits ran for %v", idle)
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	if err := busy.Wait(); err != nil {
		t.Fatal(err)
	}
	last := readAll(t, p)
	ran, enabled := between(after, last), time.Duration(0)
	for i := range last {
		enabled += time.Duration(last[i].enabled - after[i].enabled)
	}
	used := busy.ProcessState.UserTime() + busy.ProcessState.SystemTime()
	if ran < used/2 || ran > 2*used+10*time.Millisecond {
		t.Errorf("the group's events counted %v, and its only process used %v", ran, used)
	}
	if enabled < ran/2 || enabled > 2*ran+10*time.Millisecond {
		t.Errorf("a group's events are to be counted while it runs: it ran for %v, they were enabled for %v", ran, enabled)
	}
	if _, err := openEvents(clocks, 0, "/", strings.TrimPrefix(folder, "/")+"/none"); !errors.Is(err, errGone) {
		t.Errorf("a group that is not there: %v", err)
	}
}

// between is how much the first count grew, summed over processors.
func between(before, after []counts) (sum time.Duration) {
	for i := range after {
		sum += time.Duration(after[i].first - before[i].first)
	}
	return sum
}

// mountOfGroups is where control groups of version 2 are mounted, with or without controllers.
func mountOfGroups(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	need.Skip(t, "needs control groups of version 2")
	return ""
}

// TestCountersOfThisMachine measures real counters. Most virtual machines have none, and nothing can be installed to change that.
func TestCountersOfThisMachine(t *testing.T) {
	sensor := NewCounters(Options{Root: os.DirFS("/"), Events: KernelEvents("/")})
	defer sensor.Close()
	lack := (*Unavailable)(nil)
	err := sensor.Sample(time.Now(), &quell.Observation{})
	if errors.As(err, &lack) {
		t.Skip(lack)
	}
	if err != nil {
		t.Fatal(err)
	}
	work()
	var obs quell.Observation
	if err := sensor.Sample(time.Now(), &obs); err != nil {
		t.Fatal(err)
	}
	if cpi, ok := obs.Counters[quell.CounterCPI]; ok && !(cpi > 0.05 && cpi < 50) {
		t.Errorf("%g cycles per instruction", cpi)
	}
	if rate, ok := obs.Counters[quell.CounterMissRate]; ok && !(rate >= 0 && rate <= 1) {
		t.Errorf("%g of the cache's accesses miss", rate)
	}
}
