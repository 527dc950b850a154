package train

import (
	"errors"
	"fmt"
	"math"
)

// Gauged is what a machine used of a resource at a rate of requests.
type Gauged struct {
	Rate   float64 // requests per second that were answered
	Use    float64 // of the resource, as a fraction
	Failed float64 // the share of requests that failed
}

const (
	gaugeBegins = 2    // requests per second of the first trial
	gaugeSteps  = 14   // most trials
	gaugeEnough = 0.15 // use beside that without requests, at which the rate is known well enough
	gaugeWanted = 0.25 // likewise, what the next trial aims at
	gaugeGrows  = 4    // most by which a trial's rate exceeds that of the one before
	gaugeFails  = 0.01 // share of failed requests that ends it
	gaugeMost   = 50_000
)

// PerSecond finds how many requests per second use a resource of a machine fully. It raises the rate until the use is well above that
// without requests. trial measures one rate. If requests fail or the use does not rise, the error says so.
func PerSecond(trial func(rate float64) (Gauged, error)) (float64, error) {
	idle, err := trial(0)
	if err != nil {
		return 0, err
	}
	if idle.Use > 1-2*gaugeWanted {
		return 0, fmt.Errorf("%.0f%% of the resource is used without requests: something else runs on the machine", 100*idle.Use)
	}
	rate := float64(gaugeBegins)
	for range gaugeSteps {
		now, err := trial(rate)
		switch {
		case err != nil:
			return 0, err
		case now.Failed > gaugeFails:
			return 0, fmt.Errorf("%.0f%% of the requests fail at %.3g requests/s", 100*now.Failed, rate)
		}
		use := now.Use - idle.Use
		if use >= gaugeEnough {
			return now.Rate / use, nil
		}
		next := gaugeGrows * rate
		if use > 0 {
			next = math.Min(next, rate*gaugeWanted/use)
		}
		if rate = math.Max(next, 1.2*rate); rate > gaugeMost {
			break
		}
	}
	return 0, errors.New("requests hardly use the resource: train another resource, or give other URLs")
}
