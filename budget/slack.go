package budget

import "math"

// Slack is what a service without a target leaves free because its objective was missed. It grows with each second that is missed, and
// shrinks slowly while the objective holds, so that in the long run about SlackMissed of the requests miss it. A disturbed service so keeps
// more in reserve than one that has peace, without anybody saying how much.
type Slack struct {
	Held    float64 `json:"held,omitempty"`    // part of the capacity that is left free
	Episode float64 `json:"episode,omitempty"` // seconds of the present miss that have counted
}

const (
	// SlackMissed is the part of the requests that may miss the objective.
	SlackMissed = 0.01
	// SlackStep is how much less is left free after each second in which nothing is missed.
	SlackStep = 0.0002
	// LongestMiss is how many seconds of one miss count. While it lasts, new instances are on their way.
	LongestMiss = 5
)

// Follow counts a period of some seconds in which a part of the requests missed the objective. In a large group some always do, by chance:
// a part that is allowed ends a miss.
func (s Slack) Follow(missed, seconds float64) Slack {
	switch {
	case missed <= SlackMissed:
		s.Held, s.Episode = math.Max(0, s.Held-SlackStep*seconds*(1-missed/SlackMissed)), 0
	case s.Episode < LongestMiss:
		counted := math.Min(missed*seconds, LongestMiss-s.Episode)
		s.Episode += counted
		s.Held += SlackStep * counted * (1 - SlackMissed) / SlackMissed
	}
	return s
}
