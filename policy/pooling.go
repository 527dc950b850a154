package policy

import (
	"fmt"
	"strconv"
)

// Pooling is how far a balancer makes the instances of a group one station (model.GroupLaw). The zero value means not at all: each instance
// has a capacity of its own, as in the paper.
type Pooling struct {
	Learned bool    // it is learned in place
	Told    float64 // from 0 to 1, if it is not learned
}

// learnedWord stands for a pooling that is learned.
const learnedWord = "learned"

// on returns whether the group's size counts at all.
func (p Pooling) on() bool { return p.Learned || p.Told > 0 }

// told returns the pooling that a person set, nil if it is learned.
func (p Pooling) told() *float64 {
	if p.Learned {
		return nil
	}
	return &p.Told
}

// String is the setting as it is written.
func (p Pooling) String() string {
	if p.Learned {
		return learnedWord
	}
	return strconv.FormatFloat(p.Told, 'g', -1, 64)
}

func parsePooling(text string) (Pooling, error) {
	if text == learnedWord {
		return Pooling{Learned: true}, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return Pooling{}, fmt.Errorf("%q is neither %s nor a number from 0 to 1", text, learnedWord)
	}
	return Pooling{Told: v}, nil
}
