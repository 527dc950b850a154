package sensor

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/cgroup"
	"github.com/quellhq/quell/internal/need"
)

// BenchmarkHundredTasks reads four real groups with 25 tasks each. At a period of 100 ms, 1% of a processor is 1 ms for each reading.
func BenchmarkHundredTasks(b *testing.B) {
	need.Root(b)
	for i := range 4 {
		made, err := cgroup.Make(fmt.Sprintf("/quell-bench-%d/%d", os.Getpid(), i))
		if err != nil {
			need.Skip(b, err.Error())
		}
		b.Cleanup(func() {
			for range 1000 {
				if left, err := made.Processes(); err != nil || len(left) == 0 {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			if err := made.Remove(); err != nil {
				b.Error(err)
			}
		})
		if err := made.Enter(); err != nil {
			b.Fatal(err)
		}
		for range 25 {
			cmd := exec.Command("sleep", "1000")
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				_ = cmd.Process.Kill() // it may have ended
				_ = cmd.Wait()
			})
		}
		if err := made.Leave(); err != nil {
			b.Fatal(err)
		}
	}
	groups, err := NewGroups(os.DirFS("/"), []Group{{Path: fmt.Sprintf("/quell-bench-%d/*", os.Getpid())}})
	if err != nil {
		b.Fatal(err)
	}
	before := processorTime(b)
	for b.Loop() {
		s, failures := groups.Sample(time.Now()) // the machine's clock ticks are longer than some of these periods, which is a failure
		if len(s.Instances) != 4 {
			b.Fatalf("%d groups, %v", len(s.Instances), failures)
		}
	}
	b.ReportMetric((processorTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
}

// processorTime is what this process has used, also on a busy machine.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
