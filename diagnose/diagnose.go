// Package diagnose concludes from what a running service shows what is wrong with its set-up, and names the command that mends each thing.
// It is pure.
package diagnose

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
)

// Finding is something that is wrong.
type Finding struct {
	What string `json:"what"`
	Why  string `json:"why,omitempty"` // what shows it
	Mend string `json:"mend"`          // a command, or the line of a configuration to change
}

// Answer is what one part of the service answered.
type Answer struct {
	Asked, Got string
	OK         bool
}

// Facts are what was found.
type Facts struct {
	Config   string   // path of the configuration
	Among    bool     // the configuration names several services, of which this is one
	Mistakes string   // of the configuration; empty: it has none
	Notes    []string // what can be meant, but seldom is
	Answers  []Answer
	Status   *controller.Status // nil: the controller does not answer
	Now      time.Time          // by this machine's clock
	Service  quell.Service
	Balancer string   // kind
	Listed   bool     // the configuration lists the instances
	Log      string   // where the balancer's log is received; empty: nowhere
	Records  []Record // of the last hour
}

// Record is a snapshot with what was decided on it.
type Record struct {
	At      time.Time
	IDs     []string
	Largest float64 // the largest utilisation of an instance
	Busiest string  // its name
	Asked   bool    // instances were started or stopped by a plan or a person
}

// Findings lists everything that is wrong, the most basic first.
func Findings(f *Facts) (list []Finding) {
	add := func(what, why, mend string) { list = append(list, Finding{what, why, mend}) }
	if f.Mistakes != "" {
		add("the configuration has mistakes", f.Mistakes, "quell config check "+f.Config)
	}
	for _, note := range f.Notes {
		add("the configuration is valid, but", note, "quell config check "+f.Config)
	}
	for _, a := range f.Answers {
		if !a.OK {
			add(a.Asked, a.Got, f.mendAnswer(&a))
		}
	}
	f.log(add)
	if s := f.Status; s != nil {
		f.controlled(s, add)
		f.instances(s, add)
	}
	f.recorded(add)
	return list
}

// chosen names the service to a command that needs it.
func (f *Facts) chosen() string {
	if !f.Among {
		return ""
	}
	return " --service " + f.Service.Name
}

// mendController starts the controller. The configuration follows.
const mendController = "systemctl start quell-controller, or quell controller --config "

type adder func(what, why, mend string)

// mendAnswer names what makes a part answer.
func (f *Facts) mendAnswer(a *Answer) string {
	got := strings.ToLower(a.Got)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(got, p) })
	}
	asked := func(part string) bool { return strings.HasPrefix(a.Asked, part) }
	switch {
	case asked("Kubernetes: "):
		return "give the controller the rights in docs/platforms/kubernetes.md#rights, and do what the answer says"
	case asked("AWS: "):
		return "give the controller the rights in docs/platforms/aws.md, and do what the answer says"
	case has("no space left"):
		return "df -h, and make room in the folder `data`"
	case has("start the controller first") && has("permission denied"):
		return "run this as the user that owns the controller's data folder, as with sudo"
	case has("start the controller first") && !has("bus.credentials: "):
		return mendController + f.Config
	case has("credential", "authorization"):
		return "on the controller's machine: quell credentials list --config " + f.Config
	case has("permission denied", "level admin", "admin level"):
		return "haproxy.cfg, section global: stats socket PATH mode 660 level admin, and run Quell as a member of the socket's group"
	case asked("probe server of ") && onThisMachine(a.Asked):
		return fmt.Sprintf("quell agent --instance %s, with a copy of %s whose probe.listen is this address",
			named(a.Asked, "probe server of "), f.Config)
	case asked("probe server of "):
		return fmt.Sprintf("ssh %s systemctl enable --now quell-agent, and allow TCP to the port of its `probe`",
			named(a.Asked, "probe server of "))
	case asked("instance "):
		return fmt.Sprintf("start the service on %s, or correct scaler.instances and the balancer's health.path", named(a.Asked, "instance "))
	case asked("log at "):
		return logLine(named(a.Asked, "log at "))
	case asked("bus "), asked("controller of "):
		return mendController + f.Config
	}
	return "quell config check --online " + f.Config
}

// onThisMachine returns whether a question went to an address of loopback.
func onThisMachine(asked string) bool {
	_, address, _ := strings.Cut(asked, " at ")
	at, err := netip.ParseAddrPort(named(address, ""))
	return err == nil && at.Addr().IsLoopback()
}

// named returns the first word after a prefix.
func named(text, prefix string) string {
	words := strings.Fields(strings.TrimPrefix(text, prefix))
	if len(words) == 0 {
		return ""
	}
	return strings.TrimSuffix(words[0], ":")
}

// logLine makes HAProxy log to an address.
func logLine(address string) string {
	return "haproxy.cfg, section global: log " + address + " local0; in the frontend: option httplog"
}

// coarseBelow is the threshold in milliseconds below which whole milliseconds hide too much.
const coarseBelow = 10

// log says what the balancer's log cannot tell.
func (f *Facts) log(add adder) {
	switch {
	case f.Balancer != "haproxy":
	case f.Log == "":
		add("response times are means of HAProxy's last 1024 requests, without percentiles", "balancer.haproxy.log is not set",
			"balancer: {haproxy: {log: \"127.0.0.1:5514\"}}, and in haproxy.cfg: log 127.0.0.1:5514 local0")
	case f.Service.SLO.ThresholdMS() < coarseBelow:
		add("HAProxy's log has whole milliseconds", fmt.Sprintf("the objective is %v: rounding is %.0f%% of it", f.Service.SLO.Threshold,
			100/f.Service.SLO.ThresholdMS()), "slo: choose an objective of 10 ms and more, or measure with the built-in balancer")
	}
}

// controlled says what the controller itself reports.
func (f *Facts) controlled(s *controller.Status, add adder) {
	period := f.Service.Sampling
	switch late := f.Now.Sub(s.At); {
	case s.At.IsZero():
	case late > 5*period+10*time.Second:
		add("the last decision is old", fmt.Sprintf("%v by this machine's clock", late.Round(time.Second)),
			"timedatectl on both machines; if the clocks agree: journalctl -u quell-controller")
	case late < -5*time.Second:
		add("the clocks differ", fmt.Sprintf("the last decision is %v ahead of this machine's clock", (-late).Round(time.Second)),
			"timedatectl set-ntp true, on both machines")
	}
	if s.Refused != "" {
		add("a second controller", s.Refused, "stop one of the two: systemctl stop quell-controller; quell status says which one leads")
	}
	if s.Lost != "" {
		add("the controller's memory is lost", s.Lost, "quell resume --config "+f.Config+f.chosen())
	}
	if s.Store != "" {
		add("decisions cannot be stored", s.Store, "df -h, and make room in the folder `data`")
	}
	if s.Doubtful != "" {
		add("predictions do not hold", s.Doubtful, "quell forget --config "+f.Config+f.chosen())
	}
	for _, u := range s.UnknownSenders {
		add("readings come for an instance that the service does not have", fmt.Sprintf("%s sends for %q", u.Sender, u.Instance),
			f.mendStranger(&u))
	}
	for _, part := range slices.Sorted(maps.Keys(s.LastFailure)) {
		a := Answer{Asked: part, Got: s.LastFailure[part]}
		mend := f.mendAnswer(&a)
		if part == "measure" && f.Log != "" {
			mend = logLine(f.Log)
		}
		add("the controller fails at: "+part, a.Got, mend)
	}
	for _, r := range s.Reasons {
		if r.Code == "unfollowed" {
			add("weights do not act", r.Text, "balancer: take out `cookie`, `stick-table` or `balance source`; with nginx, ip_hash and `random two`")
		}
	}
}

// mendStranger says whose name of an instance to correct: that of the balancer's server, or that of an agent.
func (f *Facts) mendStranger(u *controller.UnknownSender) string {
	names := "the names in scaler.instances"
	if !f.Listed {
		names = "the names in the list of instances"
	}
	switch {
	case u.Source != quell.FromBalancer:
		return "start that agent with --instance and one of " + names
	case f.Balancer == "haproxy":
		return fmt.Sprintf("haproxy.cfg: give server %s one of %s, which are others", u.Instance, names)
	}
	return fmt.Sprintf("the balancer's server %s has another name than the instances: give it one of %s", u.Instance, names)
}

// mostNamed is how many instances a finding names.
const mostNamed = 5

func (f *Facts) instances(s *controller.Status, add adder) {
	var stale, unprobed, over []string
	failed := map[string][]string{}
	for i := range s.Instances {
		row := &s.Instances[i]
		switch {
		case row.Held != nil:
		case row.Unprobed:
			unprobed = append(unprobed, row.ID)
		case row.Stale:
			stale = append(stale, row.ID)
		}
		if row.Utilization != nil && *row.Utilization > 1.02 {
			over = append(over, fmt.Sprintf("%s: %.2f", row.ID, *row.Utilization))
		}
		for _, why := range row.ProbeFailed {
			failed[why] = append(failed[why], row.ID)
		}
	}
	if len(stale) > 0 {
		add("no readings come from "+some(stale), "", "ssh there: systemctl status quell-agent; journalctl -u quell-agent")
	}
	if len(unprobed) > 0 {
		add("nobody probes "+some(unprobed), "their agents report, but no probe has come back", "allow TCP from the balancer to the port of "+
			"`probe`, and compare the files of probe.token_file on both machines")
	}
	if len(over) > 0 {
		add("the configured capacity is too small", "utilisation above 1 at "+some(over),
			"agent: {capacity: ...}: set what the machines can carry")
	}
	for _, why := range slices.Sorted(maps.Keys(failed)) {
		add("probes fail on "+some(failed[why]), why, "on that machine: quell doctor --sensors --config "+f.Config)
	}
}

// some names a few of many.
func some(names []string) string {
	if more := len(names) - mostNamed; more > 0 {
		return strings.Join(names[:mostNamed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// surprises is how many changes of the group that nobody asked for show an autoscaler.
const surprises = 3

// recorded says what the last hour shows: capacities that cannot be, and another program that changes the group.
func (f *Facts) recorded(add adder) {
	changes, asked := 0, time.Time{}
	var last []string
	largest, busiest := 0.0, ""
	for i, r := range f.Records {
		if r.Asked {
			asked = r.At
		}
		ids := slices.Sorted(slices.Values(r.IDs))
		if i > 0 && !slices.Equal(ids, last) && r.At.Sub(asked) > 4*f.Service.Group.Startup {
			changes++
		}
		last = ids
		if r.Largest > largest {
			largest, busiest = r.Largest, r.Busiest
		}
	}
	if changes >= surprises {
		add("another program changes the group", fmt.Sprintf("%d changes in the last hour that Quell did not ask for", changes),
			"let one of them scale: switch that autoscaler off, or let Quell only set weights (group.min equal to group.max)")
	}
	if largest > 1.02 {
		add("the configured capacity is too small", fmt.Sprintf("%s used %.2f of it in the last hour", busiest, largest),
			"agent: {capacity: ...}: set what the machines can carry")
	}
}
