package kernel

import (
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Every connection from a host has the same small congestion window, whichever process sends, from the first connection on.
func TestWindowsHold(t *testing.T) {
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Network: 1e9}, {ID: "h2", Network: 20e6}}})
	for _, pair := range []struct {
		from Role
		host string // of from
		to   Role
		at   string
		want uint32
	}{
		{Client, "", Instance, "h1", fullWindow}, {Balancer, "", Instance, "h1", fullWindow}, {Sink, "h1", Neighbour, "h1", fullWindow},
		{Client, "", Instance, "h2", 6},
	} {
		from, to := place(t, l, pair.host, pair.from), place(t, l, pair.at, pair.to)
		if got := largestWindow(t, from, to); got != pair.want {
			t.Errorf("%s to %s: a congestion window of %d packets, want %d", to.Namespace(), from.Namespace(), got, pair.want)
		}
	}
}

func TestWindowOfALink(t *testing.T) {
	for rate, want := range map[float64]uint32{0: 12, 1e9: 12, 40e6: 12, 20e6: 6, 10e6: 4, 1e6: 4} {
		if got := window(rate); got != want {
			t.Errorf("a link of %g bit/s: a window of %d packets, want %d", rate, got, want)
		}
	}
}

// largestWindow sends a megabyte and returns the sender's congestion window at the end.
func largestWindow(t *testing.T, from, to Place) (packets uint32) {
	t.Helper()
	var listener net.Listener
	if err := to.Do(func() (err error) {
		listener, err = net.Listen("tcp4", to.Address().String()+":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	received := make(chan error, 1)
	go func() {
		received <- from.Do(func() error {
			conn, err := net.DialTimeout("tcp4", listener.Addr().String(), patience)
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = io.CopyN(io.Discard, conn, 1<<20)
			return err
		})
	}()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := <-received; err != nil {
		t.Fatal(err)
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			t.Error(err)
			return
		}
		packets = info.Snd_cwnd
	}); err != nil {
		t.Fatal(err)
	}
	return packets
}
