package balancer

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/quellhq/quell/internal/need"
)

func TestResolve(t *testing.T) {
	for address, want := range map[string]string{"10.0.0.1:80": "10.0.0.1:80", "[::1]:443": "[::1]:443", "[::ffff:10.0.0.1]:80": "10.0.0.1:80",
		"localhost:http": "127.0.0.1:80"} {
		list, err := Resolve(t.Context(), address)
		var texts []string
		for _, a := range list {
			texts = append(texts, a.String())
		}
		if err != nil || !slices.Contains(texts, want) {
			t.Errorf("%s: %v, %v, want %s", address, texts, err, want)
		}
	}
	for _, address := range []string{"", "10.0.0.1", "10.0.0.1:nonsense", ":", "a.invalid:80"} {
		if list, err := Resolve(t.Context(), address); err == nil {
			t.Errorf("%q: %v", address, list)
		}
	}
}

// With the addresses of one kind alone, because the server failed at the other kind, an instance would seem to have moved.
func TestResolveTakesNoHalfAnswer(t *testing.T) {
	server := need.Names(t, func(record uint16) (byte, []netip.Addr) {
		if record == need.RecordA {
			return need.NameFails, nil
		}
		return need.NameKnown, []netip.Addr{netip.MustParseAddr("2001:db8::1")}
	})
	resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server)
	}
	t.Cleanup(func() { resolver.Dial = nil })
	if list, err := Resolve(t.Context(), "web.test.:80"); err == nil {
		t.Errorf("half an answer: %v", list)
	}
}
