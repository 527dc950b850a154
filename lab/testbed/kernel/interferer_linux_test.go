package kernel

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
)

// Interfering programs use the sizes in the scenario, and never sizes that they detect on the machine.
func TestArgumentsSaySizes(t *testing.T) {
	for _, c := range []struct {
		why  string
		got  []string
		want string
	}{
		{"as many workers as the host has cores", stressArgs(quell.CPU, "/lab", 2.5),
			"--quiet --temp-path /lab --timeout 0 --cpu 3 --cpu-method int64"},
		{"a cache of a size of our own", stressArgs(quell.Memory, "/lab", 0.4),
			"--quiet --temp-path /lab --timeout 0 --stream 1 --stream-l3-size 4M"},
		{"one stream", networkArgs("10.77.1.4", "5201", 1e6, true),
			"--client 10.77.1.4 --port 5201 --time 0 --interval 0 --parallel 1 --pacing-timer 1000 --bitrate 956407 --length 16K"},
		{"one flow of datagrams", networkArgs("10.77.1.4", "5201", 1e6, false),
			"--client 10.77.1.4 --port 5201 --time 0 --interval 0 --parallel 1 --pacing-timer 1000 --udp --bitrate 970874 --length 1400"},
		{"one job on a file of a given size", diskArgs("/lab/f", 1<<20, 0.2, false),
			"--name=interferer --filename=/lab/f --size=1048576 --rw=randread --bs=4k --direct=1 --ioengine=psync --thread --numjobs=1 " +
				"--rate_iops=1 --time_based --runtime=1000d --eta=never"},
		{"reads and writes", diskArgs("/lab/f", 1<<20, 40, true),
			"--name=interferer --filename=/lab/f --size=1048576 --rw=randrw --bs=4k --direct=1 --ioengine=psync --thread --numjobs=1 " +
				"--rate_iops=40,40 --time_based --runtime=1000d --eta=never --rate_process=poisson"},
	} {
		if got := strings.Join(c.got, " "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.why, got, c.want)
		}
	}
	if unlimited := (&Machine{}).cores(); unlimited != 1 {
		t.Errorf("a host without a limit counts as %v cores, whatever the machine has: want 1", unlimited)
	}
	if !strings.Contains(configuration, "\nworker_processes 1;\n") {
		t.Error("nginx's configuration leaves the number of workers to the machine")
	}
}

// On a processor with a last-level cache of 480 MiB, the interferer for memory is as small as on any other processor, and ends at once.
func TestMemoryInterfererOnALargeCache(t *testing.T) {
	need.Program(t, "stress-ng")
	need.Program(t, "unshare")
	onALargeCache(t, "480M")
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Cores: 0.4}}})
	m := l.Machine("h1")
	interfere(t, m, quell.Memory, 0.5)
	folders := l.groups.foldersOf(filepath.Join(base(l.options.Prefix), "h1", "nb-memory"))
	const one, most = 12 << 10, 256 << 10 // kB; its three arrays take 16 MiB each
	eventually(t, "the first array", func() bool { return privateMemory(t, folders) > one })
	if got := privateMemory(t, folders); got > most {
		t.Errorf("the interferer takes %d kB", got)
	}
}

// onALargeCache puts a stress-ng first in the search path that detects a last-level cache of the given size.
func onALargeCache(t *testing.T, size string) {
	t.Helper()
	caches, err := filepath.Glob("/sys/devices/system/cpu/cpu*/cache/index3/size")
	if err != nil || len(caches) == 0 {
		need.Skip(t, "needs a processor that tells of a last-level cache")
	}
	program, err := exec.LookPath("stress-ng")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	told := filepath.Join(dir, "size")
	if err := os.WriteFile(told, []byte(size+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec unshare --mount sh -ec 'for c in %s; do mount --bind %s $c; done; exec %s \"$@\"' sh \"$@\"\n",
		strings.Join(caches, " "), told, program)
	if err := os.WriteFile(filepath.Join(dir, "stress-ng"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// privateMemory returns the largest private memory, in kB, that a process in the groups has requested.
func privateMemory(t *testing.T, folders []string) (most int) {
	t.Helper()
	for _, folder := range folders {
		pids, err := members(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it may have ended
			_, after, _ := bytes.Cut(status, []byte("\nVmData:"))
			if fields := bytes.Fields(after); len(fields) > 0 {
				kb, err := strconv.Atoi(string(fields[0]))
				if err != nil {
					t.Fatal(err)
				}
				most = max(most, kb)
			}
		}
	}
	return most
}

// awaitUse waits until the neighbour has used some more processor time.
func awaitUse(t *testing.T, m *Machine) {
	t.Helper()
	_, before, err := m.CPUCarried()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the neighbour to use the processor", func() bool {
		_, now, err := m.CPUCarried()
		return err == nil && now > before+0.01
	})
}

// eventually waits until a condition holds, for as long as a busy machine may need.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// The lab is removed whatever a program does: here one ignores signals, keeps starting others in their own sessions, and gets
// hardly any processor time.
func TestCloseEndsWhoeverRuns(t *testing.T) {
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Cores: 0.3}}})
	const defiant = `trap "" TERM INT HUP QUIT; while :; do setsid sh -c 'trap "" TERM INT HUP QUIT; sleep 0.2 & sleep 0.2' & sleep 0.02; done`
	for _, role := range []Role{Instance, Neighbour} {
		cmd := exec.Command("setsid", "sh", "-c", defiant)
		if err := place(t, l, "h1", role).Start(cmd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	folder := filepath.Join(l.groups.cpu, base(l.options.Prefix), "h1", "nb")
	eventually(t, "the program's children", func() bool {
		pids, err := members(folder)
		return err == nil && len(pids) > 3
	})
	if err := l.groups.limitCPU(filepath.Join(base(l.options.Prefix), "h1"), 0.001); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left := traces(t, l.options.Prefix); len(left) > 0 {
		t.Errorf("Close left %v", left)
	}
}

// An interferer's program that leaves children behind is ended together with them.
func TestInterfererTakesItsChildrenAlong(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	const script = "#!/bin/sh\ntrap '' TERM\nsetsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' &\nwhile :; do sleep 0.1; done\n"
	if err := os.WriteFile(filepath.Join(dir, "stress-ng"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Cores: 0.3}}})
	m := l.Machine("h1")
	interfere(t, m, quell.CPU, 0.5)
	folders := l.groups.foldersOf(filepath.Join(base(l.options.Prefix), "h1", "nb-cpu"))
	eventually(t, "the interferer's child", func() bool {
		pids, err := members(folders[0])
		return err == nil && len(pids) >= 2
	})
	interfere(t, m, quell.CPU, 0)
	for _, folder := range folders {
		if left, err := members(folder); err != nil || slices.ContainsFunc(left, func(pid int) bool { return !ended(pid) }) {
			t.Errorf("%s still holds %v, %v", folder, left, err)
		}
	}
}

// Work of the instance itself happens in the instance's control group and on its own interface, not in the neighbour's.
func TestOwnWorkBelongsToTheInstance(t *testing.T) {
	need.Program(t, "iperf3")
	need.Program(t, "stress-ng")
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Network: 100e6, Cores: 0.5}}})
	m := l.Machine("h1")
	if err := m.Work(map[quell.Resource]float64{quell.Network: 0.4, quell.CPU: 0.5}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its own work to use link and processor", func() bool {
		sent, invaded, err := m.Carried()
		if err != nil {
			t.Fatal(err)
		}
		ran, others, err := m.CPUCarried()
		if err != nil {
			t.Fatal(err)
		}
		if others > 0 || invaded > 0.001 {
			t.Fatalf("the neighbour, which does nothing, used %.3f s of the processor and %.3f s of the link", others, invaded)
		}
		return sent > 0.1 && ran > 0.1
	})
	if err := m.Work(nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Work(map[quell.Resource]float64{quell.Memory: 0.4}); err == nil {
		t.Error("own work on the memory is played")
	}
}
