package haproxy

import (
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

// If the servers of a backend have other names than the instances, this is found before Quell adds servers beside them.
func TestServersOfOtherNames(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	l := newLab(t, declared("srv-a", a.address(), "srv-b", b.address()))
	l.start()
	d := l.driver(nil)
	for _, tc := range []struct {
		ids  []string
		want []string
	}{
		{[]string{"web-1", "web-2"}, []string{"no server web-1, web-2, but srv-a, srv-b", "name instances like their servers"}},
		{[]string{"srv-a", "web-2"}, []string{"no server web-2, but srv-b"}},
		{[]string{"srv-a", "srv-b"}, nil},
		{[]string{"srv-a"}, nil},
	} {
		if _, err := d.State(t.Context()); err != nil {
			t.Fatal(err)
		}
		var members []quell.Member
		for _, id := range tc.ids {
			members = append(members, quell.Member{ID: id})
		}
		err := d.Lacks(members)
		if (err != nil) != (tc.want != nil) {
			t.Errorf("%v: %v", tc.ids, err)
		}
		for _, words := range tc.want {
			if err != nil && !strings.Contains(err.Error(), words) {
				t.Errorf("%v: %v does not say %q", tc.ids, err, words)
			}
		}
	}
}

// Servers of a server-template without `balancer.haproxy.slots` have no address that Quell can set, or are disabled although nobody took
// them out. They are said to be neither ready nor taken out by hand, no command is sent again and again, and what to do is said once.
func TestTemplateWithoutSlots(t *testing.T) {
	a, b := newInstance(t, 0), newInstance(t, 0)
	port := strings.Split(a.address(), ":")[1]
	for _, template := range []string{
		"server-template b 1-3 localhost:" + port + " check inter 200ms init-addr none resolvers dns",
		"server-template b 1-3 0.0.0.0:80 check inter 200ms disabled",
	} {
		l := newLab(t, template)
		l.replace("frontend web", "resolvers dns\n  nameserver d 127.0.0.1:1\nfrontend web")
		l.start()
		d := l.driver(nil)
		want := []quell.Backend{backend("b1", a, 0.5), backend("b2", b, 0.5)}
		for range 3 {
			if _, err := d.State(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := d.Apply(t.Context(), want); err != nil {
				t.Errorf("%s: %v", template, err)
			}
		}
		states, err := d.State(t.Context())
		if err != nil || len(states) != 2 {
			t.Fatalf("%s: %v, %v", template, states, err)
		}
		for _, s := range states {
			if s.Healthy || s.ByHand != nil || !strings.Contains(s.Health, "has no address") ||
				!strings.Contains(s.Health, "balancer.haproxy.slots: b") {
				t.Errorf("%s: %+v", template, s)
			}
		}
		if n := l.said.count("has no address"); n != 1 {
			t.Errorf("%s: said %d times: %s", template, n, l.said)
		}
		if err := d.Lacks([]quell.Member{{ID: "b1"}}); err == nil || !strings.Contains(err.Error(), "slots: b") {
			t.Errorf("%s: %v", template, err)
		}
	}
}
