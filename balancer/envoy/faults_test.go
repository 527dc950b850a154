package envoy

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/balancertest"
)

// Only one controller can listen for an Envoy. The second one says so, and the first one's endpoints stay.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	a := newInstance(t, nil)
	l := newLab(t)
	l.start(sotw, "ROUND_ROBIN", "")
	first := l.control(nil)
	settle(t, first, backend("a", a, 1))
	l.serves()
	o, s := l.options(), l.settings()
	o.Memory = ""
	second, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	in := balancer.Service{Name: "shop", Period: time.Second, Logger: slog.New(slog.DiscardHandler)}
	if _, err := s.Measure(second, in, nil); !contains(err, "choose another address or stop what uses it") {
		t.Errorf("the second controller: %v", err)
	}
	if failed := l.get(20, "/"); failed > 0 || first.fleet.err("") != nil {
		t.Errorf("%d requests failed; %v", failed, first.fleet.err(""))
	}
}

// A real Envoy takes a thousand endpoints, among them addresses of IPv6, and uses the only one that serves.
func TestARealThousand(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Logf("without IPv6: %v", err)
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	a := newInstance(t, nil)
	web := &http.Server{Handler: a.Config.Handler}
	go web.Serve(listener)
	t.Cleanup(func() { web.Close() })
	l := newLab(t)
	l.start(sotw, "LEAST_REQUEST", "")
	list := []quell.Backend{{ID: "a", Address: listener.Addr().String(), Weight: 1}}
	for n := range 999 {
		list = append(list, quell.Backend{ID: fmt.Sprint("i", n), Address: fmt.Sprintf("[fd00::%x]:80", n+1)})
	}
	control := l.control(nil)
	if err := control.Apply(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	l.serves()
	eventually(t, "Envoy has accepted them", func() bool {
		states, err := control.State(t.Context())
		return err == nil && len(states) == len(list) && states[0].Address == list[0].Address
	})
	before := a.served.Load()
	if failed := l.get(20, "/"); failed > 0 || a.served.Load() != before+20 {
		t.Errorf("%d requests failed, %d were served", failed, a.served.Load()-before)
	}
}

// With priorities, here those of an aggregate cluster, Envoy goes on to the next one when all endpoints of Quell drain, and comes back.
func TestPriorities(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	l := newLab(t)
	l.cluster, l.more = "app", strings.Replace(aggregate, "ADDRESS", socketOf(a.address()), 1)
	l.start("{initial_fetch_timeout: 0.2s, "+sotw[1:], "ROUND_ROBIN", "")
	control := l.control(nil)
	settle(t, control, backend("b", b, 1))
	gets := func(what string, i *instance) {
		t.Helper()
		eventually(t, what, func() bool {
			before := i.served.Load()
			return l.get(5, "/") == 0 && i.served.Load() == before+5
		})
	}
	gets("the first priority", b)
	settle(t, control, quell.Backend{ID: "b", Address: b.address(), Draining: true})
	gets("the second priority", a)
	settle(t, control, backend("b", b, 1))
	gets("the first priority again", b)
}

func TestContract(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(sotw, "ROUND_ROBIN", "")
	var last *site
	open := func() balancer.Driver {
		if last != nil {
			last.server.Stop()
		}
		last = l.control(nil)
		return last.Driver
	}
	addresses := []string{newInstance(t, nil).address(), newInstance(t, nil).address(), newInstance(t, nil).address()}
	balancertest.Contract(t, open, addresses, 0)
}
