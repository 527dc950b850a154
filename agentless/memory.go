package agentless

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/quellhq/quell"
)

// Format is the format of a stored memory.
const Format = "quell-agentless/1"

// Memory is what is usual for each instance. Its zero value knows nothing.
type Memory struct {
	Format string            `json:"format"`
	At     time.Time         `json:"at,omitzero"` // of the last window
	Window int               `json:"window"`      // windows so far
	Known  map[string]*Known `json:"known,omitempty"`
}

// Known is what is usual for one instance.
type Known struct {
	Seen     int      `json:"seen"` // the last window in which it was measured
	Signals  [3]Track `json:"signals"`
	Rate     Track    `json:"rate"`
	Untaught int      `json:"untaught,omitempty"` // consecutive windows that did not teach what is usual
	Passed   int      `json:"passed,omitempty"`   // consecutive windows that showed interference
	Calm     int      `json:"calm,omitempty"`     // consecutive windows since then that showed none
	By       int      `json:"by,omitempty"`       // the signal that showed it, by its place in signals
	Carried  float64  `json:"carried,omitempty"`  // requests per second within the objective
}

// Track is the usual value of a figure, as a logarithm, and how much windows differ from it.
type Track struct {
	N        int     `json:"n"` // windows, up to usualOver
	Log      float64 `json:"log"`
	Variance float64 `json:"variance"`
}

func (k *Known) of(s Signal) *Track {
	for i := range signals {
		if signals[i] == s {
			return &k.Signals[i]
		}
	}
	return &k.Rate
}

// spread is the standard deviation of windows, mostly the prior while few are known.
func (t *Track) spread() float64 {
	const worth = 10
	n := float64(t.N)
	return math.Sqrt((n*t.Variance + worth*priorSD*priorSD) / (n + worth))
}

func (t *Track) add(log, remains float64) {
	t.N = min(t.N+1, usualOver)
	t.Log += (log - t.Log) / float64(t.N)
	if !math.IsNaN(remains) {
		t.Variance += (remains*remains - t.Variance) / float64(t.N)
	}
}

// lasting is how many windows something unusual may last. What lasts longer is usual, or nobody would learn of a change for good.
const lasting = 2000

// learn adds a window without interference to what is usual.
func (k *Known) learn(s *Sample, suspected bool, shift [3]float64) {
	if suspected && k.Untaught < lasting {
		k.Untaught++
		return
	}
	k.Untaught = 0
	for i, signal := range signals {
		if v, ok := s.value(signal); ok {
			k.Signals[i].add(math.Log(v), shift[i])
		}
	}
	if s.Rate != nil && *s.Rate > 0 && !math.IsInf(*s.Rate, 0) {
		k.Rate.add(math.Log(*s.Rate), math.NaN())
	}
}

// fades is the part of the highest rate that is kept in each window, so that it follows a machine that became slower.
const fades = 0.999

func (k *Known) carry(s *Sample, threshold float64) {
	k.Carried *= fades
	if s.Rate != nil && s.LatencyMS != nil && threshold > 0 && *s.LatencyMS <= threshold && !math.IsInf(*s.Rate, 0) {
		k.Carried = max(k.Carried, *s.Rate)
	}
}

// copied returns a memory that may be changed.
func (m Memory) copied(at time.Time) Memory {
	next := Memory{Format: Format, At: at, Window: m.Window + 1, Known: make(map[string]*Known, len(m.Known))}
	for id, k := range m.Known {
		next.Known[id] = new(*k)
	}
	return next
}

func (m *Memory) of(id string) *Known {
	k := m.Known[id]
	if k == nil {
		k = &Known{}
		m.Known[id] = k
	}
	k.Seen = m.Window
	return k
}

func (m *Memory) forget() {
	maps.DeleteFunc(m.Known, func(_ string, k *Known) bool { return m.Window-k.Seen > forgetAt })
}

// Encode writes the memory.
func (m Memory) Encode() ([]byte, error) {
	m.Format = Format
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the memory: %w", err)
	}
	return data, nil
}

// Decode reads a memory. An empty file is an empty memory: the process was killed before anything was measured.
func Decode(data []byte) (m Memory, err error) {
	if len(data) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return Memory{}, fmt.Errorf("not a memory of quell init --agentless: %w", err)
	}
	if m.Format != Format {
		return Memory{}, &quell.InvalidError{Path: "format", Problem: fmt.Sprintf("%q, must be %q", m.Format, Format)}
	}
	for id, k := range m.Known {
		if k == nil || !k.sound() {
			return Memory{}, &quell.InvalidError{Path: "known." + id, Problem: "impossible values"}
		}
	}
	if m.Window < 0 {
		return Memory{}, &quell.InvalidError{Path: "window", Problem: "must not be negative"}
	}
	return m, nil
}

func (k *Known) sound() bool {
	for _, t := range append(k.Signals[:], k.Rate) {
		if t.N < 0 || t.N > usualOver || t.Variance < 0 || math.Abs(t.Log) > 50 || t.Variance > 1e4 {
			return false
		}
	}
	return k.Passed >= 0 && k.Passed <= confirm && k.Calm >= 0 && k.Calm <= confirm &&
		k.By >= 0 && k.By < len(signals) && k.Seen >= 0 && k.Carried >= 0
}
