package sensor

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell"
)

// statOf is /proc/PID/stat of a process.
func statOf(pid int, name string, flags, user, system, start int) string {
	return fmt.Sprintf("%d (%s) S 1 1 1 0 -1 %d 0 0 0 0 %d %d 0 0 20 0 1 0 %d 1 1 1", pid, name, flags, user, system, start)
}

func TestTopNamesWhoUsesMost(t *testing.T) {
	root := fstest.MapFS{}
	put := func(name, text string) { root["proc/"+name] = &fstest.MapFile{Data: []byte(text)} }
	link := func(name, to string) {
		root["proc/"+name] = &fstest.MapFile{Data: []byte(to), Mode: os.ModeSymlink | 0o777}
	}
	const tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 777 1\n"
	set := func(server, backup, thread int) {
		for pid, p := range map[int]string{
			10: statOf(10, "nginx", 0, server, 0, 5), 20: statOf(20, "tar (x) y", 0, backup/2, backup/2, 6),
			30: statOf(30, "kworker", kernelThread, thread, 0, 7),
		} {
			put(fmt.Sprintf("%d/stat", pid), p)
			put(fmt.Sprintf("%d/net/tcp", pid), tcp)
			put(fmt.Sprintf("%d/io", pid), fmt.Sprintf("read_bytes: %d\nwrite_bytes: 0\n", 4096*backup*pid/20))
		}
	}
	set(100, 100, 100)
	link("10/fd/3", "socket:[777]")
	link("20/fd/3", "socket:[778]")
	put("20/cgroup", "0::/system.slice/backup.service\n")
	top := NewTop(Options{Root: root, Capacity: map[quell.Resource]float64{quell.Disk: 1000}}, nil)
	now := time.Now()
	sample := func() map[quell.Resource]quell.User {
		t.Helper()
		obs := quell.Observation{Sched: &quell.Sched{Cores: 2}}
		if err := top.Sample(now, &obs); err != nil {
			t.Fatal(err)
		}
		now = now.Add(10 * time.Second)
		return obs.Top
	}
	if got := sample(); got != nil {
		t.Errorf("the first sample names %v", got)
	}
	set(1100, 600, 2000) // of 2000 ticks: the server 1000, the backup 500
	got := sample()
	if want := (quell.User{Name: "tar (x) y (backup.service)", Use: 0.25}); got[quell.CPU] != want {
		t.Errorf("cpu: %+v, want %+v", got[quell.CPU], want)
	}
	if want := 500. / 10 / 1000; got[quell.Disk].Use != want {
		t.Errorf("disk: %+v, want a use of %g", got[quell.Disk], want)
	}
	set(2100, 610, 4000)
	if got := sample(); got != nil {
		t.Errorf("nobody but the server works, and %v is named", got)
	}
}

// A process of this machine that computes is named, and one that waits for connections is not.
func TestTopOfThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dir := t.TempDir()
	name := filepath.Join(dir, "quell-busy") // a name that nobody else has
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(shell, name); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, name, "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	top := NewTop(Options{Root: os.DirFS("/")}, nil)
	obs := quell.Observation{}
	if err := top.Sample(time.Now(), &obs); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		after, err := top.read()
		if err != nil {
			t.Fatal(err)
		}
		for id, s := range after {
			if id.pid == cmd.Process.Pid && s.ticks > 2 {
				if !strings.HasPrefix(s.name, "quell-busy") || top.serves(fmt.Sprint(id.pid)) {
					t.Fatalf("%+v counts as a server", s)
				}
				if self := fmt.Sprint(os.Getpid()); !top.serves(self) {
					t.Error("this process waits for connections")
				}
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("it never ran")
		}
	}
}
