package emulated

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/quellhq/quell"
)

// The defaults of InterfererOptions.
const (
	defaultFlowBytes = 16 << 10
	defaultBacklog   = 5 * time.Second
)

// neighbours is the Poisson process of an Interferer, without clock and link. Gaps have rate one in rescaled time. So a change of the
// rate takes effect at once, and the time since the last flow still counts towards the next one.
type neighbours struct {
	flowBytes int64
	rng       *rand.Rand
	perSecond float64
	from      time.Duration // time from which gap counts
	gap       float64       // what is left of the gap, in rescaled time, at from
}

func newNeighbours(flowBytes int64, seed uint64) *neighbours {
	rng := rand.New(rand.NewPCG(seed, 1))
	return &neighbours{flowBytes: flowBytes, rng: rng, gap: rng.ExpFloat64()}
}

func (n *neighbours) next() (time.Duration, bool) {
	after := n.gap / n.perSecond * float64(time.Second)
	if !(after < float64(math.MaxInt64-n.from)) {
		return 0, false // at rate 0 no flow comes
	}
	return n.from + time.Duration(after), true
}

func (n *neighbours) take() int64 {
	if at, ok := n.next(); ok {
		n.from, n.gap = at, n.rng.ExpFloat64()
	}
	return n.flowBytes
}

// setRate changes the rate, in flows per second. The caller must have taken every arrival up to now.
func (n *neighbours) setRate(now time.Duration, perSecond float64) {
	n.gap = max(0, n.gap-(now-n.from).Seconds()*n.perSecond)
	n.from, n.perSecond = now, perSecond
}

// InterfererOptions describes the neighbours on one physical machine.
type InterfererOptions struct {
	Link      *Link
	FlowBytes int64         // of each flow; default 16 KiB
	Backlog   time.Duration // if the waiting flows would take the whole link longer than about this, new flows are dropped; default 5 s
	Seed      uint64
}

// Interferer puts the flows of other tenants on a link. They arrive at random (Poisson), whatever the other flows on the link do. These
// flows have no sockets: they only take time of the link.
type Interferer struct {
	link  *Link
	flows *neighbours
}

// NewInterferer attaches an interferer with a use of 0 to the link. A link has at most one.
func NewInterferer(o InterfererOptions) (*Interferer, error) {
	if o.FlowBytes == 0 {
		o.FlowBytes = defaultFlowBytes
	}
	if o.Backlog == 0 {
		o.Backlog = defaultBacklog
	}
	if o.FlowBytes < 0 || o.Backlog < 0 {
		return nil, &quell.InvalidError{Path: "interferer", Problem: "flow size and backlog must be positive"}
	}
	room := int64(o.Backlog.Seconds() * float64(o.Link.sched.bitsPerSecond) / 8)
	if o.FlowBytes > room {
		problem := fmt.Sprintf("a flow of %d bytes takes the link longer than the backlog of %v", o.FlowBytes, o.Backlog)
		return nil, &quell.InvalidError{Path: "interferer", Problem: problem}
	}
	i := &Interferer{link: o.Link, flows: newNeighbours(o.FlowBytes, o.Seed)}
	l := o.Link
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sched.source != nil {
		return nil, fmt.Errorf("attaching an interferer: the link has one already")
	}
	i.flows.from = l.now()
	l.sched.source = i.flows
	l.sched.maxWaiting = room
	return i, nil
}

// SetUse sets the mean share of the link that the flows ask for, at once; at 0 no new flows arrive. If the link is full, the flows can
// carry less than they ask for.
func (i *Interferer) SetUse(use float64) error {
	if !(use >= 0) || math.IsInf(use, 0) {
		return &quell.InvalidError{Path: "use", Problem: fmt.Sprintf("%v: must be a finite share of the link, 0 or more", use)}
	}
	l := i.link
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.advance(now)
	i.flows.setRate(now, use*float64(l.sched.bitsPerSecond)/8/float64(i.flows.flowBytes))
	l.arm(now)
	return nil
}
