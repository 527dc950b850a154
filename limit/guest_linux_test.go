package limit

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/guest"
)

// TestOtherKernel runs TestInGuest in a virtual machine: its kernel has control groups of version 2, and ifb.
func TestOtherKernel(t *testing.T) {
	guest.Run(t, "..", "ifb", "sch_ingress", "sch_tbf", "cls_matchall", "act_mirred", "sch_fq")
}

// TestInGuest runs in the virtual machine.
func TestInGuest(t *testing.T) {
	if !guest.Inside() {
		t.Skip("runs in the guest only, see TestOtherKernel")
	}
	if err := os.MkdirAll("/tmp", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, m := range [][2]string{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"cgroup2", "/sys/fs/cgroup"}, {"devtmpfs", "/dev"},
	} {
		if err := errors.Join(os.MkdirAll(m[1], 0o755), unix.Mount(m[0], m[1], m[0], 0, "")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu"), 0); err != nil {
		t.Fatal(err)
	}
	t.Run("processors", TestThisMachinesProcessors)
	t.Run("weights", TestThisMachinesWeights)
	t.Run("proportions", guestProportions)
	t.Run("sending", guestSending)
	t.Run("receiving", guestReceiving) // leaves a queueing discipline of somebody else's
}

// guestProportions checks that the kernel divides a processor by weights, and obeys a quota.
func guestProportions(t *testing.T) {
	var folders []string
	for _, name := range []string{"/a", "/b"} {
		folder := "/sys/fs/cgroup" + name
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		folders = append(folders, folder)
		cmd := exec.Command("/init")
		cmd.Env = append(os.Environ(), roleVariable+"="+busyRole)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it runs for ever
			_ = cmd.Wait()
		})
		if err := os.WriteFile(folder+"/cgroup.procs", fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
			t.Fatal(err)
		}
	}
	l := New(Options{Records: t.TempDir()})
	wantNone(t, l.Apply(map[Target]float64{
		{Group: "/a", Resource: quell.CPU, Form: Weight}: 3, {Group: "/b", Resource: quell.CPU, Form: Weight}: 0.5,
	}))
	ran := during(t, folders, 3*time.Second)
	if ratio := ran[0] / ran[1]; math.Abs(ratio-6) > 1.5 {
		t.Errorf("with weights of 6 to 1 they ran %.2f s and %.2f s", ran[0], ran[1])
	}
	wantNone(t, l.Apply(cpuOf("/a", 0.2)))
	if ran := during(t, folders, 3*time.Second); ran[0] > 0.25*3 {
		t.Errorf("under a quota of 0.2 processors, a ran %.2f s of 3 s", ran[0])
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// during returns for how many seconds the groups ran.
func during(t *testing.T, folders []string, d time.Duration) (seconds []float64) {
	t.Helper()
	used := func(folder string) float64 {
		text, err := os.ReadFile(folder + "/cpu.stat")
		var us float64
		if _, wrong := fmt.Sscanf(string(text), "usage_usec %f", &us); err != nil || wrong != nil {
			t.Fatalf("%q: %v, %v", text, err, wrong)
		}
		return us / 1e6
	}
	for _, folder := range folders {
		seconds = append(seconds, -used(folder))
	}
	time.Sleep(d)
	for i, folder := range folders {
		seconds[i] += used(folder)
	}
	return seconds
}

// guestSending limits what an interface sends. This kernel has a queue that is fair to all connections.
func guestSending(t *testing.T) {
	l, target := New(Options{Records: t.TempDir()}), Target{Group: "lo", Resource: quell.Network}
	for _, rate := range []float64{8e6, 4e6} {
		wantNone(t, l.Apply(map[Target]float64{target: rate}))
		if value, limited := sent.value(must(sent.read("lo"))); !limited || value != rate {
			t.Errorf("%v bit/s are in force, want %v", value, rate)
		}
		if kinds := qdiscsOf(t, "lo"); !slices.Equal(kinds, []string{"tbf", "fq"}) {
			t.Errorf("queueing disciplines: %v", kinds)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if kinds := qdiscsOf(t, "lo"); slices.Contains(kinds, "tbf") || slices.Contains(kinds, "fq") {
		t.Errorf("left: %v", kinds)
	}
}

// qdiscsOf lists the kinds of an interface's queueing disciplines.
func qdiscsOf(t *testing.T, name string) (kinds []string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	list, err := netlink.QdiscList(link)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range list {
		kinds = append(kinds, q.Type())
	}
	return kinds
}

// guestReceiving limits what the loopback interface receives.
func guestReceiving(t *testing.T) {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, target := New(Options{Records: t.TempDir()}), Target{Group: "lo", Resource: quell.Network, Form: Receiving}
	const rate, bucket = 8e6, 8e6 // bit/s, and bits that may come at once
	wantNone(t, l.Apply(map[Target]float64{target: 4e6}))
	wantNone(t, l.Apply(map[Target]float64{target: rate}))
	if value, limited := (ingress{}).value(must((ingress{}).read("lo"))); !limited || value != rate {
		t.Errorf("%v bit/s are in force, want %v", value, float64(rate))
	}
	if kinds := qdiscsOf(t, sender(lo)); !slices.Equal(kinds, []string{"tbf"}) { // whose queue is short
		t.Errorf("queueing disciplines: %v", kinds)
	}
	if bits, took := receive(t, 5*time.Second); bits == 0 || bits > rate*took.Seconds()+bucket {
		t.Errorf("%.0f bits came in %v", bits, took)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	links, err := netlink.LinkList()
	for _, link := range links {
		if strings.HasPrefix(link.Attrs().Name, "quell") {
			t.Errorf("%s is left", link.Attrs().Name)
		}
	}
	if left, wrong := redirecting(lo); err != nil || wrong != nil || left {
		t.Errorf("a redirection is left: %v, %v, %v", left, err, wrong)
	}
	theirs := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: lo.Attrs().Index, Parent: netlink.HANDLE_INGRESS,
		Handle: netlink.MakeHandle(0xffff, 0)}}
	if err := netlink.QdiscAdd(theirs); err != nil {
		t.Fatal(err)
	}
	wantOne(t, l.Apply(map[Target]float64{target: rate}), "that somebody else set: it stays")
	if kept, err := redirecting(lo); err != nil || !kept {
		t.Errorf("somebody else's is gone: %v", err)
	}
}

// receive receives over the loopback interface for a time, and returns how much came in how long. On a busy machine what is lost makes the
// sender wait, so there is no least amount.
func receive(t *testing.T, lasts time.Duration) (bits float64, took time.Duration) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for chunk := make([]byte, 64<<10); err == nil; {
			_, err = conn.Write(chunk)
		}
	}()
	begin := time.Now()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(begin.Add(lasts)); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, conn)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes came, %v", n, err)
	}
	return 8 * float64(n), time.Since(begin)
}
