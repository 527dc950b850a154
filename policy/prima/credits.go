package prima

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

func creditKeys(s *policy.CreditSettings) setting.Table {
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
func creditsAgree(d *setting.Decoder, path string, s policy.CreditSettings) {
	s.Refuse(d, setting.Join(path, "credits.type"), setting.Join(path, "credits.types"), s.Type)
}

// unslowed returns whether credits do not limit an instance. Credits of links and disks do, unless the settings say otherwise.
func unslowed(m *policy.Member, set *policy.CreditSettings, p *policy.TokenBucket) bool {
	if set.Unlimited == nil && p.Resource != quell.CPU {
		return false
	}
	return set.Unslowed(m.Type, p.Track.Sold)
}

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

// followCreditsOf returns what is remembered of an instance's credits after its observation, and what was learned from it.
func followCreditsOf(m *policy.Member, set *policy.CreditSettings, in *policy.Input, before policy.CreditTracks,
	laws creditLaws) (policy.CreditTracks, creditLaws) {
	o := m.Observation
	switch {
	case set.Last == 0:
		return nil, laws
	case o == nil, len(o.Credits) == 0 && len(before) == 0 && set.Type == "":
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
		bucket := creditBucket(m, set, laws, r)
		if !isShown && !known && bucket == nil {
			continue
		}
		if !known && !isShown {
			track = unseenBalance(m, in, bucket)
		}
		reading := credit.Reading{At: o.At, WindowS: o.WindowS, Use: use, Slow: isSlow(m, in, r)}
		if isShown {
			reading.Shown = &shown
			if past, dated := o.CreditsPast[r]; dated {
				reading.Past = &past
			}
		}
		next, episode := track.Follow(bucket, reading)
		if tracks = maps.Clone(tracks); tracks == nil {
			tracks = policy.CreditTracks{}
		}
		tracks[r] = next
		law := laws[r]
		if episode != nil {
			law.Law = law.With(*episode)
			laws = laws.with(r, law)
		}
		if isShown && track.Shown == nil && m.AgeS != nil && m.Age() <= young {
			law.Fresh = &shown
			laws = laws.with(r, law)
		}
	}
	return tracks, laws
}

// unseenBalance begins the memory of a balance that no provider shows: a new instance's launch credits, or anything up to the cap.
func unseenBalance(m *policy.Member, in *policy.Input, b *credit.Bucket) credit.Track {
	if m.AgeS != nil && m.Age() <= policy.DefaultPatience*in.Service.Sampling {
		return b.New(m.Observation.At)
	}
	return b.Unknown(m.Observation.At)
}

// creditBucket returns how an instance earns and spends credits, or nil if that is not known. Of processors a law needs the number.
func creditBucket(m *policy.Member, set *policy.CreditSettings, laws creditLaws, r quell.Resource) *credit.Bucket {
	if b, ok := set.BucketOf(m.Type, r); ok {
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
func isSlow(m *policy.Member, in *policy.Input, r quell.Resource) bool {
	for i := range m.Senses {
		if s := &m.Senses[i]; in.Contended[i].Resource == r {
			return s.HasSeverity && !s.Stale && s.Measured >= slowWithout
		}
	}
	return false
}

// listBuckets lists the credits of an instance whose balance, earning and spending are known.
func listBuckets(m *policy.Member, set *policy.CreditSettings, rates map[quell.Resource]float64, tracks policy.CreditTracks,
	laws creditLaws) (list []policy.TokenBucket) {
	for _, r := range slices.Sorted(maps.Keys(tracks)) {
		bucket := creditBucket(m, set, laws, r)
		rate, used := rates[r]
		t := tracks[r]
		if bucket == nil || !t.Known || !used {
			continue
		}
		p := policy.TokenBucket{Resource: r, Bucket: *bucket, Track: t, Rate: rate, Most: cmp.Or(bucket.Cap, t.Most), Fresh: bucket.Launch}
		if learned := laws[r].Fresh; learned != nil {
			p.Fresh = *learned
		}
		list = append(list, p)
	}
	return list
}

// loadPerUse returns, for each resource, how much load the group has for each unit of its use, from the instances that report it.
// Resources that nobody uses are left out.
func loadPerUse(g *policy.Group) map[quell.Resource]float64 {
	load, used := map[quell.Resource]float64{}, map[quell.Resource]float64{}
	for i := range g.Members {
		m := &g.Members[i]
		if m.Observation == nil || !m.HasUse || len(instanceOf(m).Credits) == 0 {
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
func limitByCredits(m *policy.Member, set *policy.CreditSettings) {
	m.Uncredited = m.Capacity
	for i := range m.Credited {
		p := &m.Credited[i]
		if unslowed(m, set, p) {
			continue
		}
		if most := p.Bucket.Lasting(p.Track.Middle(), set.Last.Seconds()) * p.Rate; most < m.Capacity {
			m.Capacity, m.ByCredits = most, true
		}
	}
}

// holderOf describes, in units of load, the kind of an instance's credits that limits it most.
func holderOf(m *policy.Member, set *policy.CreditSettings) credit.Holder {
	h, least := credit.Holder{Baseline: m.Uncredited, Most: m.Uncredited}, math.Inf(1)
	for _, p := range m.Credited {
		if most := p.Bucket.Lasting(p.Track.Middle(), set.Last.Seconds()) * p.Rate; most < least {
			least = most
			h.Baseline, h.Balance = p.Bucket.Baseline*p.Rate, p.Track.Middle()/p.Bucket.PerUse*p.Rate
		}
	}
	return h
}

// byCredits compares how long instances can carry load by their credits alone: negative if a lasts longer. Without credits it is for ever.
func byCredits(set *policy.CreditSettings, a, b *policy.Member) int {
	lasting := func(m *policy.Member) float64 {
		least := math.Inf(1)
		for _, p := range m.Credited {
			least = math.Min(least, p.Bucket.Lasting(p.Track.Middle(), set.Last.Seconds())*p.Rate)
		}
		return least
	}
	return cmp.Compare(lasting(b), lasting(a))
}

// alike is the step to which capacities are rounded before credits decide which instances are kept: a smaller difference is mostly chance.
const alike = 0.02

// keepCredited sorts instances by capacity, those with more credits first among nearly equal ones, so that the load stays with those that
// have credits. The order of instances whose share a person set, and of those with errors, stays.
func keepCredited(set *policy.CreditSettings, sorted []*policy.Member) {
	if set.Last == 0 || !slices.ContainsFunc(sorted, func(m *policy.Member) bool { return len(m.Credited) > 0 }) {
		return
	}
	class := func(m *policy.Member) int {
		switch {
		case m.Fixed != nil:
			return 0
		case m.Failing:
			return 2
		}
		return 1
	}
	slices.SortStableFunc(sorted, func(a, b *policy.Member) int {
		larger := cmp.Compare(math.Round(b.Capacity/alike), math.Round(a.Capacity/alike))
		return cmp.Or(cmp.Compare(class(a), class(b)), larger, byCredits(set, a, b))
	})
}

// divideByCredits sets what each member carries so that all credits last equally long at the group's load. It returns how long that is, or
// false if no member has credits or the load is more than all can carry. Members whose share a person set keep it.
func divideByCredits(set *policy.CreditSettings, members []*policy.Member, load, whole float64) (left time.Duration, lasts, ok bool) {
	for _, m := range members {
		if m.Fixed != nil {
			m.Carry = *m.Fixed * whole
			load -= m.Carry
		} else {
			ok = ok || len(m.Credited) > 0
		}
	}
	if !ok {
		return 0, false, false
	}
	sharing := slices.DeleteFunc(slices.Clone(members), func(m *policy.Member) bool { return m.Fixed != nil })
	holders := make([]credit.Holder, len(sharing))
	for i, m := range sharing {
		holders[i] = holderOf(m, set)
	}
	loads, seconds, lasts, ok := credit.Divide(holders, math.Max(0, load))
	if !ok || load <= 0 {
		return 0, false, false
	}
	for i, m := range sharing {
		m.Carry = loads[i]
	}
	return time.Duration(math.Min(seconds, policy.MaxForeseen.Seconds()) * float64(time.Second)), lasts, true
}

// divideAmong sets what each kept instance carries when the others are gone. Before, the load was divided over all.
func (p *plan) divideAmong(kept []*policy.Member) {
	if !p.pooled {
		return
	}
	for _, m := range kept {
		m.Carry = m.Capacity
	}
	divideByCredits(&p.set.Credits, kept, p.group.Due, p.group.Load)
}

// noteCredits records how many credits each instance has and when they run out at its present use.
func noteCredits(members []*policy.Member, plan *quell.Plan) {
	for _, m := range members {
		for _, p := range m.Credited {
			f, ok := p.Bucket.Forecast(p.Track)
			if !ok {
				continue
			}
			if plan.Credits == nil {
				plan.Credits = map[string]quell.Balances{}
			}
			if plan.Credits[m.ID] == nil {
				plan.Credits[m.ID] = quell.Balances{}
			}
			plan.Credits[m.ID][p.Resource] = policy.BalanceOf(f, p.Bucket.Baseline)
		}
	}
}

// replaceSpent asks for the instance to be replaced whose credits run out first, if they are below the service's part of a full balance
// and a fresh instance has more than that (MRburst, section 3.4). Types without launch credits start empty, so they are never replaced.
// There is one replacement at a time, and group.replace.every between two of them.
func replaceSpent(in *policy.Input, set *policy.CreditSettings, g *policy.Group, plan *quell.Plan) {
	below := in.Service.Group.Replace.Below
	if below == 0 || in.Service.Group.Fixed {
		return
	}
	if plan.Group != nil && len(plan.Group.Remove) > 0 { // there are too many instances: the ones without credits go first
		return
	}
	soonest := math.Inf(1)
	var old *policy.Member
	var by policy.TokenBucket
	for _, m := range g.Rated {
		if m.Protected || m.Fixed != nil || m.Held != nil {
			continue
		}
		for _, p := range m.Credited {
			if unslowed(m, set, &p) {
				continue
			}
			least := below * p.Most
			seconds, ends := p.Bucket.Depletion(p.Track.Middle(), p.Track.Use)
			if ends && p.Track.Middle() < least && p.Fresh > least && seconds < soonest {
				soonest, old, by = seconds, m, p
			}
		}
	}
	replaced := slices.ContainsFunc(in.Snapshot.Instances, func(i quell.Instance) bool { return i.Replaces != "" })
	if old == nil || replaced {
		return
	}
	plan.Replace = []string{old.ID}
	policy.AddReason(plan, "replace", old.ID,
		"%s has %.3g of %.3g credits of the %s left, which last about %s; a fresh instance has %.3g: replacing it",
		old.ID, by.Track.Middle(), by.Most, by.Resource, time.Duration(soonest*float64(time.Second)).Round(time.Second), by.Fresh)
}

// lastText says how long credits last.
func lastText(left time.Duration, lasts bool) string {
	if !lasts {
		return "the load is within what they earn"
	}
	return fmt.Sprintf("they last about %s at this load", left.Round(time.Minute))
}
