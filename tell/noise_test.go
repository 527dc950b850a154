package tell_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/tell"
)

func ptr(v float64) *float64 { return &v }

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// fleet is four instances with equal weights, of which web-2 has neighbours on the network for a minute.
func fleet() *controller.Status {
	since := noon.Add(-time.Minute)
	s := &controller.Status{Service: "shop", At: noon, Policy: "prima", Mode: quell.Act, Leading: true, Models: "learned in place",
		Authority: quell.Full, ThresholdMS: 75, Reasons: []quell.Reason{{Code: "interference", Instance: "web-2", Text: "told", Since: &since}}}
	for _, id := range []string{"web-1", "web-2", "web-3", "web-4"} {
		s.Instances = append(s.Instances, controller.InstanceStatus{ID: id, State: quell.Ready, Now: ptr(0.25), Would: ptr(0.25),
			Share: ptr(0.25), LatencyMS: ptr(4)})
	}
	row := &s.Instances[1]
	row.LatencyMS, row.Would, row.Share = ptr(9.5), ptr(0.1), ptr(0.22)
	row.Interference = map[quell.Resource]policy.Interference{quell.Network: {Hidden: ptr(0.48), Severity: ptr(1.5)},
		quell.CPU: {Hidden: ptr(0.05)}}
	return s
}

func TestNoisy(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *controller.Status, row *controller.InstanceStatus)
		what   string // "": nobody is noisy
		done   string
		do     string
	}{
		{"neighbours on the network", func(*controller.Status, *controller.InstanceStatus) {},
			"neighbours use about 48% of its network", "sets its weight to 10.0%; an equal one is 25.0%. It got 22.0% of the requests.",
			"uses the network of its host"},
		{"the policy only advises", func(s *controller.Status, _ *controller.InstanceStatus) { s.Authority = quell.AuthorityAdvise },
			"48%", "changes nothing at present; it would lower its weight from 25.0% to 10.0%", "host"},
		{"a pause", func(s *controller.Status, row *controller.InstanceStatus) { s.Paused, row.Would = true, ptr(0.25) },
			"48%", "Quell changes nothing at present.", "host"},
		{"the objective holds with room", func(_ *controller.Status, row *controller.InstanceStatus) { row.Would = ptr(0.245) },
			"48%", "leaves its weight at 24.5%", "host"},
		{"a weight by hand", func(s *controller.Status, _ *controller.InstanceStatus) {
			s.Overrides = map[string]float64{"web-2": 0.2}
		},
			"48%", "set by hand to 20.0%", "host"},
		{"held", func(_ *controller.Status, row *controller.InstanceStatus) { row.Held = &quell.Held{By: "ann"} },
			"48%", "no new requests: held by ann", "host"},
		{"a fast policy cuts it", func(_ *controller.Status, row *controller.InstanceStatus) { row.Cut = ptr(0.4) },
			"48%", "leaves it 40% of its weight", "host"},
		{"how much is not known", func(_ *controller.Status, row *controller.InstanceStatus) {
			row.Interference = map[quell.Resource]policy.Interference{quell.Disk: {Severity: ptr(0.5)}, quell.CPU: {Severity: ptr(0)}}
		}, "slow its disk; how much they use is not known yet", "", "uses the disk of its host"},
		{"no resource is known", func(_ *controller.Status, row *controller.InstanceStatus) { row.Interference = nil },
			"neighbours slow it: told", "", "on its host"},
		{"programs of the same machine", func(_ *controller.Status, row *controller.InstanceStatus) {
			row.Interference = map[quell.Resource]policy.Interference{quell.CPU: {Hidden: ptr(0.6), Origin: quell.NeighboursCause}}
		}, "60% of its processors", "", "top on that machine"},
		{"other virtual machines", func(_ *controller.Status, row *controller.InstanceStatus) {
			row.Interference = map[quell.Resource]policy.Interference{quell.CPU: {Hidden: ptr(0.6), Origin: quell.HypervisorCause}}
		}, "60% of its processors", "", "same host get its processors"},
		{"own work", func(s *controller.Status, _ *controller.InstanceStatus) { s.Reasons[0].Code = "own_work" },
			"told", "", "own work: stop it"},
		{"neighbours are surer than a band", func(s *controller.Status, _ *controller.InstanceStatus) {
			s.FastReasons = []quell.Reason{{Code: "outlier", Instance: "web-2", Text: "out of its band"}}
		}, "48%", "", "host"},
		{"an outlier", func(s *controller.Status, _ *controller.InstanceStatus) { s.Reasons[0].Code = "outlier" }, "told", "", "its errors"},
		{"only suspected", func(s *controller.Status, _ *controller.InstanceStatus) { s.Reasons[0].Code = "suspected" }, "", "", ""},
		{"silent", func(_ *controller.Status, row *controller.InstanceStatus) { row.Stale = true }, "", "", ""},
		{"the instance is gone", func(s *controller.Status, _ *controller.InstanceStatus) { s.Instances = s.Instances[:1] }, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := fleet()
			c.change(s, &s.Instances[1])
			all := tell.Of(s, time.Time.String).Noisy()
			if len(all) == 0 && c.what == "" {
				return
			}
			if len(all) != 1 || c.what == "" {
				t.Fatalf("noisy are %+v", all)
			}
			n := all[0]
			if n.Instance != "web-2" || !n.Since.Equal(noon.Add(-time.Minute)) || !strings.Contains(n.Costs, "9.5 ms; the others' median is 4 ms") {
				t.Errorf("got %+v", n)
			}
			for text, want := range map[string]string{n.What: c.what, n.Done: c.done, n.Do: c.do} {
				if !strings.Contains(text, want) {
					t.Errorf("%q does not contain %q", text, want)
				}
			}
		})
	}
}

// The instance of whose resource most is used comes first, but not if that was seen once only.
func TestTheNoisiestComesFirst(t *testing.T) {
	s := fleet()
	s.Reasons = append(s.Reasons, quell.Reason{Code: "interference", Instance: "web-4", Since: &s.At})
	s.Instances[3].Interference = map[quell.Resource]policy.Interference{quell.Disk: {Hidden: ptr(0.9)}}
	s.Reasons = append(s.Reasons, quell.Reason{Code: "interference", Instance: "web-3"}, quell.Reason{Code: "own_work", Instance: "web-1"})
	s.Instances[2].Interference = map[quell.Resource]policy.Interference{quell.Disk: {Hidden: ptr(0.7)}}
	var ids []string
	for _, n := range tell.Of(s, time.Time.String).Noisy() {
		ids = append(ids, n.Instance)
	}
	if got := strings.Join(ids, " "); got != "web-3 web-2 web-1 web-4" {
		t.Errorf("in this order: %s", got)
	}
}
