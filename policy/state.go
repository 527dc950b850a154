package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// State is the memory of an engine between snapshots: what perception and the guard remember of the instances, and the
// memory of the policy that decided last. Its zero value is an empty memory.
type State struct {
	Policy    string                   `json:"policy"`
	Memory    any                      `json:"memory,omitempty"` // of that policy: a pointer to a value that is never changed
	Instances map[string]InstanceState `json:"instances,omitempty"`

	// HandingOver: another policy decided before, and the weights in force are not yet this one's.
	HandingOver bool `json:"handing_over,omitempty"`
}

// InstanceState is what is remembered of one instance. It is below 128 bytes: up to there a map holds values in place.
type InstanceState struct {
	Perceived
	Guarded
	Memory any `json:"memory,omitempty"` // the policy's: a pointer to a value that is never changed
}

// Perceived is what readings left behind.
type Perceived struct {
	Felt                               // where the policy goes by one resource
	Of         map[quell.Resource]Felt `json:"of,omitempty"`          // where it goes by several; never changed
	UnratedFor int32                   `json:"unrated_for,omitempty"` // consecutive ready snapshots without a first severity or utilisation
	Unprobed   bool                    `json:"unprobed,omitempty"`    // it reports, but has had no severity for longer than guard.stale_after
}

// Felt is what readings of one resource left behind.
type Felt struct {
	Utilization *float64   `json:"utilization,omitempty"` // last reading
	SeverityAt  *time.Time `json:"severity_at,omitempty"`
	Severity    *float64   `json:"severity,omitempty"`    // last reading, without calibration
	Significant bool       `json:"significant,omitempty"` // the last severity passed the test of Eq. 1
	Passed      int32      `json:"felt,omitempty"`        // probe readings in a row that passed it, up to confirm + 1
	Held        int32      `json:"held,omitempty"`        // readings since, in whose place the last severity stands
}

// of is what was felt of the resources that a policy goes by now, in their order. Where it went by one before, nobody wrote down which:
// that is taken for the default one, or the first.
func (p *Perceived) of(list []contended, into []Felt) {
	if len(list) == 1 {
		if into[0] = p.Felt; p.Of != nil {
			into[0] = p.Of[list[0].resource]
		}
		return
	}
	for i := range list {
		into[i] = p.Of[list[i].resource]
	}
	if p.Of == nil {
		into[max(0, slices.IndexFunc(list, func(c contended) bool { return c.resource == defaultResource }))] = p.Felt
	}
}

// keep stores what was felt.
func (p *Perceived) keep(list []contended, felt []Felt) {
	if len(list) == 1 {
		p.Felt, p.Of = felt[0], nil
		return
	}
	p.Felt, p.Of = Felt{}, make(map[quell.Resource]Felt, len(list))
	for i := range list {
		p.Of[list[i].resource] = felt[i]
	}
}

// Guarded is what the guard remembers.
type Guarded struct {
	FailedFor   int      `json:"failed_for,omitempty"`   // consecutive snapshots in state failed
	SilentFor   int      `json:"silent_for,omitempty"`   // ready snapshots without any observation, up to guard.stale_after
	StaleFor    int      `json:"stale_for,omitempty"`    // snapshots beyond guard.stale_after without a fresh reading
	StaleWeight *float64 `json:"stale_weight,omitempty"` // the weight it had when it became stale
	Joined      bool     `json:"joined,omitempty"`       // it has had a share
	Clamped     *Clamped `json:"clamped,omitempty"`      // set where the guard changed the weight, and during a handover
}

// Clamped is a weight of the last plan that the guard changed.
type Clamped struct {
	Wanted  float64 `json:"wanted"`  // by the policy
	Planned float64 `json:"planned"` // what the guard made of it
}

// carried returns the memory without that of the instances. After a change of policy that of the old one is left behind,
// and the shares begin to be handed over.
func (s State) carried(policy string) State {
	if s.Policy != policy {
		return State{Policy: policy, HandingOver: s.Policy != ""}
	}
	s.Instances = nil
	return s
}

// remembered returns the policy's own memory, a copy that it may change.
func remembered[M any](st *State) *M {
	mem := new(M)
	if old, ok := st.Memory.(*M); ok {
		*mem = *old
	}
	st.Memory = mem
	return mem
}

// rememberedOf gives every member a copy of what the policy remembers of it, which it may change.
func rememberedOf[M any](g *group) {
	copies := make([]M, len(g.members))
	for i := range g.members {
		mem := &g.members[i].mem
		if old, ok := mem.Memory.(*M); ok {
			copies[i] = *old
		}
		mem.Memory = &copies[i]
	}
}

// forgetPolicy leaves behind what another policy remembers of the instances.
func (g *group) forgetPolicy() {
	for i := range g.members {
		g.members[i].mem.Memory = nil
	}
}

// UnmarshalJSON reads the policy's memory as that policy's type. That of a policy that this program does not know is left out.
func (s *State) UnmarshalJSON(data []byte) error {
	type instance struct {
		Perceived
		Guarded
		Memory json.RawMessage `json:"memory"`
	}
	var raw struct {
		Policy      string              `json:"policy"`
		Memory      json.RawMessage     `json:"memory"`
		Instances   map[string]instance `json:"instances"`
		HandingOver bool                `json:"handing_over"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	k, _, _ := find(quell.Policy{Name: raw.Policy}) // none of that name keeps anything
	memory, err := decodeMemory(raw.Memory, k.memory)
	if err != nil {
		return fmt.Errorf("memory of policy %s: %w", raw.Policy, err)
	}
	next := State{Policy: raw.Policy, Memory: memory, HandingOver: raw.HandingOver}
	if raw.Instances != nil {
		next.Instances = make(map[string]InstanceState, len(raw.Instances))
	}
	for id, in := range raw.Instances {
		memory, err := decodeMemory(in.Memory, k.instance)
		if err != nil {
			return fmt.Errorf("memory of policy %s, instance %s: %w", raw.Policy, id, err)
		}
		next.Instances[id] = InstanceState{Perceived: in.Perceived, Guarded: in.Guarded, Memory: memory}
	}
	*s = next
	return nil
}

// decodeMemory reads into a new value of a policy's type; nil where there is nothing, or the policy keeps nothing.
func decodeMemory(data json.RawMessage, empty func() any) (any, error) {
	if len(data) == 0 || empty == nil {
		return nil, nil
	}
	memory := empty()
	return memory, json.Unmarshal(data, memory)
}
