package diagnose

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func well() *Facts {
	service := quell.DefaultService()
	service.SLO.Threshold = 75 * time.Millisecond
	return &Facts{Config: "q.yaml", Service: service, Now: now, Balancer: "haproxy", Log: "127.0.0.1:5514",
		Answers: []Answer{{"bus 127.0.0.1:4222: connect", "connected", true}},
		Status:  &controller.Status{At: now.Add(-5 * time.Second), Instances: []controller.InstanceStatus{{ID: "a"}}}}
}

// Each thing that can be wrong has one finding, with what mends it; a healthy service has none.
func TestFindings(t *testing.T) {
	use := 1.3
	for _, c := range []struct {
		about, what, mend string
		wrong             func(f *Facts)
	}{
		{"healthy", "", "", func(*Facts) {}},
		{"mistakes", "the configuration has mistakes", "quell config check q.yaml", func(f *Facts) { f.Mistakes = "q.yaml:1: unknown key" }},
		{"capacity missing", "the configuration is valid, but", "quell config check", func(f *Facts) { f.Notes = []string{"nothing is probed"} }},
		{"capacity wrong", "the configured capacity is too small", "agent: {capacity", func(f *Facts) {
			f.Status.Instances[0].Utilization = &use
		}},
		{"capacity wrong before", "the configured capacity is too small", "agent: {capacity", func(f *Facts) {
			f.Records = []Record{{At: now, IDs: []string{"a"}, Largest: 1.3, Busiest: "a"}}
		}},
		{"probe port", "probe server of w1", "ssh w1 systemctl enable", func(f *Facts) {
			f.Answers = []Answer{{"probe server of w1 at 10.0.0.1:9466: 8 probes", "connection refused", false}}
		}},
		{"probe port on this machine", "probe server of w1", "quell agent --instance w1, with a copy of q.yaml", func(f *Facts) {
			f.Answers = []Answer{{"probe server of w1 at 127.0.0.1:9467: 8 probes", "connection refused", false}}
		}},
		{"controller never ran", "bus nats://", "systemctl start quell-controller", func(f *Facts) {
			f.Answers = []Answer{{"bus nats://127.0.0.1:4222: connect",
				"no credential for the bus: on the controller's machine start the controller first", false}}
		}},
		{"not the user of the controller", "bus nats://", "run this as the user", func(f *Facts) {
			f.Answers = []Answer{{"bus nats://127.0.0.1:4222: connect",
				"no credential for the bus: on the controller's machine start the controller first: permission denied", false}}
		}},
		{"no credential on another machine", "bus nats://", "quell credentials list", func(f *Facts) {
			f.Answers = []Answer{{"bus nats://10.0.0.1:4222: connect",
				"no credential for the bus: start the controller first: bus.credentials: open q.creds: no such file", false}}
		}},
		{"instance down", "instance w1", "start the service on w1", func(f *Facts) {
			f.Answers = []Answer{{"instance w1 at 10.0.0.1:80: GET /", "connection refused", false}}
		}},
		{"log does not arrive", "log at 127.0.0.1:5514", "haproxy.cfg, section global: log 127.0.0.1:5514 local0", func(f *Facts) {
			f.Answers = []Answer{{"log at 127.0.0.1:5514: requests", "none came", false}}
		}},
		{"no log", "response times are means", "balancer: {haproxy: {log", func(f *Facts) { f.Log = "" }},
		{"whole milliseconds", "HAProxy's log has whole milliseconds", "slo:", func(f *Facts) { f.Service.SLO.Threshold = 4 * time.Millisecond }},
		{"controller dead", "bus 127.0.0.1:4222", "systemctl start quell-controller", func(f *Facts) {
			f.Answers, f.Status = []Answer{{"bus 127.0.0.1:4222: connect", "nobody answers", false}}, nil
		}},
		{"clock ahead", "the clocks differ", "timedatectl set-ntp", func(f *Facts) { f.Status.At = now.Add(time.Minute) }},
		{"decisions stopped", "the last decision is old", "journalctl", func(f *Facts) { f.Status.At = now.Add(-time.Hour) }},
		{"credentials", "bus", "quell credentials list", func(f *Facts) {
			f.Answers = []Answer{{"bus 10.0.0.1:4222: connect", "Authorization Violation", false}}
		}},
		{"rights of AWS", "AWS: whose credentials", "docs/platforms/aws.md", func(f *Facts) {
			f.Answers = []Answer{{"AWS: whose credentials", "no valid credentials", false}}
		}},
		{"rights of Kubernetes", "Kubernetes: rights on pods", "#rights", func(f *Facts) {
			f.Answers = []Answer{{"Kubernetes: rights on pods", "may not list pods", false}}
		}},
		{"permissions", "HAProxy", "level admin", func(f *Facts) {
			f.Answers = []Answer{{"HAProxy at /run/s: servers", "dial unix: permission denied", false}}
		}},
		{"full disk", "the controller fails at: journal", "df -h", func(f *Facts) {
			f.Status.LastFailure = map[string]string{"journal": "write: no space left on device"}
		}},
		{"lost memory", "the controller's memory is lost", "quell resume", func(f *Facts) { f.Status.Lost = "the folder was emptied" }},
		{"store", "decisions cannot be stored", "df -h", func(f *Facts) { f.Status.Store = "read-only" }},
		{"weights that do not act, cookies", "weights do not act", "cookie", func(f *Facts) {
			f.Status.Reasons = []quell.Reason{{Code: "unfollowed", Text: "requests do not follow the weights"}}
		}},
		{"second controller", "a second controller", "systemctl stop", func(f *Facts) { f.Status.Refused = "the balancer obeys ctl-2" }},
		{"wrong name", "readings come for an instance", "--instance", func(f *Facts) {
			f.Status.UnknownSenders = []controller.UnknownSender{{Instance: "wbe"}}
		}},
		{"wrong name, several listed", "readings come for an instance", "one of the names in scaler.instances", func(f *Facts) {
			f.Listed, f.Status.UnknownSenders = true, []controller.UnknownSender{{Instance: "wbe", Source: quell.FromAgent}}
		}},
		{"wrong name, list elsewhere", "readings come for an instance", "--instance and one of the names in the list", func(f *Facts) {
			f.Status.UnknownSenders = []controller.UnknownSender{{Instance: "wbe", Source: quell.FromAgent}}
		}},
		{"wrong name of HAProxy's server", "readings come for an instance", "haproxy.cfg: give server t1 one of the names in the list",
			func(f *Facts) {
				f.Status.UnknownSenders = []controller.UnknownSender{{Instance: "t1", Source: quell.FromBalancer, Sender: "balancer"}}
			}},
		{"lost memory of one of several", "the controller's memory is lost", "quell resume --config q.yaml --service shop", func(f *Facts) {
			f.Among, f.Service.Name, f.Status.Lost = true, "shop", "the folder was emptied"
		}},
		{"agent silent", "no readings come from a", "systemctl status quell-agent", func(f *Facts) { f.Status.Instances[0].Stale = true }},
		{"not probed", "nobody probes a", "allow TCP", func(f *Facts) { f.Status.Instances[0].Unprobed = true }},
		{"kernel", "probes fail on a", "quell doctor --sensors", func(f *Facts) {
			f.Status.Instances[0].ProbeFailed = map[quell.Resource]string{quell.Disk: "no O_DIRECT"}
		}},
		{"predictions", "predictions do not hold", "quell forget", func(f *Facts) { f.Status.Doubtful = "off by 60%" }},
		{"autoscaler", "another program changes the group", "autoscaler", func(f *Facts) {
			for k := range 20 {
				ids := []string{"a", "b", "c"}[:1+k/4%3]
				f.Records = append(f.Records, Record{At: now.Add(time.Duration(k) * 3 * time.Minute), IDs: ids})
			}
		}},
	} {
		t.Run(c.about, func(t *testing.T) {
			f := well()
			c.wrong(f)
			list := Findings(f)
			if c.what == "" {
				if len(list) > 0 {
					t.Errorf("%+v", list)
				}
				return
			}
			if len(list) != 1 || !strings.HasPrefix(list[0].What, c.what) || !strings.Contains(list[0].Mend, c.mend) {
				t.Errorf("got %+v, want %q mended by %q", list, c.what, c.mend)
			}
		})
	}
}

// Mistakes of a configuration that a controller runs with do not hide what else is wrong.
func TestMistakesHideNothing(t *testing.T) {
	f := well()
	f.Mistakes, f.Status.Lost = "q.yaml:1: others can read it", "the folder was emptied"
	if list := Findings(f); len(list) != 2 || list[0].Why != f.Mistakes || list[1].Why != f.Status.Lost {
		t.Errorf("%+v", list)
	}
}

// Changes that Quell asked for, and one surprise, show no autoscaler.
func TestOwnChanges(t *testing.T) {
	f := well()
	for k := range 60 {
		ids := []string{"a", "b", "c"}[:1+k/20]
		f.Records = append(f.Records, Record{At: now.Add(time.Duration(k) * time.Minute), IDs: ids, Asked: k%20 == 0})
	}
	if list := Findings(f); len(list) > 0 {
		t.Errorf("%+v", list)
	}
}

// A finding about thousands of instances names a few.
func TestManyInstances(t *testing.T) {
	f := well()
	f.Status.Instances = nil
	for i := range 10_000 {
		f.Status.Instances = append(f.Status.Instances, controller.InstanceStatus{ID: fmt.Sprint("i", i), Stale: true})
	}
	list := Findings(f)
	if len(list) != 1 || !strings.HasSuffix(list[0].What, "i4 and 9995 more") {
		t.Errorf("%d findings, %+v", len(list), list[0])
	}
}
