package sensor

import (
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

// networkReading is the state of the counters at one moment.
type networkReading struct {
	at       time.Time
	iface    string
	capacity float64 // bit/s
	traffic  traffic
	probe    uint64 // bytes sent by the probe server
}

// NewNetwork returns a sensor of the interface o.Interface, or of the default route's interface.
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
	if obs.Counters == nil {
		obs.Counters = map[string]float64{}
	}
	obs.Counters[CounterTx], obs.Counters[CounterRx] = tx, rx
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
	capacity, err := n.findCapacity(iface)
	if err != nil {
		return nil, err
	}
	counters, err := n.readTraffic(iface)
	if err != nil {
		return nil, err
	}
	reading := &networkReading{at: now, iface: iface, capacity: capacity, traffic: counters}
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
		return "", errors.New("there is no default route to tell the interface by: set agent.interface")
	}
	return iface, nil
}

func (n *Network) findCapacity(iface string) (float64, error) {
	if n.capacity != nil {
		return *n.capacity, nil
	}
	text, err := fs.ReadFile(n.opts.Root, "sys/class/net/"+iface+"/speed")
	var capacity float64
	if err == nil {
		capacity, err = parseSpeed(text)
	}
	if err != nil {
		return 0, &quell.UserError{Err: fmt.Errorf("agent.capacity.network: the capacity of interface %q cannot be detected: set it, as in "+
			"1Gbps: %w", iface, err)}
	}
	return capacity, nil
}
