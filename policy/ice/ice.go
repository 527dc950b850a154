package ice

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/bands"
	"github.com/quellhq/quell/setting"
)

// Settings are the settings of ice. Shares are fractions.
type Settings struct {
	SetPoint float64       // an instance with neighbours gets as many requests as keep its resource this busy, neighbours included
	Floor    float64       // it keeps at least this part of its share; 1: shares are never cut, only parameters are changed
	Confirm  int           // W: a sign counts from the (W+1)th window in a row on, unless it is clear
	Window   time.Duration // no share changes again before this time is over
	Calm     time.Duration // time without signs before a share grows again

	Parameters Parameters    // of servers, which are changed if interference lasts
	After      time.Duration // how long interference lasts before parameters are changed
	Settle     time.Duration // no parameter changes again before this time is over
}

// Parameter is a server parameter that is changed while an instance has neighbours, within bounds.
type Parameter struct {
	Name     string // target and name of the setting, such as apache.MaxRequestWorkers
	Change   Direction
	Min, Max float64
}

// Parameters are up to maxParameters parameters. They are an array, because settings of policies must be comparable.
type Parameters [maxParameters]Parameter

// maxParameters is the largest number of parameters that are changed.
const maxParameters = 8

// ParametersOf returns the listed parameters, at most maxParameters.
func ParametersOf(list []Parameter) (p Parameters) {
	copy(p[:], list)
	return p
}

// list returns the parameters that are set.
func (p Parameters) list() (list []Parameter) {
	for _, one := range p {
		if one.Name != "" {
			list = append(list, one)
		}
	}
	return list
}

// ServerParameters returns the parameters that may be changed.
func (s Settings) ServerParameters() (list []policy.ParameterBounds) {
	for _, p := range s.Parameters.list() {
		list = append(list, policy.ParameterBounds{Name: p.Name, Min: p.Min, Max: p.Max})
	}
	return list
}

// Direction says how a parameter follows interference.
type Direction string

// Lower divides a parameter by how much busier the processors are than usual. Raise multiplies it by how much longer responses take (ICE,
// section IV).
const (
	Lower Direction = "lower"
	Raise Direction = "raise"
)

var Spec = policy.Spec[Settings]{
	Name: "ice", About: "cuts the share of an instance with neighbours within seconds, then changes its server's parameters",
	Scope: policy.ServiceScope, Beside: true, Machines: true,
	Defaults: Settings{SetPoint: 0.7, Floor: 0.6, Confirm: 1, Window: 5 * time.Second, Calm: 10 * time.Second,
		After: 20 * time.Second, Settle: 10 * time.Second},
	Keys: func(s *Settings) setting.Table {
		parameters := s.Parameters.list()
		return setting.Table{
			setting.Opt("set_point", setting.Share(&s.SetPoint).Above(0).Between(0, 1),
				"an instance with neighbours gets as many requests as keep its resource this busy, neighbours included"),
			setting.Opt("floor", setting.Share(&s.Floor).Between(0.01, 1),
				"an instance with neighbours keeps at least this part of its share; with 100% only parameters are changed"),
			policy.ConfirmKey(&s.Confirm),
			setting.Opt("window", setting.Duration(&s.Window).Between(time.Second, time.Hour), "time between two changes of an instance's share"),
			setting.Opt("calm", setting.Duration(&s.Calm).Between(time.Second, time.Hour),
				"time without signs of neighbours before a share grows again; longer after each premature return"),
			setting.Opt("parameters", setting.ListOf(&parameters, Parameter{}, func(p *Parameter) setting.Value { return parameterKeys(p) }).
				AtMost(maxParameters).Into(func(list []Parameter) { s.Parameters = ParametersOf(list) }),
				"server parameters that are changed if interference lasts"),
			setting.Opt("after", setting.Duration(&s.After).Between(time.Second, 24*time.Hour),
				"how long interference lasts before parameters are changed"),
			setting.Opt("settle", setting.Duration(&s.Settle).Between(time.Second, time.Hour), "time between two changes of a parameter"),
		}
	},
	Agree:    agrees,
	Variants: variants,
	Instance: policy.Empty[instance],
	Decide:   decide,
}

func parameterKeys(p *Parameter) setting.Table {
	return setting.Table{
		setting.Req("name", setting.Text(&p.Name).Then(func(s string) string {
			if target, name, ok := strings.Cut(s, "."); !ok || target == "" || name == "" {
				return "must be a server and a parameter, such as apache.MaxRequestWorkers"
			}
			return ""
		}), "server and parameter, as the agent names them: apache.MaxRequestWorkers"),
		setting.Req("change", setting.OneOf(&p.Change, []Direction{Lower, Raise}),
			"lower: in proportion to how much busier the processors are; raise: to how much longer responses take"),
		setting.Req("min", setting.Decimal(&p.Min).AtLeast(0), "smallest value"),
		setting.Req("max", setting.Decimal(&p.Max).AtLeast(0), "largest value"),
	}
}

func agrees(d *setting.Decoder, path string, s Settings, _ quell.Service) {
	list := s.Parameters.list()
	for i, p := range list {
		at := fmt.Sprintf("%s[%d]", setting.Join(path, "parameters"), i)
		if !d.Sound(at) {
			continue
		}
		if p.Max < p.Min {
			d.Refuse(setting.Join(at, "max"), "", "%v is less than min, which is %v", p.Max, p.Min)
		}
		if slices.ContainsFunc(list[:i], func(other Parameter) bool { return other.Name == p.Name }) {
			d.Refuse(setting.Join(at, "name"), "keep one of them", "%s is listed twice", p.Name)
		}
	}
}

// variants are deeper cuts than the paper's.
func variants(s Settings) (list []policy.VariantOf[Settings]) {
	for _, floor := range []float64{0.4, 0.2} {
		s.Floor = floor
		list = append(list, policy.VariantOf[Settings]{Change: fmt.Sprintf("floor %.0f%%", 100*floor), Settings: s})
	}
	return list
}

// instance is what ice remembers of an instance.
type instance struct {
	At      time.Time `json:"at,omitzero"`       // end of the last window that was judged
	Out     int       `json:"out,omitempty"`     // consecutive windows with a sign of neighbours
	Since   time.Time `json:"since,omitzero"`    // when the present interference was confirmed; zero: there is none
	Sign    time.Time `json:"sign,omitzero"`     // end of the last window with a sign
	Cut     float64   `json:"cut,omitempty"`     // the part of its share that is cut: 0 none, 1 all
	Changed time.Time `json:"changed,omitzero"`  // when the share was last changed
	Hidden  float64   `json:"hidden,omitempty"`  // the neighbours' use by which it was changed
	Aim     float64   `json:"aim,omitempty"`     // the requests per second that it was to bring
	Growing bool      `json:"growing,omitempty"` // the last change gave some of the share back
	Repeats int       `json:"repeats,omitempty"` // number of times that interference was noticed again soon after some of the share came back
	Over    time.Time `json:"over,omitzero"`     // when the last interference was over

	Why   string         `json:"why,omitempty"` // what showed the interference
	Cause quell.Resource `json:"cause,omitempty"`
	Seen  means          `json:"seen,omitzero"` // means over the windows with signs since the last change

	Means *model.HiddenMeans `json:"means,omitempty"` // of others' use of its processors, for the trained classifier; never changed

	Usual usual             `json:"usual,omitzero"` // what the instance usually shows
	Slow  bands.Memory      `json:"slow,omitzero"`  // its response times
	Tuned changedParameters `json:"tuned,omitzero"` // its server's parameters
}

func memoryOf(m *policy.Member) *instance { return policy.MemoryOf[instance](m) }

// means holds means over windows. Older ones fade.
type means struct {
	N      int     `json:"n,omitempty"`
	Own    float64 `json:"own,omitempty"`    // own use of the contended resource
	Hidden float64 `json:"hidden,omitempty"` // the neighbours' use
	Rate   float64 `json:"rate,omitempty"`   // requests per second
}

const (
	maxRepeats  = 5    // how often the time of calm is doubled at most
	offPoint    = 0.1  // a cut changes only if the use is off the set point by this,
	takenAway   = 0.8  // or the instance gets less than this part of the requests that the cut left, because the main policy acted;
	cutDeadband = 0.2  // and only if what it leaves changes by this fraction, except for the first cut by the estimator
	maxSeen     = 5    // windows that count in means
	growsBy     = 2    // factor by which a share grows in one step
	nearlyWhole = 0.99 // a share that is this part of the whole one is whole
	againFactor = 0.5  // what another cut leaves if an instance is still slow, and how busy its resource is is not known
	minRequest  = 1e-3 // requests per second; less is none
)

// plan is the state of one decision.
type plan struct {
	in    *policy.Input
	model *model.ICE // nil: the models do not have this section
	set   Settings
	group *policy.Group
	now   time.Time
	slow  *bands.Judgement // of response times
	plan  quell.Plan

	parameters []Parameter // those that may be changed

	all   []facts   // by position in the snapshot
	costs []float64 // of all instances whose cost is known, in increasing order
	rate  float64   // requests per second of all instances
	rooms map[quell.Resource]*room
}

// facts are what a decision knows about an instance's last window. Several steps need them, so they are computed once.
type facts struct {
	use   model.ProcessorUse // of its processors
	used  bool               // that is known
	cost  float64            // by how much its signal differs from the usual value
	costs bool               // that is known
	slow  *bands.Window      // its response times; nil: none were reported

	judged bool // no decision has judged the window before
}

func (p *plan) facts(m *policy.Member) *facts { return &p.all[m.Position] }

// decide is Algorithm 1 of ICE. Once per second it looks for signs that an instance has neighbours. If there are any, it predicts how busy
// the instance's resource is, and cuts its share so far that the use comes back to the set point, but never below the floor. If the
// interference lasts, it changes parameters of the server. Without signs the share grows again. Beside another policy its cuts are factors
// that expire.
func decide(in *policy.Input, set Settings, g *policy.Group, _ *policy.State) quell.Plan {
	policy.RememberedOf[instance](g)
	p := &plan{in: in, model: in.ICE(), set: set, group: g, now: in.Snapshot.At, parameters: set.Parameters.list()}
	p.all = make([]facts, len(g.Members))
	for i := range g.Members {
		m := &g.Members[i]
		if !m.InService() {
			*memoryOf(m) = instance{Tuned: memoryOf(m).Tuned}
		}
		memoryOf(m).forgetFuture(p.now)
	}
	p.watch()
	for i := range g.Members {
		p.tune(&g.Members[i])
	}
	p.put()
	if !p.trained() {
		p.reason("untrained", "", "the models lack the section ice: signs that need no training are used")
	}
	p.tellUnfelt()
	return p.plan
}

// tellUnfelt names the instances whose processors nobody reports on.
func (p *plan) tellUnfelt() {
	var ids []string
	for _, m := range p.group.Ready {
		if !p.facts(m).used {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) > 0 {
		p.reason("unfelt", "", "no agent reports on the processors in this period: only response times can show neighbours of %s",
			policy.Named(ids))
	}
}

// trained returns whether the models can tell which windows have neighbours.
func (p *plan) trained() bool { return p.model != nil && p.model.Classifier != nil }

func (p *plan) reason(code, instance, format string, args ...any) {
	policy.AddReason(&p.plan, code, instance, format, args...)
}

// forgetFuture forgets moments that are still to come: the clock was set back, or the controller of before had another clock. The last
// window and the last changes of the share then count as long ago. Parameters count as changed now, or their undoing would be given up.
func (mem *instance) forgetFuture(now time.Time) {
	for _, at := range []*time.Time{&mem.At, &mem.Changed, &mem.Over, &mem.Slow.At} {
		if at.After(now) {
			*at = time.Time{}
		}
	}
	for _, at := range []*time.Time{&mem.Since, &mem.Sign, &mem.Tuned.At} {
		if at.After(now) {
			*at = now
		}
	}
}

// notice records the sign in an instance's last window, or its absence.
func (p *plan) notice(mem *instance, s sign, found bool) {
	if !found {
		mem.Out = 0
		return
	}
	if mem.Out++; mem.Out == 1 && mem.Cut == 0 {
		mem.Seen, mem.Cause = means{}, ""
	}
	if s.left == 0 { // it tells how busy a resource is
		if s.resource != mem.Cause {
			mem.Seen = means{}
		}
		mem.Seen.add(s)
		mem.Cause = s.resource
	}
	mem.Sign, mem.Why = p.now, s.text
}

// follow changes an instance's share by the sign in its last window, or by its absence.
func (p *plan) follow(m *policy.Member, s sign, found bool) {
	mem := memoryOf(m)
	if !found {
		p.calm(m)
		return
	}
	if mem.Out <= p.set.Confirm && !s.clear {
		if mem.Since.IsZero() {
			p.reason("confirming", m.ID, "%s; waiting for confirmation %d of %d", s.text, mem.Out, p.set.Confirm+1)
		}
		return
	}
	rest := p.now.Sub(mem.Over)
	begins := mem.Since.IsZero()
	switch {
	case mem.Growing, begins && rest <= p.set.Calm<<mem.Repeats: // the share came back too early
		mem.Repeats = min(mem.Repeats+1, maxRepeats)
	case begins && rest > 8*p.set.Calm:
		mem.Repeats = 0
	}
	if begins {
		mem.Since = p.now
	}
	if begins || mem.Growing || p.now.Sub(mem.Changed) >= p.set.Window {
		p.cut(m, s)
	}
}

func (x *means) add(s sign) {
	x.N = min(x.N+1, maxSeen)
	part := 1 / float64(x.N)
	x.Own, x.Hidden = x.Own+part*(s.own-x.Own), x.Hidden+part*(s.hidden-x.Hidden)
	x.Rate += part * (s.rate - x.Rate)
}

// cut sets how much of its share an instance keeps.
func (p *plan) cut(m *policy.Member, s sign) {
	mem := memoryOf(m)
	mean, left := mem.Seen, 1-mem.Cut
	own, hidden, rate := mean.Own, mean.Hidden, mean.Rate
	wanted := left
	switch point := p.level(s.resource); {
	case s.left > 0: // only known to be slow
		if wanted = math.Min(s.left, left); mem.Cut > 0 && !mem.Growing {
			wanted = againFactor * left
		}
	case own <= 0:
	case s.estimated:
		wanted = left * p.estimate(mem, s, point)
	default:
		off := own + hidden - point
		begins := off > 0 && (mem.Cut == 0 || mem.Growing)
		if taken := mem.Cut > 0 && rate < takenAway*mem.Aim; begins || taken || math.Abs(off) > offPoint {
			wanted = left * p.asShare(m, math.Max(0, point-hidden)/own)
		}
	}
	wanted = math.Min(1, math.Max(p.set.Floor, wanted))
	mem.Growing = false
	first := s.estimated && mem.Cut == 0 // Algorithm 1 cuts as soon as its estimate is above the set point
	if math.Abs(wanted-left) < cutDeadband*left && wanted < 1 && !first || mem.Cut == 1-wanted {
		return
	}
	mem.Cut, mem.Changed, mem.Hidden, mem.Aim, mem.Seen = 1-wanted, p.now, hidden, rate*wanted/left, means{}
	if mem.Cut < 1-nearlyWhole {
		mem.Cut = 0
	}
}

// estimate returns 1 - delta of Algorithm 1 for the last window: the part of its requests that brings the use to the set point, by the
// trained estimator. The use is predicted from that of the window before (line 3), and the new rate from the present use (line 5). If the
// predicted use is below the set point, a cut stays as deep as before, unless the main policy has taken load away as well.
func (p *plan) estimate(mem *instance, s sign, point float64) float64 {
	e, rate := p.model.Estimator, s.rate
	use := e.Use(s.previous, rate, s.signal)
	switch {
	case rate < minRequest:
		return 1
	case use <= point && mem.Cut > 0:
		return math.Max(1, mem.Aim/rate)
	case use <= point:
		return 1
	}
	wanted, ok := e.Rate(point, s.own+s.hidden, s.signal)
	if !ok {
		return 1
	}
	return math.Min(1, wanted/rate)
}

// asShare converts the part of its requests that an instance is to get into a factor of its share. The others get what it loses, so its
// part of all requests is not proportional to its share.
func (p *plan) asShare(m *policy.Member, part float64) float64 {
	all := p.rate
	now, _ := m.Requests()
	if all <= now || now < minRequest {
		return part
	}
	odds := func(x float64) float64 { return x / math.Max(1-x, minRequest) }
	return odds(math.Min(part*now/all, 1)) / odds(now/all)
}

// level returns how busy the contended resource of an instance with neighbours may be: the set point or, if the other instances lack room,
// the level at which all instances are equally busy.
func (p *plan) level(r quell.Resource) float64 {
	room := p.roomOf(r)
	low, high := 0.0, 1.0
	for range 30 {
		if level := (low + high) / 2; room.free(level) < room.work {
			low = level
		} else {
			high = level
		}
	}
	return math.Max(p.set.SetPoint, high)
}

// ownUse returns an instance's own use of a resource. If it is not known, the instance counts as one with room: 0.
func (p *plan) ownUse(m *policy.Member, r quell.Resource) float64 {
	switch {
	case !m.Fresh:
		return 0
	case r == quell.CPU:
		return p.facts(m).use.Own
	}
	return m.Observation.Utilization[r]
}

// calm lets the share of an instance grow again after a time without signs. The time doubles with each return that was too early, because
// signs may disappear only because the instance gets fewer requests.
func (p *plan) calm(m *policy.Member) {
	mem := memoryOf(m)
	if mem.Since.IsZero() || p.now.Sub(mem.Sign) < p.set.Calm<<mem.Repeats {
		return
	}
	if mem.Cut > 0 && p.now.Sub(mem.Changed) < p.set.Window {
		return
	}
	left := math.Max(bands.DeepestCut, growsBy*(1-mem.Cut))
	if mem.Cut == 0 || left >= nearlyWhole {
		p.reason("calm", m.ID, "no sign of neighbours for %.0f s: it gets its whole share", p.now.Sub(mem.Sign).Seconds())
		mem.Since, mem.Over, mem.Growing, mem.Why, mem.Cause = time.Time{}, p.now, false, "", ""
		mem.Cut, mem.Hidden, mem.Aim = 0, 0, 0
		return
	}
	mem.Cut, mem.Changed, mem.Growing, mem.Seen = 1-left, p.now, true, means{}
}

// put writes the cuts into the plan. If all instances have neighbours, only their proportions count. One instance alone keeps its share.
func (p *plan) put() {
	most := 0.0
	for _, m := range p.group.Ready {
		most = math.Max(most, 1-memoryOf(m).Cut)
	}
	if most == 0 {
		most = 1
	}
	sum := 0.0
	for _, m := range p.group.Ready {
		mem, left := memoryOf(m), math.Min(1, (1-memoryOf(m).Cut)/most)
		if m.Fixed != nil {
			left = 1
		}
		mem.Slow.Cut = 1 - left
		sum += left
		p.explain(m, left)
		if p.in.Fast && left < 1 {
			// The factor lasts for three periods, and each decision renews it. Two missed decisions do not end it.
			quell.Put(&p.plan.Factor, m.ID, quell.Factor{Value: left, Until: p.now.Add(3 * p.in.Service.Sampling)})
		}
	}
	if p.in.Fast || sum == 0 {
		return
	}
	for _, m := range p.group.Ready {
		m.Planned = (1 - memoryOf(m).Slow.Cut) / sum
	}
}

// explain says why an instance's share is cut.
func (p *plan) explain(m *policy.Member, left float64) {
	mem := memoryOf(m)
	if mem.Since.IsZero() {
		return
	}
	if mem.Cause != "" {
		quell.Put(&p.plan.Cause, m.ID, mem.Cause)
	}
	what := fmt.Sprintf("it keeps %.0f%% of its share", 100*left)
	switch {
	case len(p.group.Ready) == 1:
		what = "it is the only instance, so its share stays"
	case m.Fixed != nil:
		what = "its weight is set by hand, so its share stays"
	case left == 1 && mem.Cut > 0:
		what = "the other instances have more, so its share stays"
	case p.set.Floor == 1:
		what = "its share stays, because floor is 100%"
	case left == 1:
		what = "its share stays, because its resource is not too busy"
	}
	p.reason("interference", m.ID, "%s: %s", mem.Why, what)
}
