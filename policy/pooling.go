package policy

import (
	"fmt"
	"strconv"
)

// Pooling is how far a balancer makes the instances of a group one station (model.Station). The zero value means not at all: each instance
// has a capacity of its own, as in the paper.
type Pooling struct {
	Auto    bool    // it is learned in groups that may be large
	Learned bool    // it is learned in place
	Told    float64 // from 0 to 1, if it is neither
}

const (
	AutoWord    = "auto"    // stands for a pooling that is learned in groups that may be large
	learnedWord = "learned" // stands for a pooling that is learned
)

// smallGroup is the largest group.max of groups that Auto leaves to the law of single instances. In a small group one instance is a large
// part of the cost, and what a lean group saves it needs beside a neighbour: docs/results/group.md.
const smallGroup = 10

// In returns the pooling of a group that may have up to most instances.
func (p Pooling) In(most int) Pooling {
	if p.Auto {
		return Pooling{Learned: most > smallGroup}
	}
	return p
}

// On returns whether the group's size counts at all.
func (p Pooling) On() bool { return p.Learned || p.Told > 0 }

// told returns the pooling that a person set, nil if it is learned.
func (p Pooling) told() *float64 {
	if p.Learned {
		return nil
	}
	return &p.Told
}

// String is the setting as it is written.
func (p Pooling) String() string {
	switch {
	case p.Auto:
		return AutoWord
	case p.Learned:
		return learnedWord
	}
	return strconv.FormatFloat(p.Told, 'g', -1, 64)
}

func ParsePooling(text string) (Pooling, error) {
	switch text {
	case AutoWord:
		return Pooling{Auto: true}, nil
	case learnedWord:
		return Pooling{Learned: true}, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return Pooling{}, fmt.Errorf("%q is neither %s, %s nor a number from 0 to 1", text, AutoWord, learnedWord)
	}
	return Pooling{Told: v}, nil
}
