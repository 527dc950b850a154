package scenario

import (
	"cmp"
	"slices"
	"time"

	"github.com/quellhq/quell/setting"
)

// Release puts another release of the service on a host: a request to the instance there needs more or less of every resource.
type Release struct {
	Host   string
	Demand float64       // what a request needs, as a multiple of what the workload says
	Every  time.Duration // hosts with a common name get it one after the other at this distance; 0: all at once
}

// The accepted demands of a release.
const (
	leastDemand = 0.1
	mostDemand  = 10
)

func releaseKeys(r *Release) setting.Table {
	return setting.Table{
		setting.Req("host", setting.Ident(&r.Host), "the host, or the name of hosts with a count"),
		setting.Req("demand", setting.Decimal(&r.Demand), "what a request needs of every resource, as a multiple of what the workload says"),
		setting.Opt("every", setting.Duration(&r.Every),
			"hosts with a count get the release one after the other at this distance; 0s: all at once"),
	}
}

// HostRelease is the release that a host has from a moment on.
type HostRelease struct {
	Host   string
	At     time.Duration
	Demand float64
}

// Releases lists the releases of all hosts in order of time.
func (s *Scenario) Releases() []HostRelease {
	var all []HostRelease
	for _, e := range s.Timeline {
		if e.Release == nil {
			continue
		}
		for i, host := range s.hostsNamed(e.Release.Host) {
			all = append(all, HostRelease{host, e.At + time.Duration(i)*e.Release.Every, e.Release.Demand})
		}
	}
	slices.SortStableFunc(all, func(a, b HostRelease) int { return cmp.Compare(a.At, b.At) })
	return all
}

// release checks an event's release.
func (c *checker) release(s *Scenario, e Event, set map[change]bool, path string) {
	r := e.Release
	if r == nil {
		return
	}
	hosts := s.hostsNamed(r.Host)
	c.need(len(s.Hosts) == 0 || len(hosts) > 0, path+".host", "unknown host %q", r.Host)
	c.need(r.Demand >= leastDemand && r.Demand <= mostDemand, path+".demand",
		"must be between %g and %d, is %g", leastDemand, mostDemand, r.Demand)
	last := e.At + time.Duration(max(0, len(hosts)-1))*r.Every
	c.need(r.Every >= 0 && r.Every <= mostDuration, path+".every", "must be between 0s and %v, is %v", mostDuration, r.Every)
	c.need(r.Every <= 0 || r.Every > mostDuration || last <= s.Duration || s.Duration == unknownDuration, path+".every",
		"the last of %d hosts would get it at %v, after the end of the scenario (%v)", len(hosts), last, s.Duration)
	c.once(set, e.At, hosts, "release", path)
}
