package lvs

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/guest"
	"github.com/quellhq/quell/life"
)

// Where Debian has the programs that the guest gets.
const (
	ipvsadm    = "/usr/sbin/ipvsadm"
	keepalived = "/usr/sbin/keepalived"
)

// TestCheckers runs TestInGuest in a virtual machine that has ipvsadm and keepalived.
func TestCheckers(t *testing.T) {
	guest.Machine{Programs: []string{"ipvsadm", "keepalived"}}.Run(t, "../..", "ip_vs", "ip_vs_wrr", "ip_vs_wlc")
}

const vip, realOne, realTwo = "10.9.0.1:80", "10.9.0.11:80", "10.9.0.12:80"

// fleet are two instances behind IPVS, as a controller sees them.
type fleet struct {
	t    *testing.T
	d    *Driver
	past map[string]life.Past
}

func newFleet(t *testing.T, zero ZeroMeans) *fleet {
	t.Helper()
	d, err := New(Options{Services: []string{vip}, Zero: zero})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, d: d, past: map[string]life.Past{}}
	f.apply(0.75, 0.25)
	f.want(quell.Ready, quell.Ready)
	return f
}

func (f *fleet) apply(one, two float64) {
	f.t.Helper()
	list := []quell.Backend{{ID: "web-1", Address: realOne, Weight: one}, {ID: "web-2", Address: realTwo, Weight: two}}
	if err := f.d.Apply(f.t.Context(), list); err != nil {
		f.t.Fatal(err)
	}
}

// snapshot is what a controller would show now.
func (f *fleet) snapshot() []quell.Instance {
	f.t.Helper()
	states, err := f.d.State(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	group := []life.Instance{
		{Member: quell.Member{ID: "web-1", Address: realOne, State: quell.Ready}},
		{Member: quell.Member{ID: "web-2", Address: realTwo, State: quell.Ready}},
	}
	for i := range group {
		in := &group[i]
		in.Past = f.past[in.Member.ID]
		for _, s := range states {
			if s.ID == in.Member.ID {
				in.Backend, in.Known, in.Held = s, true, s.ByHand
			}
		}
	}
	s := life.Snapshot(time.Now(), &quell.Service{Sampling: 4 * time.Millisecond, Group: quell.Group{Startup: time.Minute}}, group)
	for i := range group {
		f.past[group[i].Member.ID] = group[i].Past
	}
	return s.Instances
}

// want waits for the states of both instances.
func (f *fleet) want(one, two quell.State) []quell.Instance {
	f.t.Helper()
	for range 600 {
		if s := f.snapshot(); s[0].State == one && s[1].State == two {
			return s
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.t.Fatalf("%+v: want %s and %s", f.snapshot(), one, two)
	return nil
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

// guestDeleted deletes a real server, as a checker or a person does.
func guestDeleted(t *testing.T) {
	run(t, ipvsadm, "-A", "-t", vip, "-s", "wrr")
	t.Cleanup(func() { run(t, ipvsadm, "-D", "-t", vip) })
	run(t, ipvsadm, "-a", "-t", vip, "-r", realOne, "-m")
	run(t, ipvsadm, "-a", "-t", vip, "-r", realTwo, "-m")
	f := newFleet(t, ZeroHeld)
	run(t, ipvsadm, "-d", "-t", vip, "-r", realTwo)
	if s := f.want(quell.Ready, quell.Failed); !s[1].Gone || s[1].Weight != nil {
		t.Errorf("%+v", s[1])
	}
	f.apply(1, 0)
	run(t, ipvsadm, "-a", "-t", vip, "-r", realTwo, "-m", "-w", "3")
	f.want(quell.Ready, quell.Ready)
	f.apply(0.75, 0.25)
	if s := f.want(quell.Ready, quell.Ready); *s[1].Weight != 0.25 {
		t.Errorf("%+v", s[1])
	}
	run(t, ipvsadm, "-e", "-t", vip, "-r", realTwo, "-m", "-w", "0")
	if s := f.snapshot(); s[1].Held == nil || s[1].State != quell.Ready {
		t.Errorf("a weight of 0 is a hold: %+v", s[1])
	}
}

// checked has keepalived delete the first real server when its check fails, and set the weight of the second to 0.
const checked = `global_defs {
  script_user root
}
virtual_server 10.9.0.1 80 {
  delay_loop 1
  lb_algo wrr
  lb_kind NAT
  protocol TCP
  real_server 10.9.0.11 80 {
    weight 5
    TCP_CHECK {
      connect_timeout 1
      retry 0
    }
  }
  real_server 10.9.0.12 80 {
    weight 5
    inhibit_on_failure
    TCP_CHECK {
      connect_timeout 1
      retry 0
    }
  }
}
`

// mountAll mounts what the programs need.
func mountAll(t *testing.T) {
	t.Helper()
	for _, m := range [][2]string{{"proc", "/proc"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"}, {"tmpfs", "/etc"}} {
		if err := errors.Join(os.MkdirAll(m[1], 0o755), unix.Mount(m[0], m[1], m[0], 0, "")); err != nil {
			t.Fatal(err)
		}
	}
}

// guestKeepalived lets real checks fail and pass again.
func guestKeepalived(t *testing.T) {
	for path, text := range map[string]string{"/etc/keepalived.conf": checked, "/etc/passwd": "root:x:0:0:root:/:/init\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	one, two := listening(t, realOne), listening(t, realTwo)
	var said bytes.Buffer
	cmd := exec.Command(keepalived, "-n", "-l", "-D", "-C", "-f", "/etc/keepalived.conf", "-p", "/run/k.pid", "-c", "/run/c.pid")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("keepalived: %s", said.String())
		}
	})
	v, _ := parseVirtual(vip)
	for range 600 {
		if s, err := new(netlink).look(v); err == nil && len(s.reals) == 2 && s.reals[0].weight > 0 && s.reals[1].weight > 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	f := newFleet(t, ZeroFailed)

	one.Close()
	if s := f.want(quell.Failed, quell.Ready); !s[0].Gone {
		t.Errorf("deleted: %+v", s[0])
	}
	f.apply(0, 1)
	listening(t, realOne)
	f.want(quell.Ready, quell.Ready)
	f.apply(0.75, 0.25)

	two.Close()
	if s := f.want(quell.Ready, quell.Failed); s[1].Held != nil || s[1].Gone {
		t.Errorf("weight 0: %+v", s[1])
	}
	f.apply(1, 0)
	if got := weightOf(t, v, realTwo); got != 0 {
		t.Errorf("the checker's 0 became %d", got)
	}
	listening(t, realTwo)
	f.want(quell.Ready, quell.Ready)
	f.apply(0.75, 0.25)
	if s := f.want(quell.Ready, quell.Ready); *s[0].Weight != 0.75 {
		t.Errorf("the shares after all: %+v", s)
	}
}

// listening accepts connections until it is closed.
func listening(t *testing.T, address string) net.Listener {
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
			conn.Close()
		}
	}()
	return ln
}
