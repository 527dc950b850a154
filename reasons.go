package quell

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
)

// Reason explains a part of a plan to a person. An empty Instance means the whole group.
type Reason struct {
	Code     string     `json:"code"`
	Instance string     `json:"instance"`
	Text     string     `json:"text"`
	Since    *time.Time `json:"since,omitempty"` // in a status: when it was first given without a gap
}

// ReasonKind declares the code of a reason.
type ReasonKind struct {
	Code        string   `json:"code"`
	Severity    Severity `json:"severity"`
	Words       string   `json:"words"`        // what people read in place of the code; "": the code with spaces
	SilentWhile []string `json:"silent_while"` // its causes: people are not shown it beside one of them
	AfterS      float64  `json:"after_s"`      // people are shown it when it was given for this many seconds
	Host        bool     `json:"host"`         // only agents give it, about control groups
	Means       string   `json:"means"`
	See         string   `json:"see"` // page and anchor, below docs
}

// Severity says how much a reason needs a person's attention.
type Severity string

// The severities, the highest first.
const (
	Warning Severity = "warning" // somebody should look at it
	Notice  Severity = "notice"  // something limits or changes the service, and Quell deals with it
	Routine Severity = "routine" // what is decided, and why
)

//go:embed reasons.json
var reasonsJSON []byte

// ReasonKinds lists all codes of reasons, sorted.
var ReasonKinds = sync.OnceValue(func() (kinds []ReasonKind) {
	if err := json.Unmarshal(reasonsJSON, &kinds); err != nil {
		panic(err) // the file is part of the program
	}
	return slices.Clip(kinds)
})

// Kind returns what is declared of the reason's code; only the code if that is unknown.
func (r Reason) Kind() ReasonKind {
	i, ok := slices.BinarySearchFunc(ReasonKinds(), r.Code, func(k ReasonKind, code string) int { return strings.Compare(k.Code, code) })
	if !ok {
		return ReasonKind{Code: r.Code}
	}
	return ReasonKinds()[i]
}

// Title is what people read in place of the reason's code.
func (r Reason) Title() string {
	if words := r.Kind().Words; words != "" {
		return words
	}
	return strings.ReplaceAll(r.Code, "_", " ")
}

// ShownReasons returns the reasons that people are shown at a time, in their order. A consequence is silent while its cause, about the same
// instance or the group, is among the reasons. Some are silent until they have been given for a while.
func ShownReasons(all []Reason, at time.Time) []Reason {
	return slices.DeleteFunc(slices.Clone(all), func(r Reason) bool {
		kind := r.Kind()
		if r.Since != nil && at.Sub(*r.Since).Seconds() < kind.AfterS {
			return true
		}
		return len(kind.SilentWhile) > 0 && slices.ContainsFunc(all, func(cause Reason) bool {
			return (cause.Instance == "" || cause.Instance == r.Instance) && slices.Contains(kind.SilentWhile, cause.Code)
		})
	})
}
