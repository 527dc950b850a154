package mrburst

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/policy"
)

// burstable is a model of an instance of type t2.micro with a file server: users download files of 80 Mbit, one after the other, over a
// link that does 500 Mbit/s while there are credits, and use a processor for 0.02 s for each file.
type burstableHost struct {
	users  float64
	bucket credit.Bucket // of the network
	left   float64       // credits
	limits map[quell.Resource]float64
	at     time.Time
}

func newBurstableHost(t *testing.T, users float64) *burstableHost {
	t.Helper()
	micro, err := credit.Shipped().Find("t2.micro")
	if err != nil {
		t.Fatal(err)
	}
	b := micro.Buckets()[quell.Network]
	return &burstableHost{users: users, bucket: b, left: b.Launch, at: start}
}

// filesPerSecond is how many files are sent in a second under some limits.
func (h *burstableHost) filesPerSecond(limits map[quell.Resource]float64, credits bool) float64 {
	link := 500e6
	if !credits {
		link = h.bucket.Baseline
	}
	if l, ok := limits[quell.Network]; ok {
		link = math.Min(link, l)
	}
	files := link / 80e6
	if l, ok := limits[quell.CPU]; ok {
		files = math.Min(files, l/0.02)
	}
	return files
}

// sent is what these files take of the link, in bit/s. If the processor is what limits them, a tenth is sent twice.
func (h *burstableHost) sent(files float64, limits map[quell.Resource]float64) float64 {
	if _, ok := limits[quell.CPU]; ok {
		files *= 1.1
	}
	return files * 80e6
}

// row is a row of the host's profile.
func (h *burstableHost) row(r quell.Resource, limit, users float64) credit.ProfileRow {
	limits := map[quell.Resource]float64{}
	if r != "" {
		limits[r] = limit
	}
	files := h.filesPerSecond(limits, true)
	return credit.ProfileRow{Limited: r, Limit: limit, Load: users, LatencyMS: 1000 * users / files,
		Use: map[quell.Resource]float64{quell.Network: h.sent(files, limits), quell.CPU: files * 0.02}}
}

func (h *burstableHost) profile(t *testing.T) *credit.Profile {
	t.Helper()
	var rows []credit.ProfileRow
	for _, limit := range []float64{61e6, 100e6, 200e6, 400e6} {
		rows = append(rows, h.row(quell.Network, limit, 50))
	}
	for _, limit := range []float64{0.02, 0.03, 0.06, 0.12} {
		rows = append(rows, h.row(quell.CPU, limit, 50))
	}
	for _, users := range []float64{10, 30, 50, 100} {
		rows = append(rows, h.row(quell.Network, 200e6, users), h.row(quell.CPU, 0.06, users), h.row("", 0, users))
	}
	p, err := credit.NewProfile(rows)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// step plays ten seconds under the limits in force, and returns the snapshot at their end and the response time in them.
func (h *burstableHost) step() (*quell.Snapshot, float64) {
	const seconds = 10
	files := h.filesPerSecond(h.limits, h.left > 0)
	h.left = h.bucket.After(h.left, h.sent(files, h.limits), seconds)
	h.at = h.at.Add(seconds * time.Second)
	cpu := quell.CPUTime{User: files * 0.02}
	machine := &quell.Observation{At: h.at, WindowS: seconds, CPU: &cpu, Sched: &quell.Sched{Cores: 1}}
	s := &quell.Snapshot{At: h.at, Host: "web-1", Machine: machine}
	s.Instances = []quell.Instance{{ID: "ftp", State: quell.Ready, Observation: &quell.Observation{At: h.at, WindowS: seconds,
		Counters: map[string]float64{quell.CounterProgress: h.users}}}}
	return s, 1000 * h.users / files
}

func (h *burstableHost) apply(limits []quell.Limit) {
	h.limits = map[quell.Resource]float64{}
	for _, l := range limits {
		h.limits[l.Resource] = l.Value
	}
}

func (h *burstableHost) settings(t *testing.T) Settings {
	return Settings{Profile: h.profile(t), Objective: 20 * time.Second, Margin: 0.03, Interface: "eth0", Type: "t2.micro"}
}

func mrburst(t *testing.T, set Settings) *policy.HostEngine {
	t.Helper()
	e, err := all.NewHostEngine(quell.Policy{Name: "mrburst", Settings: set})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Credits last at least 2.4 times as long as without limits, and at least 90% as long as under the best limit, while the objective is kept.
func TestMRburstStretchesCredits(t *testing.T) {
	lasts := func(decide func(*burstableHost, *quell.Snapshot)) (seconds, slowest float64) {
		h := newBurstableHost(t, 50)
		for h.left > 0 && seconds < 1e5 {
			s, ms := h.step()
			if seconds += 10; h.left > 0 {
				slowest = math.Max(slowest, ms)
			}
			decide(h, s)
		}
		return seconds, slowest
	}
	e := mrburst(t, newBurstableHost(t, 50).settings(t))
	var st policy.State
	stretched, slowest := lasts(func(h *burstableHost, s *quell.Snapshot) {
		var plan quell.Plan
		plan, st = e.Decide(s, st)
		h.apply(plan.Limits)
	})
	free, _ := lasts(func(*burstableHost, *quell.Snapshot) {})
	best := 123617 / (50*80.0/20 - 61) // at 200 Mbit/s each of 50 files takes 20 s
	t.Logf("%.0f s, without limits %.0f s, at best %.0f s; slowest %.0f ms", stretched, free, best, slowest)
	if slowest > 20_000 {
		t.Errorf("the slowest window took %.0f ms", slowest)
	}
	if stretched < 2.4*free || stretched < 0.9*best {
		t.Errorf("credits lasted %.0f s, without limits %.0f s, at best %.0f s", stretched, free, best)
	}
}

// The limit follows the load, and is lifted when the objective cannot be kept or the load is not known.
func TestMRburstFollowsTheLoad(t *testing.T) {
	h := newBurstableHost(t, 20)
	e := mrburst(t, h.settings(t))
	var st policy.State
	var plan quell.Plan
	limitAt := func(users float64) float64 {
		h.users = users
		for range 3 {
			s, _ := h.step()
			plan, st = e.Decide(s, st)
			h.apply(plan.Limits)
		}
		if len(plan.Limits) == 0 {
			return 0
		}
		if l := plan.Limits[0]; l.Resource != quell.Network || l.Instance != "eth0" || l.Unit != "bit/s" {
			t.Errorf("limit %+v", l)
		}
		return plan.Limits[0].Value
	}
	few, many, fewer := limitAt(20), limitAt(60), limitAt(20)
	if few < 61e6 || many < 2.5*few || math.Abs(fewer-few) > 0.05*few {
		t.Errorf("limits at 20, 60 and 20 users: %.3g, %.3g, %.3g", few, many, fewer)
	}
	data, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	if st = (policy.State{}); restore(data, &st) != nil {
		t.Fatal("the memory cannot be read")
	}
	if again := limitAt(20); again != fewer {
		t.Errorf("after a restart the limit is %.3g instead of %.3g", again, fewer)
	}
	for why, change := range map[string]func(*quell.Snapshot){
		"burst_unlimited": func(s *quell.Snapshot) { s.Instances[0].Observation.Counters[quell.CounterProgress] = 1000 },
		"burst_no_load":   func(s *quell.Snapshot) { s.Instances[0].Observation.Counters = nil },
		"burst_no_group":  func(s *quell.Snapshot) { s.Instances = nil },
	} {
		limitAt(20)
		s, _ := h.step()
		change(s)
		for range 3 { // loads are averaged
			plan, st = e.Decide(s, st)
		}
		if len(plan.Limits) > 0 || !slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == why }) {
			t.Errorf("%s: %+v, %v", why, plan.Limits, plan.Reasons)
		}
	}
}

// Without an interface only the processor is limited, which also slows the link down. In unlimited mode of a type whose credits are of the
// processor alone, the limit that saves most money is chosen.
func TestMRburstLimitsWhatItCan(t *testing.T) {
	h := newBurstableHost(t, 50)
	set := h.settings(t)
	set.Interface = ""
	s, _ := h.step()
	plan, _ := mrburst(t, set).Decide(s, policy.State{})
	if len(plan.Limits) != 1 || plan.Limits[0].Resource != quell.CPU || plan.Limits[0].Instance != "ftp" {
		t.Errorf("without an interface: %+v, %v", plan.Limits, plan.Reasons)
	}
	set.Unlimited = new(true)
	plan, _ = mrburst(t, set).Decide(s, policy.State{})
	if len(plan.Reasons) != 1 {
		t.Errorf("unlimited mode: %+v, %v", plan.Limits, plan.Reasons)
	}
	set.Type = "unheard.of"
	plan, _ = mrburst(t, set).Decide(s, policy.State{})
	if len(plan.Limits) > 0 || plan.Reasons[0].Code != "burst_no_credits" {
		t.Errorf("an unknown type: %+v, %v", plan.Limits, plan.Reasons)
	}
}

// What an interface receives is limited in place of what it sends, also when the traffic is changed while a limit is in force.
func TestMRburstLimitsWhatIsReceived(t *testing.T) {
	h := newBurstableHost(t, 50)
	set := h.settings(t)
	var st policy.State
	for _, c := range []struct {
		traffic Traffic
		unit    string
	}{{Sent, "bit/s"}, {Received, quell.ReceivedUnit}, {Sent, "bit/s"}} {
		set.Traffic = c.traffic
		s, _ := h.step()
		var plan quell.Plan
		plan, st = mrburst(t, set).Decide(s, st)
		if len(plan.Limits) != 1 || plan.Limits[0].Unit != c.unit || plan.Limits[0].Instance != "eth0" {
			t.Errorf("%s: %+v", c.traffic, plan.Limits)
		}
	}
}

// On a machine only the processors' use is measured; it is in processors.
func TestMRburstPast(t *testing.T) {
	past := quell.CreditPast{AgeS: 10, SeenS: 8, Used: 2}
	m := &quell.Observation{Sched: &quell.Sched{Cores: 4}, CreditsPast: map[quell.Resource]quell.CreditPast{quell.CPU: past, quell.Disk: past}}
	if got := pastOf(m, quell.CPU); got == nil || *got != (quell.CreditPast{AgeS: 10, SeenS: 8, Used: 8}) {
		t.Errorf("of processors %+v", got)
	}
	if got := pastOf(m, quell.Disk); got == nil || *got != (quell.CreditPast{AgeS: 10}) {
		t.Errorf("of the disk %+v", got)
	}
	if got := pastOf(m, quell.Network); got != nil {
		t.Errorf("of what is not dated %+v", got)
	}
	m.Sched = nil
	if got := pastOf(m, quell.CPU); got == nil || got.SeenS != 0 {
		t.Errorf("without a number of processors %+v", got)
	}
}

// The plan says what is left, and when it runs out.
func TestMRburstForecasts(t *testing.T) {
	h := newBurstableHost(t, 50)
	set := h.settings(t)
	set.Objective = time.Nanosecond // so nothing is limited
	e := mrburst(t, set)
	var st policy.State
	var plan quell.Plan
	for range 12 {
		s, _ := h.step()
		shown := h.left
		s.Machine.Credits = map[quell.Resource]float64{quell.Network: shown}
		plan, st = e.Decide(s, st)
	}
	b, ok := plan.Credits["web-1"][quell.Network]
	want := h.left / 439
	if !ok || b.DepletedS == nil || *b.DepletedS <= 0 || *b.DepletedS > 1.05*want || h.left > b.High || h.left < b.Low {
		t.Errorf("got %+v, want %v credits and %v s", plan.Credits, h.left, want)
	}
}

// The load is the number of connections, if they are counted. Users who come count at once, those who leave within ten seconds. What the
// machine sends is measured, so that balances follow it.
func TestMRburstCountsConnections(t *testing.T) {
	h := newBurstableHost(t, 20)
	e := mrburst(t, h.settings(t))
	var st policy.State
	var plan quell.Plan
	decide := func(connections, sent float64) {
		s, _ := h.step()
		s.Instances[0].Observation.Counters = nil
		s.Machine.WindowS = 1
		s.Machine.Counters = map[string]float64{quell.CounterConnections: connections, quell.CounterSent: sent}
		s.Machine.Credits = map[quell.Resource]float64{quell.Network: 50_000}
		plan, st = e.Decide(s, st)
	}
	limit := func() float64 {
		if len(plan.Limits) == 0 {
			return 0
		}
		return plan.Limits[0].Value
	}
	decide(20, 561e6)
	few := limit()
	decide(60, 561e6)
	decide(60, 561e6)
	decide(60, 561e6)
	many := limit()
	decide(20, 561e6)
	fewer := limit()
	if few <= 0 || many < 2.5*few || fewer <= few || fewer >= many {
		t.Errorf("limits at 20, 60 and 20 connections: %.3g, %.3g, %.3g", few, many, fewer)
	}
	if b := plan.Credits["web-1"][quell.Network]; b.DepletedS == nil || math.Abs(*b.DepletedS-b.Left/500) > 0.05*b.Left/500 {
		t.Errorf("at 500 Mbit/s above the baseline: %+v", b)
	}
	decide(60, 561e6)
	decide(0, 0)
	if len(plan.Limits) > 0 || plan.Reasons[0].Code != "burst_no_load" {
		t.Errorf("without connections: %v", plan.Reasons)
	}
}

// Users who come find a limit that is too tight for them. Until their responses are due, the limit is so loose that these still come in
// time. A clock that is set back does not make that last.
func TestMRburstCatchesUp(t *testing.T) {
	h := newBurstableHost(t, 20)
	set := h.settings(t)
	e := mrburst(t, set)
	var st policy.State
	at := start
	decide := func(connections float64, later time.Duration) float64 {
		at = at.Add(later)
		s, _ := h.step()
		s.At, s.Instances[0].Observation.Counters = at, nil
		s.Machine.WindowS = later.Abs().Seconds()
		s.Machine.Counters = map[string]float64{quell.CounterConnections: connections}
		var plan quell.Plan
		plan, st = e.Decide(s, st)
		if len(plan.Limits) == 0 {
			t.Fatalf("%v", plan.Reasons)
		}
		return plan.Limits[0].Value
	}
	few := decide(20, 2*time.Second)
	loose := decide(60, 2*time.Second)
	if again := decide(60, 2*time.Second); again != loose {
		t.Errorf("%.4g, two seconds later %.4g", loose, again)
	}
	many := decide(60, 20*time.Second)
	response := 60 * 80e6 / many
	if waited, want := 2.0, 60*80e6; math.Abs(few*waited+loose*(response-waited)-want) > 0.03*want {
		t.Errorf("limits %.4g, %.4g, %.4g: %.4g bits in %.4g s, want %.4g", few, loose, many, few*waited+loose*(response-waited), response, want)
	}
	for i := 0; decide(20, 2*time.Second) > 1.05*few; i++ {
		if i > 50 {
			t.Fatal("the limit does not come back")
		}
	}
	decide(60, 2*time.Second)
	if after := decide(60, -time.Hour); after > 1.05*many {
		t.Errorf("after the clock was set back %.4g, want %.4g", after, many)
	}
}

// A balance that is not known says nothing: of t3.micro's network no cap is published, and its processors' credits last.
func TestMRburstLeavesOutUnknownBalances(t *testing.T) {
	h := newBurstableHost(t, 50)
	set := h.settings(t)
	set.Type = "t3.micro"
	s, _ := h.step()
	plan, _ := mrburst(t, set).Decide(s, policy.State{})
	if len(plan.Limits) > 0 || len(plan.Reasons) != 1 || plan.Reasons[0].Text != "credits last at a load of 50 without a limit" {
		t.Errorf("%+v, %v", plan.Limits, plan.Reasons)
	}
}

// Balances of a type that the machine no longer has are forgotten, and one that the type cannot have is told.
func TestMRburstDoubtsTheType(t *testing.T) {
	h := newBurstableHost(t, 50)
	set := h.settings(t)
	set.Type = "t2.medium"
	decide := func(st policy.State) (quell.Plan, policy.State) {
		s, _ := h.step()
		s.Machine.Credits = map[quell.Resource]float64{quell.CPU: 500}
		return mrburst(t, set).Decide(s, st)
	}
	_, st := decide(policy.State{})
	plan, st := decide(st)
	if got := plan.Credits["web-1"][quell.CPU].High; got < 490 {
		t.Fatalf("t2.medium has %.3g credits", got)
	}
	set.Type = "t2.micro"
	_, st = decide(st)
	plan, _ = decide(st)
	if got := plan.Credits["web-1"][quell.CPU].High; got == 0 || got > 144 {
		t.Errorf("t2.micro has %.3g credits, and can have 144", got)
	}
	if !slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == "burst_doubt" }) {
		t.Errorf("nothing says that the type is wrong: %v", plan.Reasons)
	}
}

// A use that is neither measured nor predicted, because the load is beyond the profile, leaves a doubt about the balance.
func TestMRburstOfAnUnknownUse(t *testing.T) {
	h := newBurstableHost(t, 1000)
	set := h.settings(t)
	e, st := mrburst(t, set), policy.State{}
	var plan quell.Plan
	for i := range 6 {
		s, _ := h.step()
		if i < 2 {
			s.Machine.Credits = map[quell.Resource]float64{quell.Network: 60_000}
		}
		plan, st = e.Decide(s, st)
		delete(plan.Credits["web-1"], quell.CPU)
	}
	h.users = 50
	for range 2 {
		s, _ := h.step()
		plan, st = e.Decide(s, st)
	}
	if b := plan.Credits["web-1"][quell.Network]; b.Low > 20_000 || b.High < 50_000 {
		t.Errorf("after a minute in which anything may have been sent: %+v", b)
	}
}

// The limit in force stays on its resource while another one is hardly better. Where use beyond the credits is sold, better means cheaper;
// elsewhere it means that credits last longer. In this profile a limit of the processor sends a tenth more than one of the network.
func TestALimitStaysWhileAnotherIsHardlyBetter(t *testing.T) {
	h := newBurstableHost(t, 50)
	profile := h.profile(t)
	for name, c := range map[string]struct {
		balance float64
		prices  map[quell.Resource]float64
		want    quell.Resource
	}{
		"credits last a tenth longer":                 {1e5, nil, quell.Network},
		"a tenth is sold more, and credits are spent": {0, map[quell.Resource]float64{quell.Network: 1e-9}, quell.Network},
		"both cost the same":                          {1e5, map[quell.Resource]float64{quell.CPU: 0.05}, quell.CPU},
	} {
		b := burst{set: Settings{Profile: profile}, mem: &memory{Limited: &quell.Limit{Resource: quell.CPU}}}
		s := credit.Situation{Load: 50, ObjectiveMS: 20_000, Margin: .03, Prices: c.prices,
			Buckets:  map[quell.Resource]credit.Bucket{quell.Network: h.bucket, quell.CPU: {Baseline: .01, Burst: 1, PerUse: 1, Cap: 1e9}},
			Balances: map[quell.Resource]float64{quell.Network: c.balance, quell.CPU: 1e9}}
		best, ok := profile.Choose(s, quell.Network)
		if !ok || best.Limited != quell.Network {
			t.Fatalf("%s: the best choice is %+v, %v", name, best, ok)
		}
		if got := b.steady(best, s); got.Limited != c.want {
			t.Errorf("%s: %s is limited, want %s: %+v, best %+v", name, got.Limited, c.want, got, best)
		}
	}
}
