package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Training is a part of a training on the machine of an instance that is out of rotation for it. An operator sends it to the controller,
// which passes it on to the instance's agent if the instance is out of rotation for a training of this operator.
type Training struct {
	Resource quell.Resource `json:"resource,omitempty"` // what the interferer uses from now on; empty: the interferer stays as it is
	Use      float64        `json:"use,omitempty"`      // the share of the resource that it asks for; 0: it ends
	Read     bool           `json:"read,omitempty"`     // end a window of the sensors, and say what was measured in it
	ForS     float64        `json:"for_s,omitempty"`    // the seconds after which the agent ends it all by itself; 0: now
}

// Trained is an agent's answer. Seconds are of the whole resource, since the training began at this agent.
type Trained struct {
	Feels       []quell.Resource           `json:"feels,omitempty"` // resources that the agent probes itself
	Own         map[quell.Resource]float64 `json:"own_s,omitempty"` // used by the service
	Interfering map[quell.Resource]float64 `json:"interfering_s,omitempty"`
	Observation *quell.Observation         `json:"observation,omitempty"` // of the window that Read ended
	Failures    []string                   `json:"failures,omitempty"`    // of sensors
}

// longestPart is the longest time for which a part of a training may last without another one.
const longestPart = time.Hour

// check returns why a part of a training makes no sense.
func (t *Training) check() error {
	switch {
	case t.Resource != "" && !slices.Contains(quell.Resources, t.Resource):
		return fmt.Errorf("unknown resource %q", t.Resource)
	case !(t.Use >= 0 && t.Use <= 1):
		return fmt.Errorf("a use of %v is not a share from 0 to 1", t.Use)
	case t.Resource == "" && t.Use > 0:
		return errors.New("a use needs a resource")
	case !(t.ForS >= 0 && t.ForS <= longestPart.Seconds()):
		return fmt.Errorf("%v s is not a time from 0 s to %v", t.ForS, longestPart)
	}
	return nil
}

// Train sends a part of a training to the agent of an instance. Only a controller may.
func (c *Conn) Train(ctx context.Context, service, instance string, t Training) (done Trained, err error) {
	body, err := c.orderFor(ctx, service, instance, Orders{Training: &t})
	if err != nil || len(body) == 0 {
		return done, err
	}
	if err := json.Unmarshal(body, &done); err != nil {
		return done, fmt.Errorf("the agent of %s answered what cannot be read: %w", instance, err)
	}
	return done, nil
}
