package mrburst

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
)

// Traffic is the traffic of a network interface that costs credits.
type Traffic string

// The traffic: what the interface sends, or what it receives.
const (
	Sent     Traffic = "sent"
	Received Traffic = "received"
)

// Settings are the settings of mrburst.
type Settings struct {
	Profile   *credit.Profile
	Objective time.Duration // response time in the profile's percentile
	Margin    float64       // the predicted response time stays this fraction below the objective
	Group     string        // the control group that is limited; "": the only one
	Interface string        // the network interface that is limited; "": none
	Traffic   Traffic
	Type      string        // of this instance
	Own       *credit.Table // types of the user's own; nil: none
	Volume    string        // type of the volume that the group uses; "": its operations need no credits
	GiB       float64       // size of that volume
	Unlimited *bool         // use beyond the credits is sold instead of refused; nil: as the table says of the type
	Fresh     bool          // the instance has its launch credits when the agent starts for the first time
}

var Spec = policy.HostSpec[Settings]{
	Name: "mrburst", About: "limits what a burstable instance uses, so that its credits last as long as the objective allows",
	Defaults: Settings{Margin: 0.05, Traffic: Sent},
	Keys: func(s *Settings) setting.Table {
		return setting.Table{
			setting.Req("profile", setting.FileOf(&s.Profile, "profile", credit.ReadProfile),
				"file with response time and use under limits, see docs/policies/mrburst.md"),
			setting.Req("objective", setting.Duration(&s.Objective).Above(0), "response time to keep, in the percentile of the profile"),
			setting.Req("type", setting.Ident(&s.Type), "instance type of this machine, as in docs/credits.md"),
			setting.Opt("types", setting.TableOf(&s.Own, "table of instance types", "types", credit.Parse),
				"file with types that Quell's own table lacks").
				Or("none"),
			setting.Opt("margin", setting.Share(&s.Margin).Between(0, 0.9), "the predicted response time stays this far below the objective"),
			setting.Opt("group", setting.Ident(&s.Group), "name of the control group that is limited, if there are several").Or("the only one"),
			setting.Opt("interface", setting.Ident(&s.Interface), "network interface that is limited").Or("none: the network is not limited"),
			setting.Opt("traffic", setting.OneOf(&s.Traffic, []Traffic{Sent, Received}),
				"what of the interface's traffic costs credits and is limited: sent or received; the latter needs a kernel with ifb"),
			setting.Opt("volume", setting.Ident(&s.Volume), "type of the volume that the group uses, such as gp2").Or("none"),
			setting.Opt("gib", setting.Decimal(&s.GiB).Above(0).Between(0, 1e6), "size of that volume in GiB").Or("none"),
			setting.Opt("fresh", setting.Bool(&s.Fresh),
				"the instance is new when the agent starts for the first time: it has the type's launch credits"),
			setting.Opt("unlimited", setting.Pointer(&s.Unlimited, func(b *bool) setting.Value { return setting.Bool(b) }),
				"use beyond the credits costs money instead of being refused: limits save money").Or("as the table says of the type"),
		}
	},
	Agree: func(d *setting.Decoder, path string, s Settings) {
		table := &policy.CreditSettings{Type: s.Type, Own: s.Own}
		table.Refuse(d, setting.Join(path, "type"), setting.Join(path, "types"), s.Type)
		table.Refuse(d, setting.Join(path, "volume"), setting.Join(path, "types"), s.Volume)
		if gib := setting.Join(path, "gib"); s.Volume != "" && s.GiB == 0 && d.Sound(gib) {
			d.Refuse(setting.Join(path, "volume"), "", "needs %s: its size says what it earns", gib)
		}
		unlimited := setting.Join(path, "unlimited")
		if entry, ok := table.TypeOf(s.Type); ok && s.sold(entry) && (entry.CPU == nil || entry.CPU.Surplus == 0) && d.Sound(unlimited) {
			d.Refuse(unlimited, "", "the table of types has no price of use beyond the credits (surplus) for %s", s.Type)
		}
	},
	Memory: policy.Empty[memory],
	Spends: true,
	Decide: decide,
}

// memory is what mrburst remembers.
type memory struct {
	Load    float64             `json:"load,omitempty"`  // of the last ten seconds
	At      time.Time           `json:"at,omitzero"`     // when the load was last updated
	Types   string              `json:"types,omitempty"` // of the instance and its volume
	Tracks  policy.CreditTracks `json:"tracks,omitempty"`
	Limited *quell.Limit        `json:"limited,omitempty"` // the limit of the last plan

	CatchUp *lag `json:"catch_up,omitempty"`
}

// lag is a looser limit for a short time, for users who came while the limit was too tight for them.
type lag struct {
	Value float64   `json:"value"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Constants of mrburst.
const (
	mrburstWindow = 10 * time.Second // over which the load is averaged (MRburst, section 4.5)
	mrburstMoves  = 0.03             // a limit that differs by less than this from the one in force is left alone
)

// burst is one decision of mrburst.
type burst struct {
	set     Settings
	mem     *memory
	s       *quell.Snapshot
	group   *quell.Instance // nil: it is not there
	came    float64         // for how many seconds users who came since the last decision have been there, at most; 0: none came
	buckets map[quell.Resource]credit.Bucket
	plan    quell.Plan
}

// decide limits one resource so that the credits of all of them last longest within the objective (MRburst, sections 3.2 and 3.3).
func decide(s *quell.Snapshot, set Settings, st *policy.State) quell.Plan {
	b := &burst{set: set, mem: policy.Remembered[memory](st), s: s}
	b.buckets = set.buckets()
	b.find()
	b.follow()
	switch {
	case set.Profile == nil:
		b.free("burst_unprofiled", "there is no profile: nothing is limited")
	case len(b.buckets) == 0:
		b.free("burst_no_credits", fmt.Sprintf("no credits are known of type %q: nothing is limited", set.Type))
	case b.group == nil:
		b.free("burst_no_group", "the control group is not there: nothing is limited")
	case !b.measure():
		b.free("burst_no_load", "the group has no connections, or its programs report no work, so the load is not known: nothing is limited")
	default:
		b.choose()
	}
	if b.mem.Limited != nil {
		b.plan.Limits = []quell.Limit{*b.mem.Limited}
	}
	return b.plan
}

// buckets returns the credits of the instance and its volume. Uses are in processors, operations per second and bit/s.
func (s *Settings) buckets() map[quell.Resource]credit.Bucket {
	table := &policy.CreditSettings{Own: s.Own}
	buckets := map[quell.Resource]credit.Bucket{}
	if entry, ok := table.TypeOf(s.Type); ok {
		buckets = entry.Buckets()
	}
	if entry, ok := table.TypeOf(s.Volume); ok && entry.Disk != nil {
		buckets[quell.Disk] = entry.Disk.Bucket(s.GiB)
	}
	maps.DeleteFunc(buckets, func(_ quell.Resource, b credit.Bucket) bool { return !b.Sound() || !b.Limits() })
	return buckets
}

// find looks for the group that is to be limited.
func (b *burst) find() {
	for i := range b.s.Instances {
		if in := &b.s.Instances[i]; in.ID == b.set.Group || b.set.Group == "" && len(b.s.Instances) == 1 {
			b.group = in
		}
	}
}

// measure updates the load from the connections that are open, or else from what programs report. It returns whether the load is known.
func (b *burst) measure() bool {
	if b.s.Machine != nil {
		if open, counted := b.s.Machine.Counters[quell.CounterConnections]; counted {
			return b.average(open, b.s.Machine.WindowS, true)
		}
	}
	o := b.group.Observation
	if o == nil {
		return b.mem.Load > 0
	}
	rate, reported := o.Counters[quell.CounterProgress]
	return b.average(rate, o.WindowS, false) && reported
}

// average updates the load. rising says that a load above the average counts at once: users who have come are there, whereas the number of
// requests in a window varies by chance.
func (b *burst) average(load, window float64, rising bool) bool {
	if load <= 0 {
		b.mem.Load = 0
		return false
	}
	part := math.Min(1, window/mrburstWindow.Seconds())
	switch {
	case b.mem.Load == 0 || part <= 0 || b.s.At.Sub(b.mem.At) > 3*mrburstWindow:
		part = 1
	case rising && load > b.mem.Load:
		part, b.came = 1, window
	}
	b.mem.Load += part * (load - b.mem.Load)
	b.mem.At = b.s.At
	return true
}

// follow integrates the balances. Uses are measured; one that is not measured is what the profile says of the present load and limit.
func (b *burst) follow() {
	use, window := b.uses()
	tracks := policy.CreditTracks{}
	types := fmt.Sprintf("%s %s %g", b.set.Type, b.set.Volume, b.set.GiB)
	if types == b.mem.Types || b.mem.Types == "" { // balances of another type say nothing of this one's
		maps.Copy(tracks, b.mem.Tracks)
	}
	b.mem.Types = types
	for _, r := range slices.Sorted(maps.Keys(b.buckets)) {
		bucket := b.buckets[r]
		track, known := tracks[r]
		if !known {
			track = bucket.Unknown(b.s.At)
			if b.set.Fresh && bucket.Launch > 0 {
				track = bucket.New(b.s.At)
			}
		}
		used, measured := use[r]
		reading := credit.Reading{At: b.s.At, WindowS: window, Use: used}
		if m := b.s.Machine; m != nil {
			if shown, ok := m.Credits[r]; ok {
				reading.Shown, reading.Past = &shown, pastOf(m, r)
				b.doubt(r, shown, &bucket)
			}
		}
		tracks[r] = track
		if measured || reading.Shown != nil || b.mem.Load == 0 { // else the window is a gap, in which the use is not known
			tracks[r], _ = track.Follow(&bucket, reading)
		}
	}
	maps.DeleteFunc(tracks, func(r quell.Resource, _ credit.Track) bool { _, ok := b.buckets[r]; return !ok })
	b.mem.Tracks = tracks
	b.note()
}

// doubt says that a balance which the provider shows cannot be one of this type.
func (b *burst) doubt(r quell.Resource, shown float64, bucket *credit.Bucket) {
	if !bucket.Believable(shown) {
		b.reason("burst_doubt", fmt.Sprintf("the provider shows %.4g credits of the %s, and the type %q cannot have more than %.4g: "+
			"the balance is not used; is the type right?", shown, r, b.set.Type, bucket.Cap+bucket.Launch))
	}
}

// pastOf returns what a machine has used since a shown balance was true, nil if that is not known. Only processors are measured here.
func pastOf(m *quell.Observation, r quell.Resource) *quell.CreditPast {
	past, dated := m.CreditsPast[r]
	switch {
	case !dated:
		return nil
	case r == quell.CPU && m.Sched != nil:
		past.Used *= m.Sched.Cores
	default:
		past.SeenS, past.Used = 0, 0
	}
	return &past
}

// uses returns what the machine uses of each resource, and the length of the window in seconds.
func (b *burst) uses() (use map[quell.Resource]float64, window float64) {
	use = map[quell.Resource]float64{}
	if b.set.Profile != nil && b.mem.Load > 0 {
		if x, ok := b.present(); ok {
			use = maps.Clone(x.Use)
		}
	}
	if m := b.s.Machine; m != nil {
		window = m.WindowS
		if m.CPU != nil && m.Sched != nil {
			use[quell.CPU] = (m.CPU.User + m.CPU.System) * m.Sched.Cores
		}
		for r, counter := range b.counters() {
			if measured, ok := m.Counters[counter]; ok {
				use[r] = measured
			}
		}
	}
	return use, window
}

// counters are the counters of a machine that say what it uses of each resource.
func (b *burst) counters() map[quell.Resource]string {
	c := map[quell.Resource]string{quell.CPU: quell.CounterProcessors, quell.Disk: quell.CounterOperations, quell.Network: quell.CounterSent}
	if b.set.Traffic == Received {
		c[quell.Network] = quell.CounterReceived
	}
	return c
}

// present predicts what is used under the limit in force at the last load.
func (b *burst) present() (credit.Prediction, bool) {
	if l := b.mem.Limited; l != nil {
		return b.set.Profile.Predict(l.Resource, l.Value, b.mem.Load)
	}
	return b.set.Profile.Predict("", 0, b.mem.Load)
}

// note records the balances in the plan.
func (b *burst) note() {
	balances := quell.Balances{}
	for _, r := range slices.Sorted(maps.Keys(b.mem.Tracks)) {
		bucket := b.buckets[r]
		if f, ok := bucket.Forecast(b.mem.Tracks[r]); ok {
			balances[r] = policy.BalanceOf(f, bucket.Baseline)
		}
	}
	if len(balances) > 0 && b.s.Host != "" {
		b.plan.Credits = map[string]quell.Balances{b.s.Host: balances}
	}
}

// choose sets the limit of the plan.
func (b *burst) choose() {
	situation := credit.Situation{
		Load: b.mem.Load, ObjectiveMS: float64(b.set.Objective) / float64(time.Millisecond), Margin: b.set.Margin,
		Buckets: map[quell.Resource]credit.Bucket{}, Balances: map[quell.Resource]float64{}, Prices: b.prices(),
	}
	for r, t := range b.mem.Tracks {
		if t.Known {
			situation.Buckets[r], situation.Balances[r] = b.buckets[r], t.Middle()
		}
	}
	if len(situation.Buckets) == 0 {
		b.free("burst_no_credits", fmt.Sprintf("no balance of type %q is known yet: nothing is limited", b.set.Type))
		return
	}
	best, ok := b.set.Profile.Choose(situation, b.limitable()...)
	best = b.steady(best, situation)
	switch {
	case !ok:
		b.free("burst_unlimited", fmt.Sprintf("at a load of %.4g no limit of the profile, which has loads up to %.4g, keeps %s: nothing is "+
			"limited", b.mem.Load, b.set.Profile.MostLoad(), b.set.Objective))
	case best.Limited == "" && best.Depleted == nil:
		b.free("burst_free", fmt.Sprintf("credits last at a load of %.4g without a limit", b.mem.Load))
	case best.Limited == "":
		b.free("burst_free", fmt.Sprintf("at a load of %.4g no limit makes credits last longer: the first to run out are those of the %s, in %s",
			b.mem.Load, best.First, untilSpent(best)))
	default:
		b.limit(best)
	}
}

// untilSpent is how long the first credits last.
func untilSpent(c credit.Choice) time.Duration {
	return time.Duration(math.Min(*c.Depleted, policy.MaxForeseen.Seconds()) * float64(time.Second)).Round(time.Second)
}

// steady returns the choice for the resource that is limited at present, if its credits last nearly as long as under the best choice, or
// cost hardly more.
func (b *burst) steady(best credit.Choice, s credit.Situation) credit.Choice {
	now := b.mem.Limited
	if now == nil || best.Limited == now.Resource || best.Depleted == nil {
		return best
	}
	stay, ok := b.set.Profile.Choose(s, now.Resource)
	switch {
	case !ok || stay.Limited != now.Resource || stay.Depleted == nil:
		return best
	case s.Prices != nil && stay.USD > (1+mrburstMoves)*best.USD, s.Prices == nil && *stay.Depleted < (1-mrburstMoves)**best.Depleted:
		return best
	}
	return stay
}

// sold returns whether a type's use beyond the credits is sold.
func (s *Settings) sold(t credit.Type) bool {
	if s.Unlimited != nil {
		return *s.Unlimited
	}
	return t.CPU != nil && t.CPU.Unlimited
}

// limitable lists the resources that can be limited here.
func (b *burst) limitable() []quell.Resource {
	list := []quell.Resource{quell.CPU, quell.Disk}
	if b.set.Interface != "" {
		list = append(list, quell.Network)
	}
	return list
}

// prices returns what an hour of use beyond the credits costs, by resource; nil if it is not sold.
func (b *burst) prices() map[quell.Resource]float64 {
	entry, ok := (&policy.CreditSettings{Own: b.set.Own}).TypeOf(b.set.Type)
	if !ok || entry.CPU == nil || !b.set.sold(entry) {
		return nil
	}
	return map[quell.Resource]float64{quell.CPU: entry.CPU.Surplus}
}

// burstUnits are the units of limits, by resource.
var burstUnits = map[quell.Resource]string{quell.CPU: "processors", quell.Disk: "operations per second", quell.Network: "bit/s"}

// limit puts a chosen limit into the plan. A limit in force that hardly differs stays, unless it is tighter than the chosen one.
func (b *burst) limit(c credit.Choice) {
	next := quell.Limit{Instance: b.group.ID, Resource: c.Limited, Value: c.Limit, Unit: burstUnits[c.Limited]}
	if c.Limited == quell.Network {
		next.Instance = b.set.Interface
		if b.set.Traffic == Received {
			next.Unit = quell.ReceivedUnit
		}
	}
	now := b.mem.Limited
	if now != nil && (now.Instance != next.Instance || now.Resource != next.Resource || now.Unit != next.Unit) {
		now, b.mem.CatchUp = nil, nil
	}
	caught := b.catchUp(now, &next, c.LatencyMS/1000)
	if now != nil && now.Value >= next.Value && now.Value <= next.Value*(1+mrburstMoves) {
		next = *now
	}
	b.mem.Limited = &next
	why := "no credits run out"
	switch {
	case b.prices() != nil:
		why = fmt.Sprintf("use beyond the credits costs %.4g dollars an hour", c.USD)
	case c.Depleted != nil:
		why = fmt.Sprintf("the first credits to run out are those of the %s, in %s", c.First, untilSpent(c))
	}
	if caught {
		why += "; looser for a moment, because users came while the limit was tighter"
	}
	b.reason("burst_limited", fmt.Sprintf("at a load of %.4g the %s is limited to %.4g %s: %.4g ms expected, and %s", b.mem.Load, c.Limited,
		next.Value, next.Unit, c.LatencyMS, why))
}

// catchUp loosens the next limit for users who came while the limit in force was too tight for them, and returns whether it did. Under the
// next limit r', a response takes t seconds (the argument response). New users have waited for up to w seconds under the old limit r. Their
// responses still come within t if the rest is sent at the rate (r' t - r w) / (t - w).
func (b *burst) catchUp(now, next *quell.Limit, response float64) bool {
	if now != nil && b.came > 0 && next.Value > now.Value {
		waited := math.Min(b.came, response/2)
		b.mem.CatchUp = &lag{
			Value: (next.Value*response - now.Value*waited) / (response - waited),
			Since: b.s.At, Until: b.s.At.Add(time.Duration(response * float64(time.Second))),
		}
	}
	up := b.mem.CatchUp
	if up == nil || b.s.At.Before(up.Since) || !b.s.At.Before(up.Until) || up.Value <= next.Value {
		b.mem.CatchUp = nil
		return false
	}
	next.Value = up.Value
	return true
}

// free lifts the limit.
func (b *burst) free(code, text string) {
	b.mem.Limited, b.mem.CatchUp = nil, nil
	b.reason(code, text)
}

func (b *burst) reason(code, text string) {
	instance := b.set.Group
	if b.group != nil {
		instance = cmp.Or(instance, b.group.ID)
	}
	b.plan.Reasons = append(b.plan.Reasons, quell.Reason{Code: code, Instance: instance, Text: text})
}
