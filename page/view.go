package page

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/terminal"
	"github.com/quellhq/quell/tell"
)

// Group is what the page says of the whole service.
type Group struct {
	Service     string         `json:"service"`
	At          int64          `json:"at"` // of the last decision, in milliseconds since 1970; 0: none yet
	Level       tell.Level     `json:"level"`
	Headline    string         `json:"headline"`
	Acting      string         `json:"acting"`
	Load        string         `json:"load"`
	SLO         string         `json:"slo"`
	LimitMS     float64        `json:"limit_ms"`
	Paused      bool           `json:"paused"`
	Resumable   bool           `json:"resumable"` // paused, or waiting because the memory was lost
	Problems    []string       `json:"problems"`
	Noisy       []Noise        `json:"noisy,omitempty"`      // the worst first; at most mostNoisy
	MoreNoisy   int            `json:"more_noisy,omitempty"` // that are not listed
	Over        []Over         `json:"over,omitempty"`       // what ended in the last minutes, the newest first
	Reasons     []quell.Reason `json:"reasons"`              // of the whole group, with the code in words
	Learned     []string       `json:"learned"`
	Fast        *Fast          `json:"fast,omitempty"`         // what the fast policy does; nil: there is none
	Tenants     []Tenant       `json:"tenants,omitempty"`      // of machines that agents' own policies divide, the slowest first; at most mostListed
	MoreTenants int            `json:"more_tenants,omitempty"` // that are not listed
	Divided     []Divided      `json:"divided,omitempty"`      // the machines of these tenants
	Credits     []Credit       `json:"credits,omitempty"`      // of burstable instances, those that run out first; at most mostListed
}

// Noise is an instance that something else than its requests slows, in words.
type Noise struct {
	ID    string `json:"id"`
	What  string `json:"what"`
	Since int64  `json:"since,omitempty"` // milliseconds since 1970; 0: not known
	Once  bool   `json:"once,omitempty"`  // only the last decision noticed it
	Costs string `json:"costs,omitempty"` // its response time, and the others'
	Done  string `json:"done,omitempty"`  // what Quell does about it
	Do    string `json:"do"`              // what a person can do
}

// Fast is what a fast policy does beside the main one.
type Fast struct {
	Policy  string         `json:"policy"`
	Cuts    []Cut          `json:"cuts"` // the strongest first; at most mostListed
	Reasons []quell.Reason `json:"reasons"`
}

// Cut is an instance whose share a fast policy cuts.
type Cut struct {
	ID   string  `json:"id"`
	Left float64 `json:"left"` // what remains of its share, from 0 to 1
}

// Credit is an instance's balance of one resource.
type Credit struct {
	ID       string         `json:"id"`
	Resource quell.Resource `json:"resource"`
	Left     float64        `json:"left"`
	Low      float64        `json:"low"`
	High     float64        `json:"high"`
	GoneS    *float64       `json:"gone_s,omitempty"` // seconds until it is used up at the present use; absent: never
}

// Divided is a machine that its agent's own policy divides among control groups.
type Divided struct {
	ID       string   `json:"id"`
	Policy   string   `json:"policy"`
	Cores    *float64 `json:"cores,omitempty"` // processors
	Used     *float64 `json:"used,omitempty"`  // processors in use
	Steal    *float64 `json:"steal,omitempty"` // part of the processors' time that other machines got
	Why      string   `json:"why,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

// Tenant is a control group of such a machine.
type Tenant struct {
	ID string `json:"id"` // of the instance
	quell.TenantState
}

// Row is an instance in the table.
type Row struct {
	ID       string   `json:"id"`
	Concern  int      `json:"concern"` // 3: misses the objective; 0: well
	State    string   `json:"state"`
	Held     bool     `json:"held"`
	Override bool     `json:"override"`
	Rate     *float64 `json:"rate,omitempty"`
	CanTake  *float64 `json:"can_take,omitempty"`
	Share    *float64 `json:"share,omitempty"`
	Now      *float64 `json:"now,omitempty"`
	Would    *float64 `json:"would,omitempty"`
	MS       *float64 `json:"ms,omitempty"`
	Expected *float64 `json:"expected_ms,omitempty"`
	Shade    *Shade   `json:"shade,omitempty"` // the strongest interference
	Limiter  string   `json:"limiter,omitempty"`
}

// Table is a page of the instances, those that need attention first.
type Table struct {
	Rows   []Row `json:"rows"`
	Total  int   `json:"total"`  // instances of the service
	Found  int   `json:"found"`  // those whose name or state has the text
	Offset int   `json:"offset"` // of the first row among those
}

const (
	mostRows    = 200
	mostReasons = 100
	mostListed  = 20
	mostNoisy   = 5
	mostText    = 2000 // bytes of a text
)

// shown makes a text that came from outside printable.
func shown(text string) string { return terminal.Printable(text, mostText) }

func clock(at time.Time) string { return at.Local().Format(time.TimeOnly) }

// groupOf is what a status says of the group.
func groupOf(s *controller.Status) Group {
	w := tell.Of(s, clock)
	headline, level := w.Objective()
	g := Group{Service: shown(s.Service), Level: level, Headline: shown(headline), Acting: shown(w.Acting()),
		SLO: s.SLO, LimitMS: s.ThresholdMS, Paused: s.Paused, Resumable: s.Paused || s.Lost != "" || s.Released != nil,
		Problems: shownAll(w.Problems()), Reasons: []quell.Reason{},
		Learned: shownAll(s.Learned)}
	if !s.At.IsZero() {
		g.At, g.Load = s.At.UnixMilli(), shown(w.Load())
	}
	for _, r := range w.Reasons("") {
		g.Reasons = append(g.Reasons, reasonOf(r))
	}
	g.Fast, g.Credits = fastOf(s), creditsOf(s)
	g.Divided, g.Tenants, g.MoreTenants = tenantsOf(s)
	noisy := noisyOf(&w)
	g.MoreNoisy = max(0, len(noisy)-mostNoisy)
	g.Noisy = noisy[:min(len(noisy), mostNoisy)]
	return g
}

// noisyOf lists the instances that something else than their requests slows, the worst first.
func noisyOf(w *tell.Words) (all []Noise) {
	for _, n := range w.Noisy() {
		one := Noise{ID: n.Instance, What: shown(n.What), Once: n.Once, Costs: shown(n.Costs), Done: shown(n.Done), Do: shown(n.Do)}
		if !n.Since.IsZero() {
			one.Since = n.Since.UnixMilli()
		}
		all = append(all, one)
	}
	return all
}

// fastOf is what a status says of the fast policy, nil if there is none.
func fastOf(s *controller.Status) *Fast {
	if s.Fast == "" {
		return nil
	}
	f := &Fast{Policy: s.Fast, Cuts: []Cut{}, Reasons: []quell.Reason{}}
	for i := range s.Instances {
		if cut := s.Instances[i].Cut; cut != nil {
			f.Cuts = append(f.Cuts, Cut{s.Instances[i].ID, *cut})
		}
	}
	slices.SortStableFunc(f.Cuts, func(a, b Cut) int { return cmp.Compare(a.Left, b.Left) })
	f.Cuts = f.Cuts[:min(len(f.Cuts), mostListed)]
	for _, r := range s.FastReasons[:min(len(s.FastReasons), mostListed)] {
		f.Reasons = append(f.Reasons, reasonOf(r))
	}
	return f
}

// creditsOf lists the instances' balances, those that run out first.
func creditsOf(s *controller.Status) (all []Credit) {
	for i := range s.Instances {
		row := &s.Instances[i]
		for _, resource := range slices.Sorted(maps.Keys(row.Credits)) {
			b := row.Credits[resource]
			all = append(all, Credit{row.ID, resource, b.Left, b.Low, b.High, b.DepletedS})
		}
	}
	never := func(c Credit) float64 {
		if c.GoneS == nil {
			return math.Inf(1)
		}
		return *c.GoneS
	}
	slices.SortStableFunc(all, func(a, b Credit) int { return cmp.Or(cmp.Compare(never(a), never(b)), cmp.Compare(a.Left, b.Left)) })
	return all[:min(len(all), mostListed)]
}

// tenantsOf lists the tenants of machines that agents' own policies divide, those that are slowed down most, and these machines.
func tenantsOf(s *controller.Status) (machines []Divided, all []Tenant, more int) {
	for i := range s.Instances {
		row := &s.Instances[i]
		if row.Tenancy == nil {
			continue
		}
		more += row.Tenancy.More
		for _, one := range row.Tenancy.Tenants {
			one.Name, one.Why = shown(one.Name), shown(one.Why)
			all = append(all, Tenant{row.ID, one})
		}
	}
	slowdown := func(t Tenant) float64 {
		if t.Slowdown == nil {
			return 0
		}
		return *t.Slowdown
	}
	slices.SortStableFunc(all, func(a, b Tenant) int { return cmp.Compare(slowdown(b), slowdown(a)) })
	if n := len(all) - mostListed; n > 0 {
		all, more = all[:mostListed], more+n
	}
	for i := range s.Instances {
		row := &s.Instances[i]
		listed := slices.ContainsFunc(all, func(t Tenant) bool { return t.ID == row.ID })
		if t := row.Tenancy; t != nil && (listed || len(t.Tenants) == 0) && len(machines) < mostListed {
			machines = append(machines, Divided{row.ID, shown(t.Policy), t.Cores, t.Used, t.Steal, shown(t.Why), shownAll(t.Problems)})
		}
	}
	return machines, all, more
}

func shownAll(texts []string) []string {
	all := []string{}
	for _, text := range texts {
		all = append(all, shown(text))
	}
	return all
}

func reasonOf(r quell.Reason) quell.Reason {
	return quell.Reason{Code: shown(r.Title()), Instance: shown(r.Instance), Text: shown(r.Text)}
}

// tableOf is a page of the instances whose name or state contains a text.
func tableOf(s *controller.Status, find string, offset, limit int) Table {
	w := tell.Of(s, clock)
	t := Table{Rows: []Row{}, Total: len(s.Instances)}
	type found struct {
		row     *controller.InstanceStatus
		concern int
	}
	var all []found
	find = strings.ToLower(find)
	for i := range s.Instances {
		row := &s.Instances[i]
		if find == "" || strings.Contains(strings.ToLower(row.ID), find) || strings.Contains(strings.ToLower(w.State(row)), find) {
			all = append(all, found{row, w.Concern(row)})
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return b.concern - a.concern })
	t.Found = len(all)
	t.Offset = max(0, min(offset, len(all)-1))
	for _, f := range all[t.Offset:min(len(all), t.Offset+max(0, min(limit, mostRows)))] {
		t.Rows = append(t.Rows, rowOf(&w, f.row, f.concern))
	}
	return t
}

func rowOf(w *tell.Words, row *controller.InstanceStatus, concern int) Row {
	_, override := w.Overrides[row.ID]
	r := Row{ID: row.ID, Concern: concern, State: shown(w.State(row)), Held: row.Held != nil, Override: override, Rate: row.RequestRate,
		CanTake: row.CanTakeRate, Share: row.Share, Now: row.Now, Would: row.Would, MS: row.LatencyMS, Expected: row.PredictedMS,
		Limiter: row.Limiter}
	for _, s := range shadesOf(row) {
		if r.Shade == nil || s.Share > r.Shade.Share {
			r.Shade = &s
		}
	}
	return r
}

// shadesOf is the interference that an instance feels, by resource.
func shadesOf(row *controller.InstanceStatus) (all []Shade) {
	for _, resource := range slices.Sorted(maps.Keys(row.Interference)) {
		x := row.Interference[resource]
		switch {
		case x.Hidden != nil && *x.Hidden > 0:
			all = append(all, Shade{row.ID, resource, *x.Hidden})
		case x.Hidden == nil && x.Severity != nil && *x.Severity > 0:
			all = append(all, Shade{row.ID, resource, severityShare(*x.Severity)})
		}
	}
	return all
}

// severityShare is the part of a probe's time that is due to neighbours.
func severityShare(severity float64) float64 { return severity / (1 + severity) }

// pointOf is what a status adds to the history.
func pointOf(s *controller.Status) Point {
	p := Point{At: s.At.UnixMilli(), LimitMS: s.ThresholdMS, Rate: s.ArrivalRate, Load: &s.Load, Capacity: s.Capacity}
	var times []float64
	for i := range s.Instances {
		row := &s.Instances[i]
		if row.State != quell.Failed {
			p.Machines++
		}
		p.Shades = append(p.Shades, shadesOf(row)...)
		p.slowest(row.ID, row.LatencyMS, &times)
	}
	p.MiddleMS = median(times)
	return p
}

// slowest notes an instance's response time.
func (p *Point) slowest(id string, ms *float64, times *[]float64) {
	if ms == nil {
		return
	}
	*times = append(*times, *ms)
	if p.WorstMS == nil || *ms > *p.WorstMS {
		p.WorstMS, p.Worst = ms, id
	}
}

func median(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	return new(values[len(values)/2])
}

// recordedPoint is what a recorded snapshot adds to the history.
func recordedPoint(s *quell.Snapshot, slo quell.SLO) Point {
	p := Point{At: s.At.UnixMilli(), LimitMS: slo.ThresholdMS(), Rate: s.ArrivalRate}
	var times []float64
	for i := range s.Instances {
		in := &s.Instances[i]
		if in.State != quell.Failed {
			p.Machines++
		}
		if in.Observation == nil {
			continue
		}
		if ms, ok := in.Observation.LatencyMS.Of(slo.Metric); ok {
			p.slowest(in.ID, &ms, &times)
		}
		for resource, severity := range in.Observation.Severity {
			if severity > 0 {
				p.Shades = append(p.Shades, Shade{in.ID, resource, severityShare(severity)})
			}
		}
	}
	p.MiddleMS = median(times)
	return p
}

// markOf makes a mark of an entry of the journal; ok is false for plans that change nothing.
func markOf(e *bus.Entry) (m Mark, ok bool) {
	m = Mark{At: e.At.UnixMilli(), Kind: Event, Text: shown(e.Text), Why: shown(e.Why)}
	if e.Kind != bus.PlanEntry || e.Plan == nil {
		return m, e.Kind == bus.EventEntry
	}
	m.Kind, m.Changes = Change, shownAll(e.Changes)
	if len(e.Changes) == 0 {
		m.Kind, m.Changes = Advice, shownAll(e.Would)
	}
	if len(m.Changes) == 0 {
		return m, false
	}
	m.Text = m.Changes[0]
	for _, r := range quell.ShownReasons(e.Plan.Reasons, e.At) {
		if len(m.Reasons) < mostReasons {
			m.Reasons = append(m.Reasons, reasonOf(r))
		}
	}
	return m, true
}

// Story is what is known of one instance.
type Story struct {
	Row      Row                       `json:"row"`
	Override *float64                  `json:"override,omitempty"`
	SLO      string                    `json:"slo"`
	LimitMS  float64                   `json:"limit_ms"`
	Instance controller.InstanceStatus `json:"instance"`
	Reasons  []quell.Reason            `json:"reasons"`
	Marks    []Mark                    `json:"marks"` // that name it, the newest first
}

// storyOf tells an instance's story; ok is false if there is no such instance.
func storyOf(s *controller.Status, marks []Mark, id string) (story Story, ok bool) {
	w := tell.Of(s, clock)
	i := slices.IndexFunc(s.Instances, func(row controller.InstanceStatus) bool { return row.ID == id })
	if i < 0 {
		return story, false
	}
	row := &s.Instances[i]
	story = Story{Row: rowOf(&w, row, w.Concern(row)), SLO: s.SLO, LimitMS: s.ThresholdMS, Instance: *row, Reasons: []quell.Reason{},
		Marks: []Mark{}}
	if weight, ok := s.Overrides[id]; ok {
		story.Override = &weight
	}
	for _, r := range w.Reasons(id) {
		story.Reasons = append(story.Reasons, reasonOf(r))
	}
	for _, m := range slices.Backward(marks) {
		if len(story.Marks) < mostReasons && m.names(id) {
			story.Marks = append(story.Marks, m)
		}
	}
	return story, true
}

// names returns whether a mark is about an instance.
func (m *Mark) names(id string) bool {
	about := func(text string) bool {
		return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,;:()", r) }), id)
	}
	return about(m.Text) || slices.ContainsFunc(m.Changes, about) ||
		slices.ContainsFunc(m.Reasons, func(r quell.Reason) bool { return r.Instance == id })
}

// matches returns whether a mark's texts contain a text in lower case.
func (m *Mark) matches(find string) bool {
	has := func(text string) bool { return strings.Contains(strings.ToLower(text), find) }
	return find == "" || has(m.Text) || has(m.Why) || slices.ContainsFunc(m.Changes, has) ||
		slices.ContainsFunc(m.Reasons, func(r quell.Reason) bool { return has(r.Text) || has(r.Code) || has(r.Instance) })
}
