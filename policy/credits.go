package policy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/setting"
)

// limitedByCredits names a limiter: the instance's credits would not last.
const limitedByCredits = "credits"

// CreditSettings say how a policy considers the credits of burstable instances.
//
// A balance comes from the provider (Observation.Credits). If it shows none but Type is set, the balance is integrated from the measured
// use, and found to be empty when the instance is slow at its baseline. How fast credits are earned and spent comes from the table of
// types, if Type or the scaler names the type; else it is learned from how shown balances change with use.
type CreditSettings struct {
	Last time.Duration // capacity is at most the use at which the credits last this long; 0: credits are ignored
	Type string        // instance type of all instances; "": as the scaler reports
	Own  *credit.Table // types of the user's own; nil: none

	// Unlimited says that instances are not slowed down without credits, but cost money. Then credits limit no capacity. Shares are by credits
	// all the same: use beyond the credits is sold as soon as one instance has none, while others have some. Nil: for processors it is so if
	// an instance was seen to use more than its baseline while the provider shows no credits; if nothing was seen, as the table of types says.
	Unlimited *bool
}

func creditKeys(s *CreditSettings) setting.Table {
	return setting.Table{
		setting.Opt("last", setting.Duration(&s.Last).Between(0, 30*24*time.Hour),
			"an instance's capacity is at most the use at which its credits last this long; 0s: credits are ignored"),
		setting.Opt("type", setting.Ident(&s.Type), "instance type of all instances").Or("as the scaler reports"),
		setting.Opt("unlimited", setting.Pointer(&s.Unlimited, func(b *bool) setting.Value { return setting.Bool(b) }),
			"without credits instances are not slowed down, but cost money: only shares follow credits").
			Or("what their use shows, else as the table of types says"),
		setting.Opt("types", setting.TableOf(&s.Own, "table of instance types", "types", credit.Parse),
			"file with types that Quell's own table lacks").
			Or("none"),
	}
}

// creditsAgree refuses a type that no table has.
func creditsAgree(d *setting.Decoder, path string, s CreditSettings) {
	s.Refuse(d, setting.Join(path, "credits.type"), setting.Join(path, "credits.types"), s.Type)
}

// Refuse reports a type that no table has. at and types are the places of its name and of the user's own table.
func (s *CreditSettings) Refuse(d *setting.Decoder, at, types, name string) {
	if name == "" || !d.Sound(at, types) {
		return
	}
	if _, err := s.table().Find(name); err != nil {
		d.Refuse(at, "", "%v", err)
	}
}

func (s *CreditSettings) table() *credit.Table {
	if s.Own == nil {
		return credit.Shipped()
	}
	return credit.Shipped().With(s.Own)
}

// TypeOf returns a type of the user's own or of Quell's table.
func (s *CreditSettings) TypeOf(name string) (entry credit.Type, ok bool) {
	if name == "" {
		return entry, false
	}
	if s.Own != nil {
		if entry, ok = s.Own.Type(name); ok {
			return entry, true
		}
	}
	return credit.Shipped().Type(name)
}

// TypeOf returns what is known of the type of instances whose policy considers credits: the type in its settings, or else the listed one.
func (t Table) TypeOf(p quell.Policy, listed string) (credit.Type, bool) {
	var s CreditSettings
	if r, settings, err := t.find(p); err == nil {
		s = r.credits(settings)
	}
	return s.TypeOf(cmp.Or(s.Type, listed))
}

// unlimited returns whether an instance's processors are not slowed down without credits. sold is what was seen of that, if anything.
func (s *CreditSettings) unlimited(instanceType string, sold *bool) bool {
	switch {
	case s.Unlimited != nil:
		return *s.Unlimited
	case sold != nil:
		return *sold
	}
	entry, ok := s.TypeOf(cmp.Or(s.Type, instanceType))
	return ok && entry.CPU != nil && entry.CPU.Unlimited
}

// unlimited returns whether credits do not limit an instance. Credits of links and disks do, unless the settings say otherwise.
func (m *Member) unlimited(set *CreditSettings, p *purse) bool {
	if set.Unlimited == nil && p.resource != quell.CPU {
		return false
	}
	return set.unlimited(m.Type, p.track.Sold)
}

// bucket returns the published credits of an instance, with uses as fractions of the resource. ok is false if its type is not known, or
// too little is published of it.
func (s *CreditSettings) bucket(instanceType string, r quell.Resource) (b credit.Bucket, ok bool) {
	if s.Type != "" {
		instanceType = s.Type
	}
	entry, ok := s.TypeOf(instanceType)
	if !ok {
		return b, false
	}
	b = entry.Buckets()[r]
	if b.Burst == 0 || !b.Limits() {
		return credit.Bucket{}, false
	}
	return b.Per(b.Burst), true
}

// CreditTracks is what is remembered of an instance's credits.
type CreditTracks map[quell.Resource]credit.Track

// creditLaws is what was learned about each kind of credits. The map is never changed.
type creditLaws map[quell.Resource]creditLaw

type creditLaw struct {
	credit.Law
	Fresh *float64 `json:"fresh,omitempty"` // the first balance that was shown of the newest instance
}

// with returns the laws with another one for a resource.
func (l creditLaws) with(r quell.Resource, law creditLaw) creditLaws {
	next := maps.Clone(l)
	if next == nil {
		next = creditLaws{}
	}
	next[r] = law
	return next
}

// young is the age up to which the first balance that is shown of an instance counts as that of a fresh one.
const young = 15 * time.Minute

// purse is one kind of credits of an instance in a decision.
type purse struct {
	resource quell.Resource
	bucket   credit.Bucket
	track    credit.Track
	rate     float64 // load of the instance for each unit of use
	most     float64 // largest balance: the cap or, if it is not known, the largest that was shown
	fresh    float64 // balance of a new instance; 0: none, or not known
}

// followCredits returns what is remembered of an instance's credits after its observation, and what was learned from it.
func (m *Member) followCredits(set *CreditSettings, in *Input, before CreditTracks, laws creditLaws) (CreditTracks, creditLaws) {
	o := m.Observation
	switch {
	case set.Last == 0:
		return nil, laws
	case o == nil:
		return before, laws
	}
	tracks := before
	for _, r := range quell.Resources {
		use, measured := o.Utilization[r]
		shown, isShown := o.Credits[r]
		track, known := before[r]
		if !measured || !isShown && !known && set.Type == "" {
			continue
		}
		bucket := m.creditBucket(set, laws, r)
		if !isShown && !known && bucket == nil {
			continue
		}
		if !known && !isShown {
			track = m.unseenBalance(in, bucket)
		}
		reading := credit.Reading{At: o.At, WindowS: o.WindowS, Use: use, Slow: m.isSlow(in, r)}
		if isShown {
			reading.Shown = &shown
			if past, dated := o.CreditsPast[r]; dated {
				reading.Past = &past
			}
		}
		next, episode := track.Follow(bucket, reading)
		if tracks = maps.Clone(tracks); tracks == nil {
			tracks = CreditTracks{}
		}
		tracks[r] = next
		law := laws[r]
		if episode != nil {
			law.Law = law.With(*episode)
			laws = laws.with(r, law)
		}
		if isShown && track.Shown == nil && m.AgeS != nil && m.age() <= young {
			law.Fresh = &shown
			laws = laws.with(r, law)
		}
	}
	return tracks, laws
}

// unseenBalance begins the memory of a balance that no provider shows: the launch credits of an instance that has just started, or
// anything up to the cap.
func (m *Member) unseenBalance(in *Input, b *credit.Bucket) credit.Track {
	if m.AgeS != nil && m.age() <= defaultPatience*in.Service.Sampling {
		return b.New(m.Observation.At)
	}
	return b.Unknown(m.Observation.At)
}

// creditBucket returns how an instance earns and spends credits, or nil if that is not known. Of processors a law needs the number.
func (m *Member) creditBucket(set *CreditSettings, laws creditLaws, r quell.Resource) *credit.Bucket {
	if b, ok := set.bucket(m.Type, r); ok {
		return &b
	}
	processors := 0.0
	if o := m.Observation; r == quell.CPU && o != nil && o.Sched != nil {
		processors = o.Sched.Cores
	}
	if b, ok := laws[r].Bucket(processors); ok {
		return &b
	}
	return nil
}

// slowWithout is the severity from which an instance at its baseline is taken to be without credits: it takes twice as long.
const slowWithout = 1

// isSlow returns whether probes of a resource take much longer than its use explains.
func (m *Member) isSlow(in *Input, r quell.Resource) bool {
	for i := range m.Senses {
		if s := &m.Senses[i]; in.contended[i].Resource == r {
			return s.HasSeverity && !s.numb && s.Measured >= slowWithout
		}
	}
	return false
}

// listPurses lists the credits of an instance whose balance, earning and spending are known.
func (m *Member) listPurses(set *CreditSettings, rates map[quell.Resource]float64, tracks CreditTracks, laws creditLaws) (list []purse) {
	for _, r := range slices.Sorted(maps.Keys(tracks)) {
		bucket := m.creditBucket(set, laws, r)
		rate, used := rates[r]
		t := tracks[r]
		if bucket == nil || !t.Known || !used {
			continue
		}
		p := purse{resource: r, bucket: *bucket, track: t, rate: rate, most: cmp.Or(bucket.Cap, t.Most), fresh: bucket.Launch}
		if learned := laws[r].Fresh; learned != nil {
			p.fresh = *learned
		}
		list = append(list, p)
	}
	return list
}

// loadPerUse returns, for each resource, how much load the group has for each unit of its use, from the instances that report it.
// Resources that nobody uses are left out.
func (g *Group) loadPerUse() map[quell.Resource]float64 {
	load, used := map[quell.Resource]float64{}, map[quell.Resource]float64{}
	for i := range g.Members {
		m := &g.Members[i]
		if m.Observation == nil || !m.HasUse || len(m.prima().Credits) == 0 {
			continue
		}
		for r, use := range m.Observation.Utilization {
			load[r], used[r] = load[r]+m.Use, used[r]+use
		}
	}
	rates := map[quell.Resource]float64{}
	for r := range load {
		if load[r] > 0 && used[r] > 0 {
			rates[r] = load[r] / used[r]
		}
	}
	return rates
}

// limitByCredits lowers an instance's capacity to the load at which every kind of its credits lasts for the time in the settings.
func (m *Member) limitByCredits(set *CreditSettings) {
	m.uncredited = m.capacity
	for i := range m.purses {
		p := &m.purses[i]
		if m.unlimited(set, p) {
			continue
		}
		if most := p.bucket.Lasting(p.track.Middle(), set.Last.Seconds()) * p.rate; most < m.capacity {
			m.capacity, m.byCredits = most, true
		}
	}
}

// holder describes, in units of load, the kind of an instance's credits that limits it most.
func (m *Member) holder(set *CreditSettings) credit.Holder {
	h, least := credit.Holder{Baseline: m.uncredited, Most: m.uncredited}, math.Inf(1)
	for _, p := range m.purses {
		if most := p.bucket.Lasting(p.track.Middle(), set.Last.Seconds()) * p.rate; most < least {
			least = most
			h.Baseline, h.Balance = p.bucket.Baseline*p.rate, p.track.Middle()/p.bucket.PerUse*p.rate
		}
	}
	return h
}

// byCredits compares how long instances can carry load by their credits alone: it is negative if a lasts longer. An instance without
// credits lasts for ever.
func byCredits(set *CreditSettings, a, b *Member) int {
	lasting := func(m *Member) float64 {
		least := math.Inf(1)
		for _, p := range m.purses {
			least = math.Min(least, p.bucket.Lasting(p.track.Middle(), set.Last.Seconds())*p.rate)
		}
		return least
	}
	return cmp.Compare(lasting(b), lasting(a))
}

// alike is the step to which capacities are rounded before credits decide which instances are kept: a smaller difference is mostly chance.
const alike = 0.02

// keepCredited sorts instances by capacity, those with more credits first among nearly equal ones, so that the load stays with those that
// have credits. The order of instances whose share a person set, and of those with errors, stays.
func keepCredited(set *CreditSettings, sorted []*Member) {
	if set.Last == 0 || !slices.ContainsFunc(sorted, func(m *Member) bool { return len(m.purses) > 0 }) {
		return
	}
	class := func(m *Member) int {
		switch {
		case m.Fixed != nil:
			return 0
		case m.Failing:
			return 2
		}
		return 1
	}
	slices.SortStableFunc(sorted, func(a, b *Member) int {
		larger := cmp.Compare(math.Round(b.capacity/alike), math.Round(a.capacity/alike))
		return cmp.Or(cmp.Compare(class(a), class(b)), larger, byCredits(set, a, b))
	})
}

// divideByCredits sets what each member carries so that all credits last equally long at the group's load. It returns how long that is, or
// false if no member has credits or the load is more than all can carry. Members whose share a person set keep it.
func divideByCredits(set *CreditSettings, members []*Member, load, whole float64) (left time.Duration, lasts, ok bool) {
	var sharing []*Member
	var holders []credit.Holder
	for _, m := range members {
		if m.Fixed != nil {
			m.carry = *m.Fixed * whole
			load -= m.carry
			continue
		}
		ok = ok || len(m.purses) > 0
		sharing, holders = append(sharing, m), append(holders, m.holder(set))
	}
	if !ok {
		return 0, false, false
	}
	loads, seconds, lasts, ok := credit.Divide(holders, math.Max(0, load))
	if !ok || load <= 0 {
		return 0, false, false
	}
	for i, m := range sharing {
		m.carry = loads[i]
	}
	return time.Duration(math.Min(seconds, MostForeseen.Seconds()) * float64(time.Second)), lasts, true
}

// divideAmong sets what each kept instance carries when the others are gone. Before, the load was divided over all.
func (p *primaPlan) divideAmong(kept []*Member) {
	if !p.pooled {
		return
	}
	for _, m := range kept {
		m.carry = m.capacity
	}
	divideByCredits(&p.set.Credits, kept, p.group.due, p.group.Load)
}

// MostForeseen is the longest time of which a plan says how long credits last.
const MostForeseen = 365 * 24 * time.Hour

// noteCredits records how many credits each instance has and when they run out at its present use.
func noteCredits(members []*Member, plan *quell.Plan) {
	for _, m := range members {
		for _, p := range m.purses {
			f, ok := p.bucket.Forecast(p.track)
			if !ok {
				continue
			}
			if plan.Credits == nil {
				plan.Credits = map[string]quell.Balances{}
			}
			if plan.Credits[m.ID] == nil {
				plan.Credits[m.ID] = quell.Balances{}
			}
			plan.Credits[m.ID][p.resource] = BalanceOf(f, p.bucket.Baseline)
		}
	}
}

// BalanceOf is what a plan says of a balance.
func BalanceOf(f credit.Forecast, baseline float64) quell.Balance {
	return quell.Balance{
		Left: f.Left.Middle(), Low: f.Left.Low, High: f.Left.High, Baseline: baseline,
		DepletedS: foreseen(f.Depleted), SoonestS: foreseen(f.Soonest), LatestS: foreseen(f.Latest),
	}
}

// replaceSpent asks for the instance to be replaced whose credits run out first, if they are below the service's part of a full balance
// and a fresh instance has more than that (MRburst, section 3.4). Types without launch credits start empty, so they are never replaced.
// There is one replacement at a time, and group.replace.every between two of them, so that instances that run out together are not
// replaced together.
func replaceSpent(in *Input, set *CreditSettings, g *Group, plan *quell.Plan) {
	below := in.Service.Group.Replace.Below
	if below == 0 || in.Service.Group.Fixed {
		return
	}
	if plan.Group != nil && len(plan.Group.Remove) > 0 { // there are too many instances: the ones without credits go first
		return
	}
	soonest := math.Inf(1)
	var old *Member
	var by purse
	for _, m := range g.rated {
		if m.protected || m.Fixed != nil || m.Held != nil {
			continue
		}
		for _, p := range m.purses {
			if m.unlimited(set, &p) {
				continue
			}
			least := below * p.most
			seconds, ends := p.bucket.Depletion(p.track.Middle(), p.track.Use)
			if ends && p.track.Middle() < least && p.fresh > least && seconds < soonest {
				soonest, old, by = seconds, m, p
			}
		}
	}
	replaced := slices.ContainsFunc(in.Snapshot.Instances, func(i quell.Instance) bool { return i.Replaces != "" })
	if old == nil || replaced {
		return
	}
	plan.Replace = []string{old.ID}
	AddReason(plan, "replace", old.ID,
		"%s has %.3g of %.3g credits of the %s left, which last about %s; a fresh instance has %.3g: replacing it",
		old.ID, by.track.Middle(), by.most, by.resource, time.Duration(soonest*float64(time.Second)).Round(time.Second), by.fresh)
}

// foreseen returns a time in seconds, or nil if it is too far away to be worth a forecast.
func foreseen(seconds *float64) *float64 {
	if seconds == nil || *seconds > MostForeseen.Seconds() {
		return nil
	}
	return seconds
}

// lastText says how long credits last.
func lastText(left time.Duration, lasts bool) string {
	if !lasts {
		return "the load is within what they earn"
	}
	return fmt.Sprintf("they last about %s at this load", left.Round(time.Minute))
}
