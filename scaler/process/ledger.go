package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell/internal/strictjson"
)

const ledgerFormat = "quell-instances/1"

// ledger is the content of instances.json, which must survive this process. Its methods only compute; they do not read or write files.
type ledger struct {
	Format        string    `json:"format"`
	Next          int       `json:"next"`                     // number of the next id; it never decreases
	ExitedSeconds float64   `json:"exited_seconds,omitempty"` // in files of earlier versions; the controller counts them now
	FreedSlots    []int     `json:"freed_slots"`              // the least recently freed first
	Instances     []*record `json:"instances"`                // in order of start
}

// record is one instance. PID is 0 between the decision to start it and the fork.
type record struct {
	ID           string     `json:"id"`
	Type         string     `json:"type,omitempty"`
	PID          int        `json:"pid,omitempty"`
	ProcessStart string     `json:"process_start,omitempty"` // distinguishes it from a later process with the same PID
	Slot         int        `json:"slot"`
	Port         int        `json:"port"`
	ProbePort    int        `json:"probe_port,omitempty"`
	Address      string     `json:"address,omitempty"` // its address; if an old file has none, its port on 127.0.0.1
	ProbeAddress string     `json:"probe_address,omitempty"`
	Started      time.Time  `json:"started"`
	Stopping     bool       `json:"stopping,omitempty"`
	Exited       *time.Time `json:"exited,omitempty"`
}

func newLedger() *ledger { return &ledger{Format: ledgerFormat, Next: 1} }

// decodeLedger reads what encode wrote and refuses everything else, because signals to a wrong pid would hit another
// process.
func decodeLedger(data []byte) (*ledger, error) {
	l := new(ledger)
	if err := strictjson.Decode(data, l); err != nil {
		return nil, err
	}
	if l.Format != ledgerFormat {
		return nil, fmt.Errorf("format is %q, not %q", l.Format, ledgerFormat)
	}
	if l.Next < 1 {
		return nil, errors.New("next must be positive")
	}
	l.ExitedSeconds = 0
	seen := map[string]bool{}
	for i, r := range l.Instances {
		if r == nil {
			return nil, fmt.Errorf("instances[%d] is null", i)
		}
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("instances[%d]: %w", i, err)
		}
		if seen[r.ID] {
			return nil, fmt.Errorf("instances[%d]: id %q is given twice", i, r.ID)
		}
		seen[r.ID] = true
	}
	return l, nil
}

func (r *record) check() error {
	switch {
	case r.ID == "" || strings.ContainsAny(r.ID, `/\`):
		return fmt.Errorf("id %q", r.ID)
	case r.PID < 0 || r.PID == 1 || r.PID > math.MaxInt32: // a signal to -1 or 0 goes to many processes
		return fmt.Errorf("pid %d", r.PID)
	case r.PID != 0 && r.ProcessStart == "":
		return errors.New("pid without process_start")
	case r.Slot < 1:
		return fmt.Errorf("slot %d", r.Slot)
	case r.Port < 1 || r.Port > 65535 || r.ProbePort < 0 || r.ProbePort > 65535:
		return fmt.Errorf("ports %d and %d", r.Port, r.ProbePort)
	case r.Started.IsZero():
		return errors.New("started is missing")
	}
	return nil
}

// locate fills in the addresses that files of earlier versions lack.
func (r *record) locate() {
	if r.Address == "" {
		r.Address = address(r.Port)
		if r.ProbePort != 0 {
			r.ProbeAddress = address(r.ProbePort)
		}
	}
}

func (l *ledger) encode() ([]byte, error) {
	data, err := json.MarshalIndent(l, "", "  ")
	return append(data, '\n'), err
}

// reserve adds a new instance in the next slot, and returns whether one was free.
func (l *ledger) reserve(prefix string, slots int, now time.Time) (*record, bool) {
	slot, ok := l.nextSlot(slots)
	if !ok {
		return nil, false
	}
	l.FreedSlots = without(l.FreedSlots, slot)
	r := &record{ID: prefix + strconv.Itoa(l.Next), Slot: slot, Started: now}
	l.Next++
	l.Instances = append(l.Instances, r)
	return r, true
}

// nextSlot is the lowest slot never used, or else the one that was freed first.
func (l *ledger) nextSlot(slots int) (int, bool) {
	taken := map[int]bool{}
	for _, r := range l.Instances {
		if r.Exited == nil {
			taken[r.Slot] = true
		}
	}
	if len(taken) >= slots {
		return 0, false
	}
	for s := 1; s <= slots; s++ {
		if !taken[s] && !slices.Contains(l.FreedSlots, s) {
			return s, true
		}
	}
	for _, s := range l.FreedSlots {
		if s <= slots && !taken[s] {
			return s, true
		}
	}
	return 0, false
}

// cancel undoes a reservation whose process never ran. freed is the value of FreedSlots before the reservation. The id is not used again.
func (l *ledger) cancel(r *record, freed []int) {
	l.remove(r)
	l.FreedSlots = freed
}

func (l *ledger) find(id string) *record {
	i := slices.IndexFunc(l.Instances, func(r *record) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return l.Instances[i]
}

// exit records the end of an instance and frees its slot.
func (l *ledger) exit(r *record, at time.Time) {
	if at.Before(r.Started) {
		at = r.Started
	}
	r.Exited = &at
	l.FreedSlots = append(without(l.FreedSlots, r.Slot), r.Slot)
}

// without returns a copy of the list without a slot. It does not change the list itself, which may be kept for cancel.
func without(slots []int, slot int) []int {
	return slices.DeleteFunc(slices.Clone(slots), func(s int) bool { return s == slot })
}

// remove removes an instance from the list.
func (l *ledger) remove(r *record) {
	l.Instances = slices.DeleteFunc(l.Instances, func(o *record) bool { return o == r })
}

// issued returns whether an id was ever given to an instance.
func (l *ledger) issued(prefix, id string) bool {
	number, ok := strings.CutPrefix(id, prefix)
	n, err := strconv.Atoi(number)
	return ok && err == nil && n >= 1 && n < l.Next && strconv.Itoa(n) == number
}

// ports lists those of running instances.
func (l *ledger) ports() map[int]bool {
	used := map[int]bool{}
	for _, r := range l.Instances {
		if r.Exited == nil {
			used[r.Port], used[r.ProbePort] = true, true
		}
	}
	return used
}
