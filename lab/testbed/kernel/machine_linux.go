package kernel

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"

	"github.com/quellhq/quell"
)

// Machine is one physical machine of a lab. Its methods may be called concurrently.
type Machine struct {
	Host
	lab   *Lab
	nb    Place
	sink  Place
	mutex sync.Mutex
	uses  map[quell.Resource]*interferer // by the neighbour
	works map[quell.Resource]*interferer // by processes of the instance itself

	running map[Program]*interferer
}

func newMachine(l *Lab, h Host) (*Machine, error) {
	nb, err := l.Place(h.ID, Neighbour)
	if err != nil {
		return nil, err
	}
	sink, err := l.Place(h.ID, Sink)
	if err != nil {
		return nil, err
	}
	return &Machine{Host: h, lab: l, nb: nb, sink: sink, uses: map[quell.Resource]*interferer{}, works: map[quell.Resource]*interferer{},
		running: map[Program]*interferer{}}, nil
}

// cores is the number of cores that counts as the whole processor of the host: the host's limit, or one core if there is none. The number
// of cores of the real machine is not used, because a share would then mean something else on another machine.
func (m *Machine) cores() float64 {
	if m.Cores > 0 {
		return m.Cores
	}
	return 1
}

// Interfere makes the neighbour use these shares of the machine's resources, from 0 to 1. If a resource is left out, the neighbour does
// not use it. The shares are what the neighbour asks for; Carried returns what it got. A share of a resource that has no limit on this
// host is a *quell.UserError, and so is a program that is not installed. If a program has ended by itself since the last call, that is an
// error, once; the next call starts it again.
//
// The programs are, for network: iperf3, UDP or TCP, at the share of the link; for cpu: stress-ng with a quota of the share of the host's
// cores (of one core if they are not limited); for memory: stress-ng --stream on as many cores, over 48 MiB in all, with a quota of the
// share of these cores; for disk: fio, random reads of 4 KiB past the cache, at the share of the disk's limit.
func (m *Machine) Interfere(use map[quell.Resource]float64) error { return m.setAll(use, false) }

// Work makes processes of the instance itself, in its place and control group, use these shares of the machine's resources, as Interfere
// does for the neighbour. The link's bytes go to the clients' place. There is no such use of memory.
func (m *Machine) Work(use map[quell.Resource]float64) error {
	if use[quell.Memory] > 0 {
		return userErrorf("host %s: an instance's own work on its memory cannot be played", m.ID)
	}
	return m.setAll(use, true)
}

func (m *Machine) setAll(use map[quell.Resource]float64, own bool) error {
	for resource, share := range use {
		if err := m.checkUse(resource, share); err != nil {
			return err
		}
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var errs []error
	for _, resource := range quell.Resources {
		if err := m.set(resource, use[resource], own); err != nil {
			errs = append(errs, fmt.Errorf("host %s: interference on its %s: %w", m.ID, resource, err))
		}
	}
	return errors.Join(errs...)
}

func (m *Machine) checkUse(resource quell.Resource, share float64) error {
	if !slices.Contains(quell.Resources, resource) {
		return userErrorf("host %s: there is no interference on %q", m.ID, resource)
	}
	if !(share >= 0 && share <= 1) || math.IsNaN(share) {
		return userErrorf("host %s: interference of %v on its %s: give a share from 0 to 1", m.ID, share, resource)
	}
	if share == 0 {
		return nil
	}
	switch {
	case resource == quell.Network && m.Network == 0:
		return userErrorf("host %s: its network is not limited, so there is no share of it to use: give the host a bandwidth", m.ID)
	case resource == quell.Disk && m.DiskIOPS == 0:
		return userErrorf("host %s: its disk is not limited, so there is no share of it to use: give the host operations a second", m.ID)
	}
	return nil
}

// stopAll ends the interferers and programs.
func (m *Machine) stopAll() error {
	errs := []error{m.Run(nil)}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, resource := range quell.Resources {
		errs = append(errs, m.set(resource, 0, false), m.set(resource, 0, true))
	}
	return errors.Join(errs...)
}

// Carried returns the work of the shaped link since the lab was made, in seconds of the whole link: for the service (including answers to
// probes), and for the interferer as its receiver counted it. Bytes include all headers. Both values are 0 if the host's network is not
// limited.
func (m *Machine) Carried() (own, interfering float64, err error) {
	if m.Network == 0 {
		return 0, 0, nil
	}
	var received, sent uint64
	err = m.sink.Do(func() (err error) {
		received, _, err = counters(cardName)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	host := Place{namespace: m.lab.options.Prefix + "-" + m.ID, prefix: m.lab.options.Prefix}
	err = host.Do(func() (err error) {
		_, sent, err = counters(uplinkName)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	// The receiver's counter was read first, so bytes that arrived in between count for the service or for the next reading.
	return float64(sent-min(sent, received)) * 8 / m.Network, float64(received) * 8 / m.Network, nil
}

// MemoryCarried returns processor time in place of memory traffic, which no counter measures: that of the service and of the memory's
// interferer, in seconds of all of the host's cores (of one core if they are not limited).
func (m *Machine) MemoryCarried() (own, interfering float64, err error) {
	top := filepath.Join(base(m.lab.options.Prefix), m.ID)
	own, errOwn := m.lab.groups.used(filepath.Join(top, "vm"))
	interfering, err = m.lab.groups.used(filepath.Join(top, quotaGroups[quell.Memory]))
	return own / m.cores(), interfering / m.cores(), errors.Join(errOwn, err)
}

// DiskCarried returns the disk operations of the service's and the neighbour's processes that run now, in seconds of the disk's limit; 0
// if the disk is not limited. The processes' own counters are used, because with cgroup version 1 service and neighbour are in one group,
// which has only one counter.
func (m *Machine) DiskCarried() (own, interfering float64, err error) {
	if m.DiskIOPS == 0 {
		return 0, 0, nil
	}
	top := filepath.Join(base(m.lab.options.Prefix), m.ID)
	own, err = m.lab.groups.operations(filepath.Join(top, "vm"))
	for _, group := range neighbours {
		did, errGroup := m.lab.groups.operations(filepath.Join(top, group))
		interfering += did
		err = errors.Join(err, errGroup)
	}
	if m.lab.options.DiskWrites { // interferers use the limits of reads and of writes alike
		interfering /= 2
	}
	return own / m.DiskIOPS, interfering / m.DiskIOPS, err
}

// CPUCarried returns the processor time that service and neighbour have used since the lab was made, in seconds of all of the host's
// cores (of one core if they are not limited).
func (m *Machine) CPUCarried() (own, interfering float64, err error) {
	top := filepath.Join(base(m.lab.options.Prefix), m.ID)
	own, err = m.lab.groups.used(filepath.Join(top, "vm"))
	for _, group := range neighbours {
		used, errGroup := m.lab.groups.used(filepath.Join(top, group))
		interfering += used
		err = errors.Join(err, errGroup)
	}
	return own / m.cores(), interfering / m.cores(), err
}
