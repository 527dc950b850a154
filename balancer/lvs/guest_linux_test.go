package lvs

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	nlink "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/guest"
)

// The kernel of the machine that runs the tests often has no IPVS. So TestKernel starts a small virtual machine with a kernel that has it.

func TestMain(m *testing.M) {
	if role := os.Getenv(iceRole); role != "" {
		os.Exit(playICERole(role))
	}
	os.Exit(guest.Main(m))
}

// TestKernel runs TestInGuest in the virtual machine.
func TestKernel(t *testing.T) { guest.Run(t, "../..", "ip_vs", "ip_vs_wrr", "ip_vs_wlc") }

// Commands and attributes with which the test makes what a person makes with ipvsadm.
const (
	newService = 1
	newDest    = 5

	serviceFlags   = 7
	serviceTimeout = 8
	serviceNetmask = 9
)

// makeService makes a virtual service, with the scheduler wrr.
func makeService(t *testing.T, v virtual) {
	t.Helper()
	s := serviceOf(v)
	s.AddRtAttr(serviceScheduler, nl.ZeroTerminated("wrr"))
	s.AddRtAttr(serviceFlags, make([]byte, 8))
	s.AddRtAttr(serviceTimeout, nl.Uint32Attr(0))
	netmask := uint32(0xffffffff)
	if v.six {
		netmask = 128
	}
	s.AddRtAttr(serviceNetmask, nl.Uint32Attr(netmask))
	command(t, newService, s)
}

// makeReal makes a real server. It has further attributes, whose loss the test would notice.
func makeReal(t *testing.T, v virtual, address string, weight int, more ...attr) {
	t.Helper()
	a := netip.MustParseAddrPort(address)
	dest := nl.NewRtAttr(destAttr, nil)
	dest.AddRtAttr(destAddress, a.Addr().AsSlice())
	dest.AddRtAttr(destPort, nl.BEUint16Attr(a.Port()))
	dest.AddRtAttr(destWeight, nl.Uint32Attr(uint32(weight)))
	for _, m := range more {
		dest.AddRtAttr(int(m.kind), m.value)
	}
	command(t, newDest, serviceOf(v), dest)
}

func command(t *testing.T, what uint8, parts ...*nl.RtAttr) {
	t.Helper()
	id, err := familyID()
	if err == nil {
		_, err = ask(id, what, unix.NLM_F_ACK, parts...)
	}
	if err != nil {
		t.Fatalf("command %d: %v", what, err)
	}
}

// TestInGuest runs in the virtual machine.
func TestInGuest(t *testing.T) {
	if !guest.Inside() {
		t.Skip("runs in the guest only, see TestKernel")
	}
	bringUp(t, "10.9.0.1/32", "10.9.0.11/32", "10.9.0.12/32")
	if program := os.Getenv(iceProgram); program != "" {
		mountAll(t)
		t.Run("ice", func(t *testing.T) { guestICE(t, program) })
		return
	}
	if _, err := os.Stat(ipvsadm); err == nil {
		mountAll(t)
		t.Run("deleted", guestDeleted)
		t.Run("keepalived", guestKeepalived)
		return
	}
	t.Run("weights", guestWeights)
	t.Run("before", guestBefore)
	t.Run("forwarding", guestForwarding)
	t.Run("marks", guestMarks)
	t.Run("many", guestMany)
	t.Run("missing", guestMissing)
	t.Run("privilege", guestPrivilege)
}

// bringUp gives the loopback interface addresses.
func bringUp(t *testing.T, addresses ...string) {
	t.Helper()
	lo, err := nlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := nlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	for _, text := range addresses {
		a, err := nlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := nlink.AddrAdd(lo, a); err != nil {
			t.Fatal(err)
		}
	}
}

// answering answers each connection with its own address.
func answering(t *testing.T, address string) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(address))
			conn.Close()
		}
	}()
}

// served counts which real server answers how many of n connections.
func served(t *testing.T, virtual string, n int) map[string]int {
	t.Helper()
	count := map[string]int{}
	for range n {
		conn, err := net.DialTimeout("tcp", virtual, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		name := make([]byte, 100)
		k, err := conn.Read(name)
		conn.Close()
		if err != nil {
			t.Fatal(err)
		}
		count[string(name[:k])]++
	}
	return count
}

func guestWeights(t *testing.T) {
	const vip, one, two = "10.9.0.1:80", "10.9.0.11:80", "10.9.0.12:80"
	v, err := parseVirtual(vip)
	if err != nil {
		t.Fatal(err)
	}
	makeService(t, v)
	masquerading := []attr{{destMethod, nl.Uint32Attr(0)}, {destUpper, nl.Uint32Attr(0)}, {destLower, nl.Uint32Attr(0)}}
	makeReal(t, v, one, 1, masquerading...)
	makeReal(t, v, two, 1, masquerading...)
	answering(t, one)
	answering(t, two)
	d, err := New(Options{Services: []string{vip}, Logger: nil})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(first, second float64) map[string]quell.BackendState {
		t.Helper()
		list := []quell.Backend{{ID: "a", Address: one, Weight: first}, {ID: "b", Address: two, Weight: second, Draining: second == 0}}
		if err := d.Apply(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		states, err := d.State(t.Context())
		if err != nil || len(states) != 2 {
			t.Fatalf("%+v, %v", states, err)
		}
		return map[string]quell.BackendState{"a": states[0], "b": states[1]}
	}
	if s := apply(0.75, 0.25); s["a"].Weight != 0.75 || s["b"].Weight != 0.25 || !s["a"].Healthy {
		t.Errorf("in force: %+v", s)
	}
	if got := served(t, vip, 40); got[one] != 30 || got[two] != 10 {
		t.Errorf("wrr with 3:1 served %v", got)
	}
	if s := apply(1, 0); !s["b"].Draining || s["b"].ByHand != nil {
		t.Errorf("draining: %+v", s)
	}
	if got := served(t, vip, 10); got[one] != 10 {
		t.Errorf("one drains, served %v", got)
	}
	apply(0.5, 0.5)
	edit(t, v, one, 9) // somebody else changes a weight, which is set again
	if states, err := d.State(t.Context()); err != nil || states[0].Weight == 0.5 {
		t.Errorf("an edit does not show: %+v, %v", states, err)
	}
	if s := apply(0.5, 0.5); s["a"].Weight != 0.5 {
		t.Errorf("an edit stays: %+v", s)
	}
	edit(t, v, one, 0) // somebody else takes a real server out, which stays so
	if s := apply(0.5, 0.5); s["a"].ByHand == nil || weightOf(t, v, one) != 0 {
		t.Errorf("held: %+v", s)
	}
}

// guestBefore checks that weights that people gave, 30 and 60, are left while the shares agree with them, and come back after the
// controller was killed. A weight of 0 from before Quell stays. Without the memory nothing is guessed.
func guestBefore(t *testing.T) {
	const vip, one, two, idle = "10.9.0.1:81", "10.9.0.11:81", "10.9.0.12:81", "10.9.0.12:82"
	t.Setenv("TMPDIR", "/") // the guest has no /tmp
	v, err := parseVirtual(vip)
	if err != nil {
		t.Fatal(err)
	}
	makeService(t, v)
	masquerading := []attr{{destMethod, nl.Uint32Attr(0)}, {destUpper, nl.Uint32Attr(0)}, {destLower, nl.Uint32Attr(0)}}
	for address, weight := range map[string]int{one: 30, two: 60, idle: 0} {
		makeReal(t, v, address, weight, masquerading...)
	}
	o := Options{Services: []string{vip}, Memory: filepath.Join(t.TempDir(), "lvs.json"),
		Members: []quell.Member{{ID: "a", Address: one}, {ID: "b", Address: two}, {ID: "c", Address: idle}}}
	start := func() *Driver {
		d, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	want := func(when string, first, second int) {
		t.Helper()
		if a, b, c := weightOf(t, v, one), weightOf(t, v, two), weightOf(t, v, idle); a != first || b != second || c != 0 {
			t.Errorf("%s: weights %d, %d and %d, want %d, %d and 0", when, a, b, c, first, second)
		}
	}
	apply := func(d *Driver, first, second float64) {
		t.Helper()
		states, err := d.State(t.Context())
		if err != nil || len(states) != 3 || states[2].ByHand == nil || *states[1].Base != 2**states[0].Base {
			t.Fatalf("%+v, %v", states, err)
		}
		list := []quell.Backend{{ID: "a", Address: one, Weight: first}, {ID: "b", Address: two, Weight: second}, {ID: "c", Address: idle}}
		if err := d.Apply(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	d := start()
	apply(d, 1./3, 2./3)
	want("shares by base weight", 30, 60)
	apply(d, 0.5, 0.5)
	apply(start(), 0.75, 0.25) // the other was killed
	if unknown, err := start().Restore(t.Context()); err != nil || len(unknown) > 0 {
		t.Errorf("released: not known %v, %v", unknown, err)
	}
	want("released", 30, 60)
	apply(start(), 0.75, 0.25)
	if err := os.Remove(o.Memory); err != nil {
		t.Fatal(err)
	}
	unknown, err := start().Restore(t.Context())
	if err != nil || !strings.Contains(strings.Join(unknown, " "), "record of the virtual services is missing") {
		t.Errorf("the memory is lost: %v, %v", unknown, err)
	}
	if a, b := weightOf(t, v, one), weightOf(t, v, two); a != 3*b {
		t.Errorf("the memory is lost, and the weights became %d and %d", a, b)
	}
}

// edit changes a weight as a person does.
func edit(t *testing.T, v virtual, address string, weight int) {
	t.Helper()
	k := &netlink{}
	if err := k.setWeight(v, find(t, k, v, address), weight); err != nil {
		t.Fatal(err)
	}
}

func find(t *testing.T, k *netlink, v virtual, address string) *realServer {
	t.Helper()
	s, err := k.look(v)
	if err != nil {
		t.Fatal(err)
	}
	s.index(nil)
	r := s.find(netip.MustParseAddrPort(address))
	if r == nil {
		t.Fatalf("no real server %s in %+v", address, s)
	}
	return r
}

func weightOf(t *testing.T, v virtual, address string) int {
	t.Helper()
	return find(t, &netlink{}, v, address).weight
}

// guestForwarding checks that a change of the weight changes nothing else, for each way of forwarding and for both families.
func guestForwarding(t *testing.T) {
	const masquerade, tunnel, direct = 0, 2, 3
	v, err := parseVirtual("udp:10.9.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	six, err := parseVirtual("[fd09::1]:80")
	if err != nil {
		t.Fatal(err)
	}
	makeService(t, v)
	makeService(t, six)
	method := func(n uint32, upper, lower uint32) []attr {
		return []attr{{destMethod, nl.Uint32Attr(n)}, {destUpper, nl.Uint32Attr(upper)}, {destLower, nl.Uint32Attr(lower)}}
	}
	gue := append(method(tunnel, 0, 0), attr{destTunType, nl.Uint8Attr(1)}, attr{destTunPort, nl.BEUint16Attr(6080)},
		attr{destTunFlags, nl.Uint16Attr(0)})
	for _, c := range []struct {
		v       virtual
		address string
		attrs   []attr
	}{
		{v, "10.9.1.1:53", method(masquerade, 100, 50)},
		{v, "10.9.1.2:53", method(direct, 0, 0)},
		{v, "10.9.1.3:53", method(tunnel, 7, 3)},
		{v, "10.9.1.4:53", gue},
		{six, "[fd09::11]:80", method(direct, 0, 0)},
	} {
		makeReal(t, c.v, c.address, 5, c.attrs...)
		before := find(t, &netlink{}, c.v, c.address)
		edit(t, c.v, c.address, 77)
		after := find(t, &netlink{}, c.v, c.address)
		if after.weight != 77 || !slices.EqualFunc(before.kept, after.kept, func(a, b attr) bool {
			return a.kind == b.kind && bytes.Equal(a.value, b.value)
		}) {
			t.Errorf("%s: %+v became %+v", c.address, before, after)
		}
		for _, want := range c.attrs {
			if !slices.ContainsFunc(after.kept, func(a attr) bool { return a.kind == want.kind && bytes.Equal(a.value, want.value) }) {
				t.Errorf("%s lost attribute %d: %+v", c.address, want.kind, after.kept)
			}
		}
	}
}

func guestMarks(t *testing.T) {
	v, err := parseVirtual("fwmark:7")
	if err != nil {
		t.Fatal(err)
	}
	makeService(t, v)
	makeReal(t, v, "10.9.1.1:80", 1, attr{destMethod, nl.Uint32Attr(3)}, attr{destUpper, nl.Uint32Attr(0)}, attr{destLower, nl.Uint32Attr(0)})
	edit(t, v, "10.9.1.1:80", 12)
	if got := weightOf(t, v, "10.9.1.1:80"); got != 12 {
		t.Errorf("weight %d", got)
	}
}

// guestMany reads more real servers than fit into one message of the kernel.
func guestMany(t *testing.T) {
	const many = 400
	v, err := parseVirtual("10.9.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	makeService(t, v)
	var list []quell.Backend
	for i := range many {
		address := fmt.Sprintf("10.8.%d.%d:80", i/250, i%250+1)
		makeReal(t, v, address, 1, attr{destMethod, nl.Uint32Attr(0)}, attr{destUpper, nl.Uint32Attr(0)}, attr{destLower, nl.Uint32Attr(0)})
		list = append(list, quell.Backend{ID: fmt.Sprint(i), Address: address, Weight: float64(1+i%3) / (2 * many)})
	}
	d, err := New(Options{Services: []string{v.String()}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := d.Apply(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	states, err := d.State(t.Context())
	if err != nil || len(states) != many {
		t.Fatalf("%d of %d: %v", len(states), many, err)
	}
	for _, s := range states {
		if i := slices.IndexFunc(list, func(b quell.Backend) bool { return b.ID == s.ID }); s.Backend != list[i] {
			t.Fatalf("%+v, want %+v", s.Backend, list[i])
		}
	}
	t.Logf("%d weights set and read back in %v", many, time.Since(began))
}

func guestMissing(t *testing.T) {
	d, err := New(Options{Services: []string{"10.9.0.99:80"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.State(t.Context()); err == nil || !strings.Contains(err.Error(), "no such virtual service") {
		t.Errorf("%v", err)
	}
}

// guestPrivilege asks without the capability. Only this thread loses it, and the thread ends with the test.
func guestPrivilege(t *testing.T) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			done <- err
			return
		}
		v, _ := parseVirtual("10.9.0.1:80")
		_, err := new(netlink).look(v)
		done <- err
	}()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("%v", err)
	}
}
