package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
)

// zone is what a fake resolver knows.
type zone struct {
	hosts    map[string][]string
	services map[string][]net.SRV
}

func (z zone) LookupNetIP(_ context.Context, _, host string) (found []netip.Addr, err error) {
	texts, ok := z.hosts[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.0.0.53:53", IsNotFound: true}
	}
	for _, text := range texts {
		found = append(found, netip.MustParseAddr(text))
	}
	return found, nil
}

func (z zone) LookupSRV(_ context.Context, _, _, name string) (string, []*net.SRV, error) {
	records, ok := z.services[name]
	if !ok {
		return "", nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	var list []*net.SRV
	for _, r := range records {
		list = append(list, &r)
	}
	return "", list, nil
}

func text(members []quell.Member) string {
	var words []string
	for _, m := range members {
		words = append(words, m.ID+"="+m.Address)
	}
	return strings.Join(words, " ")
}

func TestMembers(t *testing.T) {
	for name, c := range map[string]struct {
		names []string
		zone  zone
		want  string // members, or the error
	}{
		"addresses": {[]string{"web:80"}, zone{hosts: map[string][]string{"web": {"10.0.0.2", "10.0.0.1"}}},
			"10.0.0.1=10.0.0.1:80 10.0.0.2=10.0.0.2:80"},
		"twice": {[]string{"web:80", "all:80"}, zone{hosts: map[string][]string{"web": {"10.0.0.1", "::ffff:10.0.0.1"}, "all": {"10.0.0.1"}}},
			"10.0.0.1=10.0.0.1:80"},
		"machines with addresses of both kinds": {[]string{"web:80"}, zone{hosts: map[string][]string{"web": {"2001:db8::1", "10.0.0.1"}}},
			"10.0.0.1=10.0.0.1:80"},
		"IPv6": {[]string{"web:80"}, zone{hosts: map[string][]string{"web": {"2001:db8::1"}}}, "2001:db8::1=[2001:db8::1]:80"},
		"two ports": {[]string{"web:80", "web:81"}, zone{hosts: map[string][]string{"web": {"10.0.0.1"}}},
			"10.0.0.1:80=10.0.0.1:80 10.0.0.1:81=10.0.0.1:81"},
		"services": {[]string{"_http._tcp.web"}, zone{
			hosts: map[string][]string{"b.web": {"10.0.0.2"}, "a.web": {"10.0.0.9", "10.0.0.1"}},
			services: map[string][]net.SRV{"_http._tcp.web": {
				{Target: "b.web.", Port: 8080, Priority: 1}, {Target: "a.web.", Port: 8081, Priority: 1}, {Target: "spare.web.", Port: 1, Priority: 2},
			}},
		}, "a.web=10.0.0.1:8081 b.web=10.0.0.2:8080"},
		"two services of a host": {[]string{"_http._tcp.web"}, zone{
			hosts:    map[string][]string{"a.web": {"10.0.0.1"}},
			services: map[string][]net.SRV{"_http._tcp.web": {{Target: "a.web.", Port: 81}, {Target: "a.web.", Port: 80}}},
		}, "a.web:80=10.0.0.1:80 a.web:81=10.0.0.1:81"},
		"no service":      {[]string{"_http._tcp.web"}, zone{services: map[string][]net.SRV{"_http._tcp.web": {{Target: "."}}}}, ""},
		"an unknown name": {[]string{"web:80"}, zone{}, "looking up web:80: no such host (asked 10.0.0.53:53)"},
		"one of two unknown": {[]string{"web:80", "new:80"}, zone{hosts: map[string][]string{"web": {"10.0.0.1"}}},
			"looking up new:80: no such host (asked 10.0.0.53:53)"},
		"an unknown target": {[]string{"_http._tcp.web"}, zone{services: map[string][]net.SRV{"_http._tcp.web": {{Target: "a.web.", Port: 80}}}},
			"looking up _http._tcp.web: its target a.web: no such host (asked 10.0.0.53:53)"},
	} {
		t.Run(name, func(t *testing.T) {
			members, err := New(Options{Names: c.names, Lookup: c.zone}).Members(t.Context())
			got := text(members)
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// What was there at the first look may be old; what comes later is new.
func TestStarted(t *testing.T) {
	now := time.Unix(1000, 0)
	z := zone{hosts: map[string][]string{"web": {"10.0.0.1"}}}
	d := New(Options{Names: []string{"web:80"}, Probe: 9466, Lookup: z, Now: func() time.Time { return now }})
	look := func() []quell.Member {
		members, err := d.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return members
	}
	if m := look()[0]; !m.Started.IsZero() || m.Probe != "10.0.0.1:9466" || m.State != quell.Ready {
		t.Errorf("%+v", m)
	}
	z.hosts["web"] = append(z.hosts["web"], "10.0.0.2")
	if m := look()[1]; !m.Started.Equal(now) {
		t.Errorf("%+v", m)
	}
	came := now
	now = now.Add(time.Hour)
	if m := look()[1]; !m.Started.Equal(came) {
		t.Errorf("%+v", m)
	}
}

// An instance keeps its id when another one appears on its host, or leaves it.
func TestAnInstanceKeepsItsID(t *testing.T) {
	const name = "_http._tcp.web"
	z := zone{hosts: map[string][]string{"node1": {"10.0.0.1"}}, services: map[string][]net.SRV{}}
	for _, c := range []struct {
		ports [][]uint16
		want  []string // after each look
	}{
		{[][]uint16{{8080}, {8080, 8081}, {8081}}, []string{"node1=10.0.0.1:8080",
			"node1=10.0.0.1:8080 node1:8081=10.0.0.1:8081", "node1:8081=10.0.0.1:8081"}},
		{[][]uint16{{8080, 8081}, {8080}, {8082}}, []string{"node1:8080=10.0.0.1:8080 node1:8081=10.0.0.1:8081",
			"node1:8080=10.0.0.1:8080", "node1=10.0.0.1:8082"}},
	} {
		d := New(Options{Names: []string{name}, Lookup: z})
		for i, ports := range c.ports {
			z.services[name] = nil
			for _, port := range ports {
				z.services[name] = append(z.services[name], net.SRV{Target: "node1.", Port: port})
			}
			members, err := d.Members(t.Context())
			if got := text(members); err != nil || got != c.want[i] {
				t.Errorf("ports %v: %q (%v), want %q", ports, got, err, c.want[i])
			}
		}
	}
}

func TestNothingIsStartedOrStopped(t *testing.T) {
	d := New(Options{Names: []string{"web:80"}, Lookup: zone{hosts: map[string][]string{"web": {"10.0.0.1"}}}})
	if _, err := d.Members(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Start(t.Context(), 1); !errors.Is(err, ErrElsewhere) {
		t.Error(err)
	}
	if err := d.Stop(t.Context(), []string{"10.0.0.1"}); !errors.Is(err, ErrElsewhere) {
		t.Error(err)
	}
	if err := d.Stop(t.Context(), []string{"10.0.0.7"}); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}

// A real server: both kinds of records, an answer too long for a datagram, and a change.
func TestARealServer(t *testing.T) {
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "host-record=many.test,10.1.0.%d\n", i+1)
	}
	address, change := need.DNS(t)
	change("host-record=a.web.test,10.0.0.1\nhost-record=b.web.test,10.0.0.2\n" +
		"srv-host=_http._tcp.web.test,a.web.test,8080\nsrv-host=_http._tcp.web.test,b.web.test,8080\n" + many.String())
	d := New(Options{Names: []string{"_http._tcp.web.test", "many.test:80"}, Resolver: address})
	awaitText := func(n int, begins string) {
		t.Helper()
		var members []quell.Member
		var err error
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if members, err = d.Members(t.Context()); err == nil && len(members) == n {
				break
			}
		}
		if got := text(members); err != nil || len(members) != n || !strings.Contains(got, begins) {
			t.Fatalf("%d members, want %d with %q: %s, %v", len(members), n, begins, got, err)
		}
	}
	awaitText(102, "a.web.test=10.0.0.1:8080 b.web.test=10.0.0.2:8080")
	change("host-record=a.web.test,10.0.0.1\nsrv-host=_http._tcp.web.test,a.web.test,8080\nhost-record=many.test,10.1.0.1\n")
	awaitText(2, "a.web.test=10.0.0.1:8080")
}

// While the names cannot be looked up, the last list counts.
func TestTheLastListIsKept(t *testing.T) {
	z := zone{hosts: map[string][]string{"web": {"10.0.0.1"}}}
	d := New(Options{Names: []string{"web:80"}, Lookup: z})
	for _, gone := range []bool{false, true, false} {
		delete(z.hosts, "web")
		if !gone {
			z.hosts["web"] = []string{"10.0.0.1"}
		}
		members, err := d.Members(t.Context())
		if err != nil || text(members) != "10.0.0.1=10.0.0.1:80" {
			t.Errorf("%v, %v", members, err)
		}
		if err := d.Report(); (err != nil) != gone {
			t.Errorf("gone %v: reported %v", gone, err)
		}
	}
}

// A server that fails at the addresses of IPv4 has not answered: with those of IPv6 alone, the whole fleet would move. One that fails at
// those of IPv6 has.
func TestHalfAnAnswerIsNone(t *testing.T) {
	var fails atomic.Int32 // the type of record
	address := need.Names(t, func(record uint16) (byte, []netip.Addr) {
		switch {
		case int32(record) == fails.Load():
			return need.NameFails, nil
		case record == need.RecordA:
			return need.NameKnown, []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		case record == need.RecordAAAA:
			return need.NameKnown, []netip.Addr{netip.MustParseAddr("2001:db8::1")}
		}
		return need.NameKnown, nil
	})
	d := New(Options{Names: []string{"web.test.:80"}, Resolver: address})
	for _, record := range []int32{0, need.RecordA, need.RecordAAAA, 0} {
		fails.Store(record)
		members, err := d.Members(t.Context())
		if got := text(members); err != nil || got != "10.0.0.1=10.0.0.1:80" {
			t.Errorf("records of type %d fail: %q, %v", record, got, err)
		}
		if err := d.Report(); (err != nil) != (record == need.RecordA) {
			t.Errorf("records of type %d fail: reported %v", record, err)
		}
	}
}

// crowd is a zone that gives no answer before as many are asked for at once as may be.
type crowd struct {
	zone
	mu                 sync.Mutex
	running, most, all int
	full               chan struct{}
	filled             sync.Once
}

func (c *crowd) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	c.mu.Lock()
	c.running++
	c.all++
	if c.most = max(c.most, c.running); c.running == atOnce {
		c.filled.Do(func() { close(c.full) })
	}
	c.mu.Unlock()
	<-c.full
	c.mu.Lock()
	c.running--
	c.mu.Unlock()
	return c.zone.LookupNetIP(ctx, network, host)
}

// Many targets are looked up at the same time, each host once.
func TestManyTargets(t *testing.T) {
	const name, hosts = "_http._tcp.web", 300
	z := zone{hosts: map[string][]string{}, services: map[string][]net.SRV{}}
	for i := range hosts {
		host := fmt.Sprintf("h%03d", i)
		z.hosts[host] = []string{fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)}
		for _, port := range []uint16{80, 81} {
			z.services[name] = append(z.services[name], net.SRV{Target: host + ".", Port: port})
		}
	}
	c := &crowd{zone: z, full: make(chan struct{})}
	members, err := New(Options{Names: []string{name}, Lookup: c}).Members(t.Context())
	if err != nil || len(members) != 2*hosts || c.most != atOnce || c.all != hosts {
		t.Errorf("%d members, %d asked at once, %d asked in all; %v", len(members), c.most, c.all, err)
	}
}

// Each question has its own time, and once a server has not answered one, it is asked no more.
func TestTimeOfAnAnswer(t *testing.T) {
	z := zone{hosts: map[string][]string{}, services: map[string][]net.SRV{}}
	for i := range 3 * atOnce {
		z.services["_a._tcp.web"] = append(z.services["_a._tcp.web"], net.SRV{Target: fmt.Sprintf("h%d.", i), Port: 80})
	}
	l := &counting{Lookup: z, ends: map[time.Time]bool{}}
	_, err := New(Options{Names: []string{"_a._tcp.web"}, Lookup: l}).Members(t.Context())
	if err == nil || len(l.ends) < 2 || l.asked > 2*atOnce+1 { // each may be asked for both kinds
		t.Errorf("%d questions, which end at %d times; %v", l.asked, len(l.ends), err)
	}
}

// counting notes until when each answer is awaited.
type counting struct {
	Lookup
	mu    sync.Mutex
	asked int
	ends  map[time.Time]bool
}

func (c *counting) note(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if end, limited := ctx.Deadline(); limited {
		c.ends[end] = true
	}
}

func (c *counting) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	c.note(ctx)
	return c.Lookup.LookupNetIP(ctx, network, host)
}

func (c *counting) LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error) {
	c.note(ctx)
	return c.Lookup.LookupSRV(ctx, service, proto, name)
}
