package kernel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/vishvananda/netlink"
)

// interferer is the programs that use one resource for the neighbour, in the order in which they are stopped.
type interferer struct {
	share    float64
	own      bool // they belong to the instance itself
	programs []*process
}

// set makes a resource's interferer, or the instance's own programs, use a share of the resource.
func (m *Machine) set(resource quell.Resource, share float64, own bool) error {
	uses := m.uses
	if own {
		uses = m.works
	}
	now := uses[resource]
	if now != nil {
		if err := now.failed(); err != nil { // an ended program is reported once; the next call starts it again
			delete(uses, resource)
			return errors.Join(err, m.stop(now, resource))
		}
	}
	if now != nil && now.share == share {
		return nil
	}
	if now != nil && share > 0 && !own {
		if group, ok := quotaGroups[resource]; ok { // only its quota changes
			now.share = share
			return m.limit(group, share)
		}
	}
	if now != nil {
		delete(uses, resource)
		if err := m.stop(now, resource); err != nil {
			return err
		}
	}
	if share == 0 {
		return nil
	}
	next := &interferer{share: share, own: own}
	if err := m.start(next, resource); err != nil {
		return errors.Join(err, m.stop(next, resource))
	}
	uses[resource] = next
	return nil
}

// quotaGroups are the groups of the interferers whose share is set by a quota.
var quotaGroups = map[quell.Resource]string{quell.CPU: "nb-cpu", quell.Memory: "nb-memory"}

func (m *Machine) start(i *interferer, resource quell.Resource) error {
	switch resource {
	case quell.Network:
		return m.startNetwork(i)
	case quell.Disk:
		return m.startDisk(i)
	default:
		return m.startStress(i, resource)
	}
}

func (i *interferer) failed() error {
	var errs []error
	for _, p := range i.programs {
		errs = append(errs, p.failed())
	}
	return errors.Join(errs...)
}

// stop ends an interferer's programs, and every other process in the interferer's own group, because a program may have started others.
func (m *Machine) stop(i *interferer, resource quell.Resource) error {
	var errs []error
	for _, p := range i.programs {
		errs = append(errs, p.stop(syscall.SIGTERM, 500*time.Millisecond))
	}
	if group, ok := quotaGroups[resource]; ok && !i.own {
		_, err := killIn(nil, m.lab.groups.foldersOf(filepath.Join(base(m.lab.options.Prefix), m.ID, group)))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// run starts a program and puts it first in the interferer's list.
func (m *Machine) run(i *interferer, p Place, name, program string, args ...string) (*process, error) {
	if err := needPrograms(program); err != nil {
		return nil, err
	}
	r, err := launch(p, m.lab.options.Dir, m.ID+"-"+name, syscall.SIGKILL, program, args...)
	if err != nil {
		return nil, err
	}
	i.programs = append([]*process{r}, i.programs...)
	return r, nil
}

// The sizes of the interferer's datagrams. Full ones take the least processor time. iperf3 counts only their payload, but the link also
// carries the headers of UDP, IP and Ethernet.
const (
	datagram      = 1400
	datagramWire  = datagram + 8 + 20 + 14
	segment       = 1448
	segmentWire   = segment + 32 + 20 + 14
	portOfInvader = 5201
	portOfOwnWork = 5300 // plus the host's number
)

// startNetwork starts a receiver on the other side of the link, and a sender on the host. The sender wakes up once a millisecond: at 100
// Mbit/s it then sends nine datagrams, less than one congestion window of the service.
func (m *Machine) startNetwork(i *interferer) error {
	from, to, number, name, err := m.nb, m.sink, portOfInvader, "iperf3", error(nil)
	if i.own { // the sink counts what the neighbour sends
		number, name = portOfOwnWork+int(m.sink.address.As4()[2]), "own-iperf3"
		if from, err = m.lab.Place(m.ID, Instance); err != nil {
			return err
		}
		if to, err = m.lab.Place("", Client); err != nil {
			return err
		}
	}
	port := strconv.Itoa(number)
	sink, err := m.run(i, to, name+"-sink", "iperf3", "--server", "--one-off", "--bind", to.address.String(), "--port", port)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := sink.until(ctx, func() bool { return listens(sink.cmd.Process.Pid, number) }); err != nil {
		return err
	}
	_, err = m.run(i, from, name, "iperf3", networkArgs(to.address.String(), port, i.share*m.Network, m.lab.options.TCP)...)
	return err
}

// networkArgs are the arguments of an iperf3 that sends wire bit/s, including headers.
func networkArgs(to, port string, wire float64, tcp bool) []string {
	args := []string{"--client", to, "--port", port, "--time", "0", "--interval", "0", "--parallel", "1",
		"--pacing-timer", "1000"}
	if tcp {
		return append(args, "--bitrate", rate(wire*segment/segmentWire), "--length", "16K")
	}
	return append(args, "--udp", "--bitrate", rate(wire*datagram/datagramWire), "--length", strconv.Itoa(datagram))
}

func rate(bits float64) string { return strconv.FormatInt(int64(math.Round(bits)), 10) }

// startStress starts stress-ng with one worker per core of the host, in a group whose quota is the neighbour's share.
func (m *Machine) startStress(i *interferer, resource quell.Resource) error {
	if i.own {
		return m.startOwnStress(i)
	}
	group := quotaGroups[resource]
	if err := m.limit(group, i.share); err != nil {
		return err
	}
	place := m.nb
	place.group = m.ID + "/" + group
	_, err := m.run(i, place, "stress-ng-"+string(resource), "stress-ng", stressArgs(resource, m.lab.options.Dir, m.cores())...)
	return err
}

// startOwnStress starts stress-ng in the instance's group. Its workers compute for a part of the time, because the group has no quota of
// their own.
func (m *Machine) startOwnStress(i *interferer) error {
	place, err := m.lab.Place(m.ID, Instance)
	if err != nil {
		return err
	}
	workers := max(1, math.Ceil(m.cores()))
	load := math.Round(100 * i.share * m.cores() / workers)
	_, err = m.run(i, place, "own-stress-ng", "stress-ng", append(stressArgs(quell.CPU, m.lab.options.Dir, workers), "--cpu-load",
		strconv.Itoa(max(1, int(load))))...)
	return err
}

// streamCache is the cache size that stress-ng is told, whatever the machine has. stress-ng reads and writes three arrays of four times
// that size, divided among its workers. With the machine's own cache size they would be gigabytes on large processors, and filling and
// freeing them happens inside the kernel, where a quota has no effect.
const streamCache = "4M"

// stressArgs are the arguments of a stress-ng that uses a number of cores for processor time or for memory bandwidth.
func stressArgs(resource quell.Resource, dir string, cores float64) []string {
	workers := strconv.Itoa(max(1, int(math.Ceil(cores))))
	args := []string{"--quiet", "--temp-path", dir, "--timeout", "0"}
	if resource == quell.CPU {
		return append(args, "--cpu", workers, "--cpu-method", "int64")
	}
	return append(args, "--stream", workers, "--stream-l3-size", streamCache)
}

// limit limits a group of the neighbour to a share of the host's cores.
func (m *Machine) limit(group string, share float64) error {
	g := m.lab.groups
	if g.cpu == "" {
		return userErrorf("the kernel offers no cpu controller to hold the interferer to its share: mount cgroup version 2, or version 1 " +
			"with cpu (CONFIG_CFS_BANDWIDTH)")
	}
	return g.limitCPU(filepath.Join(base(m.lab.options.Prefix), m.ID, group), share*m.cores())
}

// startDisk starts fio, which reads a file of its own.
func (m *Machine) startDisk(i *interferer) error {
	const size = 16 << 20
	place, name := m.nb, "fio"
	if i.own {
		var err error
		if place, err = m.lab.Place(m.ID, Instance); err != nil {
			return err
		}
		name = "own-fio"
	}
	file := filepath.Join(m.lab.options.Dir, m.ID+"-"+name+".data")
	if err := fill(file, size); err != nil {
		return fmt.Errorf("writing the interferer's file: %w", err)
	}
	_, err := m.run(i, place, name, "fio", diskArgs(file, size, i.share*m.DiskIOPS, m.lab.options.DiskWrites)...)
	return err
}

// diskArgs are the arguments of a fio that reads iops blocks per second, at least one, and writes as many if writes is set. Beside
// applications, which write, operations come at random moments: the host's limit counts them in slices of 100 ms, and evenly spaced ones
// would never fill a slice.
func diskArgs(file string, size int, iops float64, writes bool) []string {
	access, rates := "randread", rate(math.Max(1, iops))
	var more []string
	if writes {
		access, rates, more = "randrw", rates+","+rates, []string{"--rate_process=poisson"}
	}
	return append([]string{
		"--name=interferer", "--filename=" + file, "--size=" + strconv.Itoa(size), "--rw=" + access, "--bs=4k", "--direct=1",
		"--ioengine=psync", "--thread", "--numjobs=1", "--rate_iops=" + rates, "--time_based", "--runtime=1000d", "--eta=never",
	}, more...)
}

// fill makes a file whose blocks are all on the disk. The time that this takes is not charged to the groups of service and neighbour.
func fill(path string, size int) error {
	if info, err := os.Stat(path); err == nil && info.Size() == int64(size) {
		return nil
	}
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i * 7)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}

// counters returns how many bytes a link of the calling thread's namespace has received and sent.
func counters(link string) (received, sent uint64, err error) {
	handle, err := netlink.NewHandle()
	if err != nil {
		return 0, 0, err
	}
	defer handle.Close()
	l, err := handle.LinkByName(link)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the counters of %s: %w", link, err)
	}
	s := l.Attrs().Statistics
	if s == nil {
		return 0, 0, fmt.Errorf("%s has no counters", link)
	}
	return s.RxBytes, s.TxBytes, nil
}
