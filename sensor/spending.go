package sensor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/cgroup"
)

// SpendingOptions say whose use is measured.
type SpendingOptions struct {
	Options        // of these, Root, Interface and Cgroup are used
	Disk    string // major:minor of the disk whose operations count; empty: none
	Port    int    // TCP port whose connections are counted; 0: none
}

// Spending measures how much an instance uses of what can cost credits: processors, what its interface sends and receives, and operations
// of a disk, all per second. It also counts the connections that clients have open to a port. The result is in the counters of an
// observation. A machine whose interface cannot be told has no figures of the network.
type Spending struct {
	opts    SpendingOptions
	network *Network
	at      time.Time
	iface   string             // whose traffic was read last
	last    map[string]float64 // amounts since a fixed moment, by counter; nil before the first sample
}

// NewSpending returns a sensor of the machine or, if o.Cgroup is set, of that control group.
func NewSpending(o SpendingOptions) *Spending {
	return &Spending{opts: o, network: &Network{opts: o.Options}}
}

// Name is "spending".
func (s *Spending) Name() string { return "spending" }

// Sample implements Sensor. What cannot be read is part of the error, and the rest is reported.
func (s *Spending) Sample(now time.Time, obs *quell.Observation) error {
	next, iface, err := s.read()
	before, seconds := s.last, now.Sub(s.at).Seconds()
	if iface != s.iface { // the default route has moved: what two interfaces have sent says nothing
		delete(before, CounterTx)
		delete(before, CounterRx)
	}
	s.at, s.last, s.iface = now, next, iface
	if obs.Counters == nil {
		obs.Counters = map[string]float64{}
	}
	for name, sum := range next {
		if was, known := before[name]; known && sum >= was && seconds > 0 {
			obs.Counters[name] = (sum - was) / seconds
		}
	}
	if s.opts.Port == 0 {
		return err
	}
	n, errPort := s.Connections()
	if errPort == nil {
		obs.Counters[quell.CounterConnections] = float64(n)
	}
	return errors.Join(err, errPort)
}

// read returns the amounts since a fixed moment, and the interface that was read.
func (s *Spending) read() (sums map[string]float64, iface string, err error) {
	sums = map[string]float64{}
	used, errCPU := s.processorSeconds()
	if errCPU == nil {
		sums[quell.CounterProcessors] = used
	}
	iface, errNetwork := s.network.findInterface()
	if errNetwork != nil && s.opts.Interface == "" {
		errNetwork = nil
	} else if errNetwork == nil {
		var t traffic
		if t, errNetwork = s.network.readTraffic(iface); errNetwork == nil {
			sums[CounterTx], sums[CounterRx] = 8*float64(t.tx), 8*float64(t.rx)
		}
	}
	if s.opts.Disk == "" {
		return sums, iface, errors.Join(errCPU, errNetwork)
	}
	disks, errDisk := s.disks()
	if errDisk == nil {
		sums[quell.CounterOperations] = float64(disks[s.opts.Disk].operations)
	}
	return sums, iface, errors.Join(errCPU, errNetwork, errDisk)
}

// ticksPerSecond is the unit of /proc/stat on every Linux (USER_HZ).
const ticksPerSecond = 100

func (s *Spending) processorSeconds() (float64, error) {
	if s.opts.Cgroup == "" {
		m, err := readProcessors(s.opts.Root)
		if m == nil {
			return 0, err
		}
		return float64(m.ticks.user+m.ticks.system) / ticksPerSecond, nil
	}
	group := &cgroupAccount{root: s.opts.Root, name: s.opts.Cgroup}
	layout, err := group.layout()
	if err != nil {
		return 0, err
	}
	used, err := layout.used()
	if err != nil {
		return 0, group.failed(err)
	}
	return used.Seconds(), nil
}

// disks returns what each disk has done for the machine or for the control group. For the own group, it is the group that the kernel counts
// disk operations for, which may be one above.
func (s *Spending) disks() (map[string]diskUse, error) {
	d := &Disk{opts: s.opts.Options}
	if s.opts.Cgroup != OwnCgroup {
		return d.read()
	}
	own, err := cgroup.Own(s.opts.Root, "proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	_, tree, err := diskTree(s.opts.Root)
	if err != nil {
		return nil, err
	}
	d.opts.Cgroup = own[tree.Controller]
	return d.read()
}

// Connections counts the connections that clients have open to the port at present.
func (s *Spending) Connections() (n int, err error) {
	for _, file := range []string{"proc/net/tcp", "proc/net/tcp6"} {
		text, err := fs.ReadFile(s.opts.Root, file)
		if errors.Is(err, fs.ErrNotExist) && file == "proc/net/tcp6" { // a kernel without IPv6
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("counting connections: %w", err)
		}
		found, err := parseConnections(text, s.opts.Port)
		if err != nil {
			return 0, fmt.Errorf("parsing /%s: %w", file, err)
		}
		n += found
	}
	return n, nil
}

// parseConnections reads /proc/net/tcp: a heading, then lines of number, local address and port, remote address and port, and state.
func parseConnections(text []byte, port int) (n int, err error) {
	const established = "01"
	first := true
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if first || len(fields) == 0 {
			first = false
			continue
		}
		if len(fields) < 4 {
			return 0, fmt.Errorf("want at least 4 columns, got %q", line)
		}
		_, hex, _ := bytes.Cut(fields[1], []byte(":"))
		local, err := strconv.ParseUint(string(hex), 16, 16)
		if err != nil {
			return 0, fmt.Errorf("local port: %w", err)
		}
		if int(local) == port && string(fields[3]) == established {
			n++
		}
	}
	return n, nil
}
