package model

import (
	"testing"

	"github.com/quellhq/quell"
)

// Of two types with about as many windows one stays the base type, in whose units loads are. Another one takes its place when it clearly
// has more.
func TestTheBaseTypeStays(t *testing.T) {
	w := newLawWorld(62)
	var l *Learner
	learn := func(p int, kind string) string {
		list := three(p)
		for i := range list {
			list[i].kind = kind
		}
		l = l.Learn(w.snapshot(list...), learnedSLO)
		return l.Live().bestType(quell.Network)
	}
	for p := range 8 {
		learn(p, "small")
	}
	for p := range 8 {
		if got := learn(p, "big"); got != "small" {
			t.Fatalf("period %d: %s is the base type", p, got)
		}
	}
	for p := range 6 {
		for _, kind := range []string{"big", "small"} { // 25 windows against 24, 27 against 27
			if got := learn(p+1, kind); got != "small" {
				t.Fatalf("when all have about as many windows, and period %d of %s is learned, %s is the base type", p, kind, got)
			}
		}
	}
	for p := range 20 {
		learn(p, "big")
	}
	n := func(kind string) int { return l.Seen[quell.Network][kind].Law.N }
	if got := l.Live().bestType(quell.Network); got != "big" || n("big") <= n("small")*3/2 {
		t.Errorf("%d windows of big and %d of small: %s is the base type", n("big"), n("small"), got)
	}
}

// A base type of which no instance is left is none any more, although the type in its place has no more windows than it had.
func TestAGoneTypeIsNoBase(t *testing.T) {
	w := newLawWorld(63)
	var l *Learner
	learn := func(periods int, kind string) {
		for p := range periods {
			list := three(p % 3)
			for i := range list {
				list[i].kind = kind
			}
			l = l.Learn(w.snapshot(list...), learnedSLO)
		}
	}
	learn(60, "small")
	learn(60, "big")
	if got := l.Live().bestType(quell.Network); got != "small" {
		t.Errorf("while the other may come back, %s is the base type", got)
	}
	learn(lately, "big")
	n := func(kind string) int { return l.Seen[quell.Network][kind].Law.N }
	if got := l.Live().bestType(quell.Network); got != "big" || 2*n("big") > 3*n("small") {
		t.Errorf("%d windows of big and %d of small, which is gone: %s is the base type", n("big"), n("small"), got)
	}
}
