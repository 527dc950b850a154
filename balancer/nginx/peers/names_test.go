package peers

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/quellhq/quell/internal/need"
)

func TestNames(t *testing.T) {
	var n Names
	for address, want := range map[string]string{"10.0.0.1": "10.0.0.1:80", "[::ffff:10.0.0.1]:81": "10.0.0.1:81",
		"localhost:82": "127.0.0.1:82"} {
		if !slices.Contains(n.Of(t.Context(), address), netip.MustParseAddrPort(want)) {
			t.Errorf("%s stands for %v, not %s", address, n.Of(t.Context(), address), want)
		}
	}
	if !n.Same(t.Context(), "localhost:82", "127.0.0.1:82") || n.Same(t.Context(), "localhost:82", "127.0.0.1") {
		t.Error("another server counts as the same, or the same as another one")
	}
	n.known["localhost:82"] = nil
	if n.Forget(); len(n.Of(t.Context(), "localhost:82")) == 0 {
		t.Error("it was not resolved again")
	}
	got := n.Numeric(t.Context(), map[string]string{"a": "10.0.0.1", "b": "no port at all:"})
	if !slices.Equal(got["a"], []string{"10.0.0.1:80"}) || got["b"] == nil || len(got["b"]) > 0 {
		t.Errorf("numeric %v", got)
	}
}

func TestBusy(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var n Names
	if !n.Busy(t.Context(), map[string]string{"a": listener.Addr().String()}) {
		t.Error("a connection is open, and nobody is busy")
	}
	if n.Busy(t.Context(), map[string]string{"a": need.FreeAddress(t)}) {
		t.Error("no connection is open, and somebody is busy")
	}
}
