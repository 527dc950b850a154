package daemon_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// pairs are all pairs of the three nodes.
var pairs = [][2]int{{0, 1}, {0, 2}, {1, 2}}

// between applies a function to both wires of a pair.
func (c *clustered) between(pair [2]int, do func(*wire)) {
	do(c.routes[pair])
	do(c.routes[[2]int{pair[1], pair[0]}])
}

// reach sends between two nodes until a message arrives, or until the given time has passed.
func (c *clustered) reach(from, to *natsNode, most time.Duration) bool {
	c.t.Helper()
	a, b := c.client(from), c.client(to)
	defer a.Close()
	defer b.Close()
	sub, err := b.SubscribeSync("reach")
	if err != nil {
		c.t.Fatal(err)
	}
	for deadline := time.Now().Add(most); time.Now().Before(deadline); {
		if err := a.Publish("reach", nil); err != nil {
			c.t.Fatal(err)
		}
		if _, err := sub.NextMsg(50 * time.Millisecond); err == nil {
			return true
		}
	}
	return false
}

func (c *clustered) client(n *natsNode) *nats.Conn {
	c.t.Helper()
	nc, err := nats.Connect("nats://"+n.Listen, nats.Timeout(patience))
	if err != nil {
		c.t.Fatal(err)
	}
	return nc
}

// partition is how long two nodes are separated: longer than elections take, and longer than a controller stays with a
// server whose store does not answer.
const partition = 7 * time.Second

// TestTwoServersOfTheBusAreApart separates each pair of the three servers, while both reach the third. At first they lose messages
// without noticing, then connections fail.
func TestTwoServersOfTheBusAreApart(t *testing.T) {
	t.Parallel()
	c := newClustered(t)
	for _, pair := range pairs {
		c.storeLeader(nil)
		c.gap()
		began := time.Now()
		c.between(pair, func(w *wire) { w.stall(true) })
		c.wantApart(pair)
		time.Sleep(partition/2 - time.Since(began))
		c.between(pair, func(w *wire) { w.cut(true); w.stall(false) })
		c.wantApart(pair)
		time.Sleep(partition - time.Since(began))
		c.between(pair, func(w *wire) { w.cut(false) })
		gap, healed := c.gap(), time.Now()
		c.wantTogether(pair)
		c.storeLeader(nil)
		c.leader(nil)
		gap = max(gap, c.gap())
		t.Logf("n%d and n%d apart for %s, whole %s later: no decision for %s", pair[0]+1, pair[1]+1, partition,
			time.Since(healed).Round(time.Millisecond), gap.Round(time.Millisecond))
		if gap > 2*mostGap { // elections on both sides, on a machine that may be busy
			t.Errorf("no decision for %s", gap)
		}
	}
	c.load.wantNoFailures()
	c.unwatch()
	c.wantRecord()
}

// wantApart checks that two nodes do not reach each other, and that both reach the third.
func (c *clustered) wantApart(pair [2]int) {
	c.t.Helper()
	a, b, third := c.nodes[pair[0]], c.nodes[pair[1]], c.nodes[3-pair[0]-pair[1]]
	if c.reach(a, b, 500*time.Millisecond) || c.reach(b, a, 500*time.Millisecond) {
		c.t.Errorf("%s and %s reach each other", a.Name, b.Name)
	}
	if !c.reach(a, third, patience) || !c.reach(third, b, patience) {
		c.t.Errorf("%s and %s do not both reach %s", a.Name, b.Name, third.Name)
	}
}

func (c *clustered) wantTogether(pair [2]int) {
	c.t.Helper()
	a, b := c.nodes[pair[0]], c.nodes[pair[1]]
	if !c.reach(a, b, patience) || !c.reach(b, a, patience) {
		c.t.Errorf("%s and %s do not reach each other", a.Name, b.Name)
	}
}
