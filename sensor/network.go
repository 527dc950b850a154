package sensor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// The names of the counters that Network adds to an observation: what the service itself sent and received, in bit/s.
const (
	CounterTx = quell.CounterSent
	CounterRx = quell.CounterReceived
)

// Network measures the service's own utilisation of a network interface: the larger of the rates sent and received, over the capacity. The
// bytes that the probe server sent are subtracted.
type Network struct {
	opts     Options
	capacity *float64 // bit/s, as configured
	last     *networkReading
}

// Link is the published bandwidth of an instance type, in bit/s.
type Link struct {
	Type            string  // "": not known
	Baseline, Burst float64 // 0: not published
}

// networkReading is the state of the counters at one moment.
type networkReading struct {
	at       time.Time
	iface    string
	capacity float64 // bit/s
	kernel   float64 // bit/s as the kernel says; 0: it does not say
	traffic  traffic
	probe    uint64 // bytes sent by the probe server
}

// NewNetwork returns a sensor of the interface o.Interface, or of the default route's. Without a default route, it is the only interface
// that has routes.
func NewNetwork(o Options) (*Network, error) {
	capacity, err := o.configured(quell.Network)
	if err != nil {
		return nil, err
	}
	return &Network{opts: o, capacity: capacity}, nil
}

// Name is "network".
func (n *Network) Name() string { return "network" }

// Sample implements Sensor. It looks up interface and capacity each time, because the network may come up late or change.
func (n *Network) Sample(now time.Time, obs *quell.Observation) error {
	before := n.last
	n.last = nil // after a failure below, the next call only sets the starting point: a reading covers exactly one window
	after, err := n.read(now)
	if err != nil {
		return err
	}
	n.last = after
	if before == nil {
		return nil
	}
	tx, rx, err := before.rates(after)
	if err != nil {
		return err
	}
	quell.Put(&obs.Counters, CounterTx, tx)
	quell.Put(&obs.Counters, CounterRx, rx)
	return setUtilization(obs, quell.Network, max(tx, rx), after.capacity, "bit/s")
}

// Interface returns the interface that was read last, and its capacity in bit/s; "" if the last reading failed.
func (n *Network) Interface() (name string, capacity float64) {
	if n.last == nil {
		return "", 0
	}
	return n.last.iface, n.last.capacity
}

// rates returns what the service sent and received between two readings, in bit/s.
func (before *networkReading) rates(after *networkReading) (tx, rx float64, err error) {
	if before.iface != after.iface {
		return 0, 0, fmt.Errorf("the default route moved from %s to %s: reading skipped", before.iface, after.iface)
	}
	seconds := after.at.Sub(before.at).Seconds()
	if seconds <= 0 {
		return 0, 0, errors.New("no time passed since the last reading: reading skipped")
	}
	if after.traffic.tx < before.traffic.tx || after.traffic.rx < before.traffic.rx || after.probe < before.probe {
		return 0, 0, fmt.Errorf("the counters of %s went back: reading skipped", after.iface)
	}
	sent := after.traffic.tx - before.traffic.tx
	// The probe server counts bytes when the kernel accepts them, a moment before the interface counts them.
	sent -= min(sent, after.probe-before.probe)
	received := after.traffic.rx - before.traffic.rx
	return float64(sent) * 8 / seconds, float64(received) * 8 / seconds, nil
}

func (n *Network) read(now time.Time) (*networkReading, error) {
	iface, err := n.findInterface()
	if err != nil {
		return nil, err
	}
	kernel, unknown := n.readSpeed(iface)
	capacity := kernel
	switch {
	case n.capacity != nil:
		capacity = *n.capacity
	case unknown != nil:
		return nil, &quell.UserError{Err: fmt.Errorf("agent.capacity.network: the capacity of interface %q cannot be detected: set it, as in "+
			"1Gbps: %w", iface, unknown)}
	}
	counters, err := n.readTraffic(iface)
	if err != nil {
		return nil, err
	}
	reading := &networkReading{at: now, iface: iface, capacity: capacity, kernel: kernel, traffic: counters}
	if n.opts.Exclude != nil {
		reading.probe = n.opts.Exclude()
	}
	return reading, nil
}

func (n *Network) readTraffic(iface string) (traffic, error) {
	const file = "proc/net/dev"
	text, err := fs.ReadFile(n.opts.Root, file)
	if err != nil {
		return traffic{}, fmt.Errorf("reading network counters: %w", err)
	}
	interfaces, err := parseNetDev(text)
	if err != nil {
		return traffic{}, fmt.Errorf("parsing /%s: %w", file, err)
	}
	counters, ok := interfaces[iface]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(interfaces)), ", ")
		return traffic{}, &quell.UserError{Err: fmt.Errorf("agent.interface: there is no network interface %q (there are: %s)", iface, known)}
	}
	return counters, nil
}

func (n *Network) findInterface() (string, error) {
	if n.opts.Interface != "" {
		return n.opts.Interface, nil
	}
	const file = "proc/net/route"
	text, err := fs.ReadFile(n.opts.Root, file)
	if err != nil {
		return "", fmt.Errorf("finding the interface of the default route (agent.interface names another): %w", err)
	}
	iface, err := parseRoute(text)
	if err != nil {
		return "", fmt.Errorf("parsing /%s: %w", file, err)
	}
	if iface == "" {
		return "", errors.New("there is no default route to tell the interface by, and not exactly one interface has routes: set agent.interface")
	}
	return iface, nil
}

// readSpeed returns the speed of an interface in bit/s, as its driver reports it. Drivers of virtual interfaces report none or make one up.
func (n *Network) readSpeed(iface string) (float64, error) {
	text, err := fs.ReadFile(n.opts.Root, "sys/class/net/"+iface+"/speed")
	if err != nil {
		return 0, err
	}
	return parseSpeed(text)
}

// mostApart is the factor by which two figures of the same capacity may differ.
const mostApart = 2

// Doubt returns why the capacity in use may be wrong: another figure differs from it by more than mostApart. It names all figures that are
// known. It returns "" if they agree, or the last reading failed.
func (n *Network) Doubt() string {
	if n.last == nil {
		return ""
	}
	used, kernel, link := n.last.capacity, n.last.kernel, n.opts.Link
	if n.capacity != nil && !apart(used, kernel) || n.capacity == nil && !apart(used, cmp.Or(link.Burst, link.Baseline)) {
		return ""
	}
	of := "as the kernel says"
	if n.capacity != nil {
		of = "as configured, and the kernel says " + mbits(kernel)
	}
	text := fmt.Sprintf("%s has %s %s", n.last.iface, mbits(used), of)
	if link.Baseline > 0 {
		text += fmt.Sprintf("; %s has a baseline of %s", link.Type, mbits(link.Baseline))
	}
	if link.Burst > 0 {
		text += fmt.Sprintf(" and a burst of %s", mbits(link.Burst))
	}
	if n.capacity == nil {
		return text + ": set agent.capacity.network"
	}
	return text + ": the configured figure is used"
}

// apart returns whether two figures differ by more than mostApart. 0 is a figure that is not known.
func apart(a, b float64) bool { return a > 0 && b > 0 && max(a, b) > mostApart*min(a, b) }

func mbits(bits float64) string { return fmt.Sprintf("%.0f Mbit/s", bits/1e6) }
