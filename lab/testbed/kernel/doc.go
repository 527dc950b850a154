// Package kernel makes several physical machines out of one Linux kernel, for experiments as root. A host is a network namespace behind a
// link that is shaped by a token bucket, and a cgroup with a processor quota and a disk limit. The host has two virtual machines, the
// service's and its neighbour's; each is a namespace and a cgroup below the host's. The two share link, processors and disk like
// neighbours on one machine.
//
// Everything is made by library calls and has names with a prefix, so that Clean finds what a killed run left behind. Links are made
// inside the lab's own namespaces; the machine's own network is never changed. docs/lab.md has a picture.
package kernel

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/quellhq/quell"
)

// DefaultPrefix is used when no prefix is set.
const DefaultPrefix = "quell"

// Options configure a lab.
type Options struct {
	// Prefix is the beginning of every name. Labs with different prefixes may exist at the same time.
	Prefix string
	// Dir is the folder for configurations, content and logs. It is made if it is missing. It is not removed unless it is below RunDir.
	Dir string
	// Hosts are the physical machines.
	Hosts []Host
	// TCP makes the network's interferers send TCP instead of UDP, at the same rate, so that they send less when the link is full.
	TCP bool
	// DiskWrites makes the disk's interferers write as often as they read, because a host's disk limits both by themselves.
	DiskWrites bool
	// Programs are the programs that neighbours will run; their data is made with the lab.
	Programs []Program
}

// Host is one physical machine. A limit of 0 means no limit.
type Host struct {
	ID       string  // h1 to h254: the number is part of the host's addresses
	Network  float64 // bit/s of the link to the other machines, in the direction away from the host
	Cores    float64 // processors that service and neighbour share
	DiskIOPS float64 // reads per second, and likewise writes, on the disk that contains Dir
}

var (
	// Neither a prefix nor a host's id contains a dash, so that two prefixes never give the same name.
	prefixPattern = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}$`)
	hostPattern   = regexp.MustCompile(`^h([1-9][0-9]{0,2})$`)
)

func checkPrefix(prefix string) error {
	if !prefixPattern.MatchString(prefix) {
		return userErrorf("prefix %q: give at most 32 small letters and digits, beginning with a letter, as in quell", prefix)
	}
	return nil
}

func (o Options) check() error {
	if err := checkPrefix(o.Prefix); err != nil {
		return err
	}
	if o.Dir == "" {
		return errors.New("a lab needs a folder (Options.Dir)")
	}
	if len(o.Hosts) == 0 {
		return userErrorf("a lab needs at least one host")
	}
	seen := map[string]bool{}
	for _, h := range o.Hosts {
		if err := h.Check(); err != nil {
			return err
		}
		if seen[h.ID] {
			return userErrorf("host %s is there twice", h.ID)
		}
		seen[h.ID] = true
	}
	return nil
}

// Grace is how long the server of an instance may take to finish open requests when it is stopped.
const Grace = 5 * time.Second

// Check returns what is wrong with a host, as a *quell.UserError.
func (h Host) Check() error {
	if _, err := hostNumber(h.ID); err != nil {
		return err
	}
	const slowest, fastest = 1e6, 100e9 // bit/s; slower ones carry about a packet per second, and faster ones exceed the kernel's counters
	if h.Network != 0 && !(h.Network >= slowest && h.Network <= fastest) {
		return userErrorf("host %s: a network of %g bit/s: give 0 for no limit, or 1 Mbit/s to 100 Gbit/s", h.ID, h.Network)
	}
	const fewest = 0.05 // of a core: the kernel enforces no quota below 1 ms in 20 ms
	if h.Cores != 0 && !(h.Cores >= fewest && h.Cores <= 1024) {
		return userErrorf("host %s: %g cores: give 0 for no limit, or 0.05 to 1024", h.ID, h.Cores)
	}
	if h.DiskIOPS != 0 && !(h.DiskIOPS >= 1 && h.DiskIOPS <= math.MaxUint32) {
		return userErrorf("host %s: %g disk operations a second: give 0 for no limit, or at least 1", h.ID, h.DiskIOPS)
	}
	return nil
}

func userErrorf(format string, args ...any) error {
	return &quell.UserError{Err: fmt.Errorf(format, args...)}
}
