package experiment

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/lab/scenario"
)

// Record is everything that was recorded of one run. With it the run can be drawn, and any of its figures computed, later.
type Record struct {
	Inputs   string            `json:"inputs"`           // hash of what the run's outcome depends on; see Inputs
	Models   string            `json:"models,omitempty"` // file of the models, seen from the folder of the lab's output or absolute
	Run      scenario.Run      `json:"run"`
	Result   scenario.Result   `json:"result"`
	Moments  []Moment          `json:"moments"`
	Changes  []float64         `json:"changes_s"` // when plans that changed something were applied
	Causes   []RecordedCause   `json:"causes,omitempty"`
	Shares   []RecordedShares  `json:"shares,omitempty"`
	Settings []RecordedSetting `json:"settings,omitempty"`
	Uses     []RecordedUse     `json:"uses,omitempty"`
	Probes   []RecordedProbe   `json:"probes"`
	Samples  []RecordedSample  `json:"samples"`
}

// Moment is the controller's state at one time. Times are in seconds since measuring started, negative during the warm-up.
type Moment struct {
	AtS        float64            `json:"at_s"`
	Load       float64            `json:"load"`
	Disturbs   map[string]float64 `json:"disturbs,omitempty"` // by host: the share that its neighbours use
	LatencyMS  float64            `json:"latency_ms"`         // at the clients, over the last judge window
	ViolationS float64            `json:"violation_s"`        // violation time so far
	Instances  []SeenInstance     `json:"instances"`
	Reason     string             `json:"reason,omitempty"` // the newest reason that concerns the whole group
	Budget     *SeenBudget        `json:"budget,omitempty"` // absent: no target is set
}

// SeenBudget is what the controller counted so far, in seconds or requests.
type SeenBudget struct {
	Judged float64 `json:"judged"`
	Missed float64 `json:"missed"`
}

// SeenInstance is one instance at one moment. Values that were not measured are absent.
type SeenInstance struct {
	ID          string      `json:"id"`
	Address     string      `json:"address"`
	State       quell.State `json:"state"`
	Weight      *float64    `json:"weight,omitempty"`
	Utilization *float64    `json:"u,omitempty"`
	Severity    *float64    `json:"sf,omitempty"`
	Capacity    *float64    `json:"capacity,omitempty"`
	PredictedMS *float64    `json:"predicted_ms,omitempty"` // the newest plan's prediction, in the objective's metric
	Cut         *float64    `json:"cut,omitempty"`          // the part of its share that a fast policy leaves it
}

// RecordedProbe is what an instance's probes and its agent reported to the controller in one period.
type RecordedProbe struct {
	AtS         float64  `json:"t"`
	Instance    string   `json:"i"`
	MeanMS      float64  `json:"mean"`
	N           int      `json:"n"`
	Utilization *float64 `json:"u,omitempty"`
}

// RecordedCause is what a plan said of instances whose response times are above those of undisturbed ones.
type RecordedCause struct {
	AtS   float64                   `json:"t"`
	Named map[string]quell.Resource `json:"named,omitempty"` // the contended resource, by instance
	Own   map[string]quell.OwnWork  `json:"own,omitempty"`   // work of the instances' own
	Above map[string]string         `json:"above,omitempty"` // what was made of response times above their bound, by instance; see aboveCodes
}

// aboveCodes are the codes of reasons of DIAL that an instance's response times are above their bound: for the first time, because of
// neighbours, or because of its load.
var aboveCodes = []string{"confirming", "interference", "own_load"}

// RecordedUse is an instance's own use of its resources in one period.
type RecordedUse struct {
	AtS      float64                    `json:"t"`
	Instance string                     `json:"i"`
	Use      map[quell.Resource]float64 `json:"u"`
}

// RecordedShares is the shares of the traffic that a plan gave, if they or a fast policy's cuts differ from those of the plan before.
type RecordedShares struct {
	AtS    float64            `json:"t"`
	Shares map[string]float64 `json:"shares"`         // by instance
	Cuts   map[string]float64 `json:"cuts,omitempty"` // the part that a fast policy leaves, by instance
}

func (s RecordedShares) same(other RecordedShares) bool {
	return maps.Equal(s.Shares, other.Shares) && maps.Equal(s.Cuts, other.Cuts)
}

// left is the part of its share that a fast policy leaves an instance.
func (s RecordedShares) left(instance string) float64 {
	if part, cut := s.Cuts[instance]; cut {
		return part
	}
	return 1
}

// RecordedSetting is a value that a plan ordered for a server's parameter, if it differs from the one ordered before.
type RecordedSetting struct {
	AtS float64 `json:"t"`
	quell.Setting
}

// RecordedSample is one request as its client measured it.
type RecordedSample struct {
	AtS       float64 `json:"t"` // when it was meant to be sent
	LatencyMS float64 `json:"l"`
	Instance  string  `json:"i,omitempty"`
	Failed    bool    `json:"f,omitempty"`
}

// Recorder collects the record of one run. Its methods can be called by Options.Watch and Options.Sample if a single run is played.
type Recorder struct {
	mu     sync.Mutex
	record Record
}

// Frame records a moment.
func (r *Recorder) Frame(f Frame) {
	if len(f.Runs) != 1 {
		return
	}
	run := f.Runs[0]
	m := Moment{AtS: f.At.Seconds(), Load: f.Load, Disturbs: f.Disturbs, LatencyMS: run.LatencyMS, ViolationS: run.Violation.Seconds()}
	for _, in := range run.Status.Instances {
		m.Instances = append(m.Instances, SeenInstance{
			ID: in.ID, Address: in.Address, State: in.State, Weight: in.Weight, Utilization: in.Utilization,
			Severity: in.Severity, Capacity: in.Capacity, PredictedMS: in.PredictedMS, Cut: in.Cut,
		})
	}
	for _, reason := range run.Status.Reasons {
		if reason.Instance == "" {
			m.Reason = reason.Text
		}
	}
	if b := run.Status.Budget; b != nil {
		m.Budget = &SeenBudget{Judged: b.Judged, Missed: b.Missed}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.Moments = append(r.record.Moments, m)
}

// Sample records a request.
func (r *Recorder) Sample(s scenario.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.Samples = append(r.record.Samples, RecordedSample{
		AtS: s.Intended.Seconds(), LatencyMS: float64(s.Latency) / float64(time.Millisecond), Instance: s.Instance, Failed: s.Failed,
	})
}

// Snapshot records the snapshot that the controller had at a time, in seconds since measuring started.
func (r *Recorder) Snapshot(at float64, s quell.Snapshot, resource quell.Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, in := range s.Instances {
		if in.Observation == nil {
			continue
		}
		if len(in.Observation.Utilization) > 0 {
			r.record.Uses = append(r.record.Uses, RecordedUse{AtS: at, Instance: in.ID, Use: in.Observation.Utilization})
		}
		p, ok := in.Observation.Probe[resource]
		if !ok || p.N == 0 {
			continue
		}
		probe := RecordedProbe{AtS: at, Instance: in.ID, MeanMS: p.MeanMS, N: p.N}
		if u, ok := in.Observation.Utilization[resource]; ok {
			probe.Utilization = &u
		}
		r.record.Probes = append(r.record.Probes, probe)
	}
}

// Plan records what a plan says of response times above their bounds and of contended resources, and new shares and settings. Plans are
// given in order.
func (r *Recorder) Plan(at float64, plan *quell.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := causeOf(at, plan); len(c.Named) > 0 || len(c.Above) > 0 || len(c.Own) > 0 {
		r.record.Causes = append(r.record.Causes, c)
	}
	next := RecordedShares{AtS: at, Shares: plan.Weights}
	if len(plan.Factor) > 0 {
		next.Cuts = make(map[string]float64, len(plan.Factor))
	}
	for instance, factor := range plan.Factor {
		next.Cuts[instance] = factor.Value
	}
	shares := r.record.Shares
	if n := len(shares); len(plan.Weights) > 0 && (n == 0 || !shares[n-1].same(next)) {
		r.record.Shares = append(shares, next)
	}
	for _, s := range plan.Settings {
		if last, ok := r.ordered(s); !ok || last != s.Value {
			r.record.Settings = append(r.record.Settings, RecordedSetting{at, s})
		}
	}
}

// ordered returns the value that was last ordered for a parameter.
func (r *Recorder) ordered(of quell.Setting) (value float64, ok bool) {
	for _, s := range slices.Backward(r.record.Settings) {
		if s.Instance == of.Instance && s.Key() == of.Key() {
			return s.Value, true
		}
	}
	return 0, false
}

func causeOf(at float64, plan *quell.Plan) RecordedCause {
	c := RecordedCause{AtS: at, Named: plan.Cause, Own: plan.OwnWork}
	for _, reason := range plan.Reasons {
		if reason.Instance != "" && slices.Contains(aboveCodes, reason.Code) {
			if c.Above == nil {
				c.Above = map[string]string{}
			}
			c.Above[reason.Instance] = reason.Code
		}
	}
	return c
}

// Change records when a plan that changed something was applied.
func (r *Recorder) Change(at float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.Changes = append(r.record.Changes, at)
}

// Record returns what was collected, together with the run's result.
func (r *Recorder) Record(run scenario.Run, result scenario.Result) Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	record := r.record
	record.Run, record.Result = run, result
	slices.SortFunc(record.Samples, func(a, b RecordedSample) int { return cmp.Compare(a.AtS, b.AtS) })
	return record
}

// Save writes the record as compressed JSON. If it fails, a file that was there before is unchanged.
func (r *Record) Save(path string) error {
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	if err := errors.Join(json.NewEncoder(packed).Encode(r), packed.Close()); err != nil {
		return err
	}
	return atomicfile.Write(path, b.Bytes(), 0o644)
}

// Inputs is a hash of everything that a run's outcome depends on: scenario, run and models.
func Inputs(sc *scenario.Scenario, run scenario.Run, models string) (string, error) {
	alone := *sc
	alone.Runs = []scenario.Run{run}
	data, err := json.Marshal(alone)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	sum.Write(data)
	if models != "" {
		text, err := os.ReadFile(models)
		if err != nil {
			return "", err
		}
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// RecordPath is where a rig with this folder stores a run's record.
func RecordPath(dir string, index int, run scenario.Run) string {
	return filepath.Join(runDir(dir, index, run), "record.json.gz")
}

// LoadRecord reads a record that Save wrote.
func LoadRecord(path string) (*Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	packed, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	r := &Record{}
	if err := json.NewDecoder(packed).Decode(r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return r, nil
}

// Phase summarises a part of a run.
type Phase struct {
	Size      float64                  // mean number of instances, without failed ones
	LatencyMS quell.Latency            // of all requests
	Requests  int                      // without failed requests
	Failed    int                      //
	Instances map[string]PhaseInstance // by id
}

// PhaseInstance is one instance during a part of a run: means of what the controller knew, and what clients measured.
type PhaseInstance struct {
	Utilization, Severity, Capacity, Weight float64 // NaN if never measured
	ProbeMS                                 float64 // mean of the single probe times
	LatencyMS                               quell.Latency
	PerSecond                               float64 // answered requests
}

// period returns the time between two moments in seconds.
func (r *Record) period() float64 {
	if len(r.Moments) < 2 {
		return 0
	}
	return (r.Moments[len(r.Moments)-1].AtS - r.Moments[0].AtS) / float64(len(r.Moments)-1)
}

// Phase summarises the time from begin to end, in seconds since measuring started.
func (r *Record) Phase(begin, end float64) Phase {
	p := Phase{Instances: map[string]PhaseInstance{}}
	within := func(at float64) bool { return at >= begin && at < end }
	latencies := map[string][]time.Duration{}
	var all []time.Duration
	for _, s := range r.Samples {
		if !within(s.AtS) {
			continue
		}
		if s.Failed {
			p.Failed++
			continue
		}
		l := time.Duration(s.LatencyMS * float64(time.Millisecond))
		all = append(all, l)
		latencies[s.Instance] = append(latencies[s.Instance], l)
	}
	p.Requests, p.LatencyMS = len(all), scenario.Summarize(all)
	seen, moments, before := map[string]*means{}, 0, r.period()
	for _, m := range r.Moments {
		now, shown := within(m.AtS), within(m.AtS-before) // a moment shows the use of the period before it
		if now {
			moments++
		}
		for _, in := range m.Instances {
			if now && in.State != quell.Failed {
				p.Size++
			}
			if seen[in.ID] == nil && (now || shown) {
				seen[in.ID] = &means{}
			}
			if shown {
				seen[in.ID].add(in)
			}
		}
	}
	p.Size /= math.Max(1, float64(moments))
	probes := map[string]*mean{}
	for _, probe := range r.Probes {
		if within(probe.AtS) {
			if probes[probe.Instance] == nil {
				probes[probe.Instance] = &mean{}
			}
			probes[probe.Instance].sum += probe.MeanMS * float64(probe.N)
			probes[probe.Instance].n += probe.N
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		in := seen[id].instance()
		in.PerSecond = float64(len(latencies[id])) / (end - begin)
		in.LatencyMS = scenario.Summarize(latencies[id])
		in.ProbeMS = math.NaN()
		if probes[id] != nil {
			in.ProbeMS = probes[id].value()
		}
		p.Instances[id] = in
	}
	return p
}

// CutAfter returns when, between two times, a fast policy first left an instance at most a part of what it left it before; false if it did
// not. Times are in seconds since measuring started.
func (r *Record) CutAfter(instance string, from, to, part float64) (at float64, ok bool) {
	before := 1.0
	for _, s := range r.Shares {
		left := s.left(instance)
		switch {
		case s.AtS > to:
			return 0, false
		case s.AtS > from && left <= part*before:
			return s.AtS, true
		}
		before = left
	}
	return 0, false
}

// Cuts returns how many times a fast policy began to cut a share, and how many seconds some share was cut.
func (r *Record) Cuts() (began int, seconds float64) {
	before := map[string]bool{}
	for i, m := range r.Moments {
		now := map[string]bool{}
		for _, in := range m.Instances {
			if in.Cut == nil || m.AtS < 0 {
				continue
			}
			if now[in.ID] = true; !before[in.ID] {
				began++
			}
		}
		if len(now) > 0 && i > 0 {
			seconds += m.AtS - r.Moments[i-1].AtS
		}
		before = now
	}
	return began, seconds
}

// means adds up the values that were measured of an instance.
type means struct{ u, sf, capacity, weight mean }

func (m *means) add(in SeenInstance) {
	m.u.add(in.Utilization)
	m.sf.add(in.Severity)
	m.capacity.add(in.Capacity)
	m.weight.add(in.Weight)
}

func (m *means) instance() PhaseInstance {
	return PhaseInstance{Utilization: m.u.value(), Severity: m.sf.value(), Capacity: m.capacity.value(), Weight: m.weight.value()}
}

type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v *float64) {
	if v != nil {
		m.sum, m.n = m.sum+*v, m.n+1
	}
}

// value is the mean, or NaN if nothing was measured.
func (m *mean) value() float64 { return m.sum / float64(m.n) }
