package bus

import (
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/subjects"
)

// Intake says what to do with the readings of a service.
type Intake struct {
	Accept func(r quell.Reading, received time.Time)
	Reject func(error)
	// Known returns whether an instance belongs to the service; nil accepts all. All unknown instances share one
	// allowance.
	Known func(instance string) bool
}

// Each subject of readings has its own allowance, so a sender that floods the bus does not affect the others. Messages
// beyond the allowance are dropped before they are decoded. A sampling period of 10 ms, the shortest, with readings of 8 kB
// stays below it. Decoding 1 MiB takes about 15 ms.
const (
	readingCost     = 512     // of a message in addition to its bytes
	readingsPerS    = 1 << 20 // cost per second and subject
	readingsAtOnce  = 4 << 20
	strangersPerS   = 2 << 20 // of all unknown instances together
	strangersAtOnce = 64 << 20
)

var (
	errTooMany   = errors.New("more readings came on one subject than are taken in; the rest is dropped")
	errStrangers = errors.New("more readings of unknown instances came than are taken in; the rest is dropped")
)

// allowances limit how many readings are accepted.
type allowances struct {
	known func(instance string) bool
	most  int // limit of remembered subjects

	mu        sync.Mutex
	bySubject map[string]*allowance
	strangers allowance
}

func newAllowances(known func(string) bool) *allowances {
	if known == nil {
		known = func(string) bool { return true }
	}
	return &allowances{known: known, most: mostSubjects, bySubject: map[string]*allowance{},
		strangers: allowance{rate: strangersPerS, most: strangersAtOnce}}
}

// take returns whether a message may be decoded.
func (a *allowances) take(m *nats.Msg, now time.Time) error {
	cost := float64(len(m.Data) + readingCost)
	instance, err := subjects.InstanceOf(m.Subject)
	if err != nil {
		return err
	}
	known := a.known(instance)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !known {
		if !a.strangers.take(cost, now) {
			return errStrangers
		}
		return nil
	}
	own := a.bySubject[m.Subject]
	if own == nil {
		own = &allowance{rate: readingsPerS, most: readingsAtOnce}
		a.room()
		a.bySubject[m.Subject] = own
	}
	if !own.take(cost, now) {
		return errTooMany
	}
	return nil
}

// mostSubjects is the limit of remembered subjects; subjects of removed instances are forgotten first.
const mostSubjects = 1 << 17

func (a *allowances) room() {
	if len(a.bySubject) < a.most {
		return
	}
	for subject := range a.bySubject {
		if instance, err := subjects.InstanceOf(subject); err != nil || !a.known(instance) {
			delete(a.bySubject, subject)
		}
	}
	if len(a.bySubject) >= a.most {
		clear(a.bySubject)
	}
}

// allowance is a token bucket.
type allowance struct {
	rate, most float64
	left       float64
	at         time.Time // when left was computed; zero: full
}

func (a *allowance) take(cost float64, now time.Time) bool {
	if a.at.IsZero() {
		a.left = a.most
	} else {
		a.left = min(a.most, a.left+max(0, now.Sub(a.at).Seconds())*a.rate)
	}
	a.at = now
	if a.left < cost {
		return false
	}
	a.left -= cost
	return true
}
