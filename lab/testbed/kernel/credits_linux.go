package kernel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/quellhq/quell"
)

// noticeable is by how much a limit must change to be set again, as a fraction.
const noticeable = 0.02

// KeepCredits makes an instance burstable until ctx ends: at each count, the resource of its host is limited to what the bucket allows. The
// limit is the host's and not the instance's, so that the instance feels it and cannot read it. Nothing else may use that resource of the
// host. At the end the host has all of it again.
func (b Burstable) KeepCredits(ctx context.Context) (err error) {
	m, err := b.meter()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.limit(b.TokenBucket.bucket.Burst), m.close()) }()
	ticker := time.NewTicker(counting)
	defer ticker.Stop()
	limit := 0.0
	for {
		used, err := m.used()
		if err != nil {
			return fmt.Errorf("counting the credits of host %s: %w", b.Host, err)
		}
		now := time.Now()
		allowed := b.TokenBucket.Count(now, used, counting)
		if math.Abs(allowed-limit) > noticeable*limit {
			if err := m.limit(allowed); err != nil {
				return fmt.Errorf("limiting the %s of host %s, which has %.3g credits: %w", b.Resource, b.Host, b.TokenBucket.Balance(), err)
			}
			limit = allowed
		}
		if b.Counted != nil {
			b.Counted(Counted{At: now, Used: used, Balance: b.TokenBucket.Balance(), Slow: b.TokenBucket.Slow()})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// meter counts what an instance uses of one resource, and limits its host.
type meter interface {
	// used returns the amount since a fixed moment: processor seconds, bits or operations.
	used() (float64, error)
	// limit allows an amount per second.
	limit(amount float64) error
	close() error
}

func (b Burstable) meter() (meter, error) {
	g, err := findGroups(machine)
	if err != nil {
		return nil, err
	}
	top := filepath.Join(base(b.Prefix), b.Host)
	switch b.Resource {
	case quell.CPU:
		return cpuMeter{g, top}, nil
	case quell.Network:
		return newLinkMeter(b.Prefix, b.Host)
	case quell.Disk:
		device, err := diskOf(b.Folder)
		return diskMeter{g, top, device}, err
	}
	return nil, fmt.Errorf("an emulated instance cannot have credits of %q", b.Resource)
}

// cpuMeter counts the processor time of the instance's group.
type cpuMeter struct {
	groups groups
	top    string // the host's group
}

func (m cpuMeter) used() (float64, error)     { return m.groups.used(filepath.Join(m.top, "vm")) }
func (m cpuMeter) limit(amount float64) error { return m.groups.limitCPU(m.top, amount) }
func (m cpuMeter) close() error               { return nil }

// linkMeter counts what the instance sends: what its port of the host's bridge receives. It limits the host's link.
type linkMeter struct {
	handle *netlink.Handle
	port   string
	uplink netlink.Link
}

func newLinkMeter(prefix, host string) (meter, error) {
	ns, err := netns.GetFromName(prefix + "-" + host)
	if err != nil {
		return nil, fmt.Errorf("opening the namespace of host %s: %w", host, err)
	}
	defer ns.Close()
	m := &linkMeter{port: string(Instance)}
	if m.handle, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	if m.uplink, err = m.handle.LinkByName(uplinkName); err != nil {
		return nil, errors.Join(fmt.Errorf("host %s: %w", host, err), m.close())
	}
	return m, nil
}

func (m *linkMeter) used() (float64, error) {
	port, err := m.handle.LinkByName(m.port)
	if err != nil {
		return 0, err
	}
	counts := port.Attrs().Statistics
	if counts == nil {
		return 0, fmt.Errorf("%s has no counters", m.port)
	}
	return float64(counts.RxBytes) * 8, nil
}

func (m *linkMeter) limit(amount float64) error {
	return m.handle.QdiscChange(shaper(m.uplink, amount, fullWindow))
}

func (m *linkMeter) close() error {
	m.handle.Close()
	return nil
}

// diskMeter counts the operations of the instance's group on one disk, reads and writes together.
type diskMeter struct {
	groups groups
	top    string // the host's group
	device string // major:minor
}

func (m diskMeter) used() (float64, error) {
	file := filepath.Join(m.top, "blkio.throttle.io_serviced") // with version 1, service and neighbour are in the host's group
	if m.groups.version == 2 {
		file = filepath.Join(m.top, "vm", "io.stat")
	}
	text, err := os.ReadFile(filepath.Join(m.groups.io, file))
	if err != nil {
		return 0, err
	}
	return operationsOn(m.device, string(text))
}

func (m diskMeter) limit(amount float64) error { return m.groups.limitDisk(m.top, m.device, amount) }
func (m diskMeter) close() error               { return nil }

// operationsOn returns the reads and writes of one disk from io.stat ("8:0 rbytes=1 wbytes=2 rios=3 wios=4") or from
// blkio.throttle.io_serviced ("8:0 Read 3" and "8:0 Write 4"). A disk that was not used yet is missing there.
func operationsOn(device, text string) (sum float64, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != device {
			continue
		}
		if fields[1] == "Read" || fields[1] == "Write" {
			fields = []string{device, "rios=" + fields[len(fields)-1]}
		}
		for _, field := range fields[1:] {
			name, count, _ := strings.Cut(field, "=")
			if name != "rios" && name != "wios" {
				continue
			}
			n, err := strconv.ParseUint(count, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("operations of disk %s: %w", device, err)
			}
			sum += float64(n)
		}
	}
	return sum, nil
}
