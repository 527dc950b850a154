package model

import (
	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// Dial is the section of the policy DIAL. It says above which response time an instance suffers from neighbours, how to tell from which
// resource it suffers, and how much of that resource the neighbours then use.
type Dial struct {
	// PeakRate is r of Eq. 3: the rate of requests, in the trained mix of classes, at which the first resource of an instance is full. It
	// is in requests per second; 0 means unknown.
	PeakRate float64 `json:"peak_rate,omitempty"`
	// DetectMS is the bound that the p90 of one window of an undisturbed instance stays below with 95% confidence, at DetectRate. 0 means
	// unknown.
	DetectMS        float64            `json:"detect_ms,omitempty"`
	DetectByClassMS map[string]float64 `json:"detect_by_class_ms,omitempty"`
	DetectRate      float64            `json:"detect_rate,omitempty"` // requests per second
	// Calm is the p90 of an undisturbed instance as a function of its rate of requests over PeakRate. It gives the bounds at other rates.
	// CalmByClass is the same for single classes, whose response times may grow faster or more slowly with the load. A class that it lacks
	// grows as Calm does.
	Calm        Queueing            `json:"calm,omitempty"`
	CalmByClass map[string]Queueing `json:"calm_by_class,omitempty"`
	// Tail says how much longer than its p90 the longest response times of an undisturbed instance are: the response time that a request
	// exceeds with probability x < 0.1 is about p90 * (1 + Tail * ln(0.1 / x)). It tells how much the p90 of few requests scatters. 0 means
	// unknown: then every window counts as one with many requests.
	// TailByClass is the same for single classes; a class that it lacks has the tail of all.
	Tail        float64            `json:"tail,omitempty"`
	TailByClass map[string]float64 `json:"tail_by_class,omitempty"`
	// Expected are the user and system times of an undisturbed instance, by feature (cpu_user, cpu_system).
	Expected map[string]Expected `json:"expected,omitempty"`
	// Curves are the other features of an undisturbed instance whose value grows with its own use of a resource (curveOver).
	Curves map[string]Queueing `json:"curves,omitempty"`
	// Usual are the mean values of the features of an undisturbed instance. They are for explanations, and connect_ratio is compared with at
	// least the usual time to connect.
	Usual      map[string]float64          `json:"usual,omitempty"`
	Classifier *stats.Tree                 `json:"classifier,omitempty"`
	Queueing   map[quell.Resource]Queueing `json:"queueing,omitempty"`
	// Stretch says how neighbours on the memory lengthen processor time: requests need 1 + Stretch*h times as much beside neighbours that
	// use h of the memory. Queueing[memory] is then over the use of the processors; see Over. 0: it is over the use of the memory.
	Stretch float64 `json:"stretch,omitempty"`

	// Errors and Validated say how good the fit was.
	Errors    map[quell.Resource]QueueingError `json:"errors,omitempty"`
	Validated stats.Confusion                  `json:"validated,omitempty"` // predictions of each sample by a tree that was fitted to other samples
}

// QueueingError says how much the response times of Eq. 1 differ from those that it was fitted to.
type QueueingError struct {
	Rows         int     `json:"rows"`
	MeanRelative float64 `json:"mean_relative"`
	MaxRelative  float64 `json:"max_relative"`
	Linear       float64 `json:"linear"` // the mean error if Eq. 1 has no square term
}

// Dial returns the models' section of DIAL, or nil if they have none.
func (m *Models) Dial() *Dial {
	d, _ := sectionOf[*Dial](m)
	return d
}

var dialKind = kind{keys: []string{"dial"}, is: is[*Dial], decode: decodeDial, fit: fitDial}

// Incomplete names the first part without which the section cannot be used: it finds no interference, or not how much there is. It is empty
// if there is none.
func (s *Dial) Incomplete() string {
	switch {
	case s.DetectMS == 0:
		return "detect_ms"
	case s.Classifier == nil:
		return "classifier"
	case s.PeakRate == 0:
		return "peak_rate"
	case len(s.Queueing) == 0:
		return "queueing"
	}
	return ""
}
