package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/guard"
	"github.com/quellhq/quell/policy/ownwork"
)

// State is the memory of an engine between snapshots. It holds the last readings of the instances, the guard's records of
// them, and the memory of the policy that decided last. Its zero value is an empty memory.
type State struct {
	Policy    string                    `json:"policy"`
	Memory    any                       `json:"memory,omitempty"`    // the memory of that policy: a pointer to a value that is never changed
	Instances map[string]*InstanceState `json:"instances,omitempty"` // they are never changed

	// Used is the recent use of each resource by the service, if there are several. The ratio of two resources' uses converts an amount of one
	// resource into an amount of the other.
	Used map[quell.Resource]float64 `json:"used,omitempty"`

	// Usual is what instances usually wait for.
	Usual map[string]*UsualWaits `json:"usual,omitempty"`

	// Costs are what requests usually use of each resource of the instances.
	Costs ownwork.Costs `json:"costs,omitempty"`

	// Following is how requests follow the weights.
	Following Following `json:"following,omitzero"`

	// Probed tells a slow prober from neighbours, by instance. The map is never changed.
	Probed map[string]Probed `json:"probed,omitempty"`

	// HandingOver says that another policy decided before, and that the weights in force are still that policy's.
	HandingOver bool `json:"handing_over,omitempty"`

	Learned *model.Learner `json:"learned,omitempty"` // models that were learned in place
	Trust   Trust          `json:"trust,omitzero"`    // how far plans may go

	Earned *Trust `json:"-"` // what Trust would be if a person had not set another one for a time; nil: nobody has

	Unread error `json:"-"` // why what was learned could not be read; nil: it could, or nothing was
}

// HasSeverity returns whether it is known how much neighbours slow an instance.
func (s *State) HasSeverity(id string) bool { return s.Of(id).Severity != nil }

// Of returns what is remembered of an instance, an empty memory if that is nothing.
func (s *State) Of(id string) InstanceState {
	if in := s.Instances[id]; in != nil {
		return *in
	}
	return InstanceState{}
}

// Wanted returns the shares that a plan leads to, nil if those are its own. They differ while the guard lets shares move only part of the
// way at once.
func (s State) Wanted(plan *quell.Plan) map[string]float64 {
	if !slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == guard.StepReason }) {
		return nil
	}
	wanted := maps.Clone(plan.Weights)
	for id := range wanted {
		if c := s.Of(id).Clamped; c != nil {
			wanted[id] = c.Wanted
		}
	}
	return wanted
}

// carried returns a copy of the memory without the part about the instances. If the policy changed, the old policy's memory
// is dropped and the handover of shares begins.
func (s State) carried(policy string) State {
	if s.Policy != policy {
		return State{Policy: policy, HandingOver: s.Policy != "", Learned: s.Learned, Trust: s.Trust, Earned: s.Earned}
	}
	s.Instances = nil
	return s
}

// Remembered replaces the policy's memory by a copy, which the policy may change, and returns the copy.
func Remembered[M any](st *State) *M {
	mem := new(M)
	if old, ok := st.Memory.(*M); ok {
		*mem = *old
	}
	st.Memory = mem
	return mem
}

// RememberedOf gives every member a copy of what the policy remembers of it. The policy may change these copies.
func RememberedOf[M any](g *Group) {
	copies := make([]M, len(g.Members))
	for i := range g.Members {
		m := &g.Members[i]
		if m.mem == nil { // a test made the member
			m.mem = &InstanceState{}
		}
		if old, ok := m.mem.Memory.(*M); ok {
			copies[i] = *old
		}
		m.mem.Memory = &copies[i]
	}
}

// MemoryOf returns the copy that RememberedOf gave a member: what the policy remembers of it. Without that call it panics.
func MemoryOf[M any](m *Member) *M { return m.mem.Memory.(*M) }

// Anchor converts the times in a state that was just read by which waits are judged to the present clock, with the given function.
func (s *State) Anchor(on func(time.Time) time.Time) {
	for _, in := range s.Instances {
		times := []*time.Time{in.StartingSince, in.SeverityAt}
		for _, f := range in.Of {
			times = append(times, f.SeverityAt)
		}
		for _, at := range times {
			if at != nil {
				*at = on(*at)
			}
		}
	}
}

// Consecutive counts how often a condition held in a row: it returns one more than counter while it holds, else 0.
func Consecutive(counter int, holds bool) int {
	if holds {
		return counter + 1
	}
	return 0
}

// forgetPolicy drops what another policy remembers of the instances.
func (g *Group) forgetPolicy() {
	for i := range g.Members {
		g.Members[i].mem.Memory = nil
	}
}

// ChangedSetting is a server parameter that a policy has changed.
type ChangedSetting struct {
	Before float64   // its value before
	Ours   []float64 // the values that the policy ordered, the last one first
}

// changer is what a policy remembers of an instance whose server's parameters it may change.
type changer interface {
	ChangedSettings() map[string]ChangedSetting
}

// Changed returns the parameters of servers that the policy of this memory has changed, by instance and parameter, which is named as by
// quell.Setting.Key.
func (s *State) Changed() map[string]map[string]ChangedSetting {
	all := map[string]map[string]ChangedSetting{}
	for id, in := range s.Instances {
		mem, ok := in.Memory.(changer)
		if !ok {
			continue
		}
		if changed := mem.ChangedSettings(); len(changed) > 0 {
			all[id] = changed
		}
	}
	return all
}

// UnmarshalJSON reads everything but the policy's own memory, which stays JSON until Table.Restore.
func (s *State) UnmarshalJSON(data []byte) error {
	type instance struct {
		Perceived
		Guarded
		Memory json.RawMessage `json:"memory"`
	}
	var raw struct {
		Policy      string                     `json:"policy"`
		Memory      json.RawMessage            `json:"memory"`
		Instances   map[string]instance        `json:"instances"`
		Used        map[quell.Resource]float64 `json:"used"`
		Usual       map[string]*UsualWaits     `json:"usual"`
		Costs       ownwork.Costs              `json:"costs"`
		Following   Following                  `json:"following"`
		Probed      map[string]Probed          `json:"probed"`
		HandingOver bool                       `json:"handing_over"`
		Learned     json.RawMessage            `json:"learned"`
		Trust       Trust                      `json:"trust"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	next := State{Policy: raw.Policy, Memory: stored(raw.Memory), HandingOver: raw.HandingOver, Trust: raw.Trust}
	next.Used, next.Usual, next.Costs, next.Following, next.Probed = raw.Used, raw.Usual, raw.Costs, raw.Following, raw.Probed
	next.readLearned(raw.Learned)
	if raw.Instances != nil {
		next.Instances = make(map[string]*InstanceState, len(raw.Instances))
	}
	for id, in := range raw.Instances {
		next.Instances[id] = &InstanceState{Perceived: in.Perceived, Guarded: in.Guarded, Memory: stored(in.Memory)}
	}
	*s = next
	return nil
}

// stored is a policy's memory as it was stored; nil if there is none.
func stored(data json.RawMessage) any {
	if len(data) == 0 {
		return nil
	}
	return data
}

// Restore reads the memory of the policy in a state that was stored as JSON into the types that the policy declares. The memory of a policy
// that the table does not have is dropped. If the memory is damaged, the state stays as it is.
func (t Table) Restore(s *State) error {
	r, _, _ := t.find(quell.Policy{Name: s.Policy}) // an unknown policy has no memory
	memory, err := decodeMemory(s.Memory, r.memory)
	if err != nil {
		return fmt.Errorf("memory of policy %s: %w", s.Policy, err)
	}
	instances := maps.Clone(s.Instances)
	for id := range instances {
		in := s.Of(id)
		if in.Memory, err = decodeMemory(in.Memory, r.instance); err != nil {
			return fmt.Errorf("memory of policy %s, instance %s: %w", s.Policy, id, err)
		}
		instances[id] = &in
	}
	s.Memory, s.Instances = memory, instances
	return nil
}

// readLearned reads what was learned. If it cannot be read, as after a return to an older version, it is learned again, and all else stays.
func (s *State) readLearned(data json.RawMessage) {
	if len(data) == 0 {
		return
	}
	var known *model.Learner
	if err := json.Unmarshal(data, &known); err != nil {
		if s.Unread = err; s.Trust.Level != "" {
			s.Trust = s.Trust.unproven()
		}
		return
	}
	s.Learned = known
}

// decodeMemory reads stored JSON into a new value of a policy's type; nil if there is none, or the policy has no memory.
func decodeMemory(stored any, empty func() any) (any, error) {
	data, ok := stored.(json.RawMessage)
	if !ok || empty == nil {
		return nil, nil
	}
	memory := empty()
	return memory, json.Unmarshal(data, memory)
}
