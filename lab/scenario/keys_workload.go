package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

func blankWorkload() Workload {
	return Workload{
		Kind: File, Arrivals: Poisson, Video: DefaultVideo(),
		Spread: Exponential, System: 0.25, CacheStretch: 1, Think: 5 * time.Second,
	}
}

func workloadKeys(w *Workload) setting.Table {
	return setting.Table{
		setting.Opt("kind", setting.OneOf(&w.Kind,
			Kinds),
			"file: one object of fixed size; video: sessions that fetch a video in chunks; classes: kinds of requests with demands of their "+
				"own; users: the same, from users who think in between"),
		setting.Opt("arrivals", arrivals(&w.Arrivals),
			"poisson (or exponential), deterministic, bursty (at random, 5 at once on average), synchronised (20 at once, at equal gaps), or "+
				"ramp: poisson with a sudden step; not for users"),
		setting.Opt("load", setting.Decimal(&w.Load),
			"load at the start, in units of one undisturbed instance; not for users").Or("required but for users"),
		setting.Opt("ramp", setting.Maybe(&w.Step, rampKeys), "arrivals: ramp: the step"),
		setting.Opt("size", setting.Size(&w.Size), "file: size of one response").Or("required for a file"),
		setting.Opt("video", videoKeys(&w.Video), "video: what a session is like"),
		setting.Opt("classes", setting.ListOf(&w.Classes, Class{Share: 1}, func(c *Class) setting.Value { return classKeys(c) }).AtLeast(1),
			"classes and users: the kinds of requests").Or("required for classes and users"),
		setting.Opt("recorded", setting.FileOf(&w.Recorded, "recorded load", parseRecorded),
			"classes: CSV file with a recorded load, instead of load and the classes' shares: a heading of seconds and the classes' names, "+
				"and lines with the requests per second of each; in the scenario file's folder"),
		setting.Opt("application", setting.OneOf(&w.Application, slices.Sorted(maps.Keys(Applications))),
			"classes and users: the real application that answers them in a lab, whose pages are the classes' names").Or("`quell lab work`"),
		setting.Opt("spread", setting.OneOf(&w.Spread, Spreads), "classes and users: demands are exponential around their mean, or fixed"),
		setting.Opt("system", setting.Share(&w.System), "classes and users: the kernel's share of the processors' time"),
		setting.Opt("cache_stretch", setting.Decimal(&w.CacheStretch),
			"classes and users: neighbours on memory lengthen processor time by 1 + this * their use"),
		setting.Opt("users", setting.Whole(&w.Users), "users: how many at the start").Or("required for users"),
		setting.Opt("think", setting.Duration(&w.Think), "users: mean of the exponential time between an answer and the next request"),
	}
}

func rampKeys(step *Step) setting.Table {
	return setting.Table{
		setting.Req("at", setting.Duration(&step.At), "when the load changes, since the start"),
		setting.Req("load", setting.Decimal(&step.Load), "load from then on"),
	}
}

func videoKeys(v *VideoSessions) setting.Table {
	return setting.Table{
		setting.Opt("videos", setting.Whole(&v.Videos), "number of videos to choose from; their sizes are exponential"),
		setting.Opt("zipf", setting.Decimal(&v.Zipf), "exponent of their popularity"),
		setting.Opt("sessions", setting.Whole(&v.Sessions), "number of sessions drawn beforehand, from which the arriving ones are chosen"),
		setting.Opt("size", setting.Size(&v.Size), "mean bytes of a session's video"),
		setting.Opt("rate", setting.Bandwidth(&v.Rate), "bandwidth at which a video plays"),
		setting.Opt("chunk", setting.Duration(&v.Chunk), "play time of one chunk"),
		setting.Opt("prefetch", setting.Whole(&v.Prefetch), "chunks at the start without pause; the others follow at the pace of play"),
	}
}

func classKeys(c *Class) setting.Table {
	return setting.Table{
		setting.Req("name", setting.Ident(&c.Name), "name of the class"),
		setting.Opt("share", setting.Decimal(&c.Share), "share of the requests, relative to the other classes' shares"),
		setting.Opt("cpu", setting.Duration(&c.CPU), "mean time on one core"),
		setting.Opt("disk", setting.Decimal(&c.Disk), "mean number of disk operations"),
		setting.Opt("memory", setting.Duration(&c.Memory), "mean time for which a request uses the reference machine's whole memory bandwidth"),
		setting.Opt("network", setting.Size(&c.Network), "mean size of the answer"),
	}
}

func readingsKeys(r *Readings) setting.Table {
	return setting.Table{
		setting.Opt("noise", setting.Share(&r.Noise), "standard deviation of utilisations and probes, as a share of themselves"),
		setting.Opt("lost", setting.Share(&r.Lost), "share of the machines' readings that never arrive"),
		setting.Opt("late", setting.Duration(&r.Late), "mean delay of the readings that arrive, exponentially distributed"),
	}
}

func stationsKeys(s *Stations) setting.Table {
	return setting.Table{
		setting.Opt("discipline", setting.OneOf(&s.Discipline, Disciplines),
			"sharing: all open work advances at once, at equal speed; "+
				"fcfs: first come, first served, one at a time (on each core)").Or("`sharing`"),
		setting.Opt("neighbours", setting.OneOf(&s.Neighbours, NeighbourKinds),
			"flows: they come at random and compete with requests; "+
				"fluid: neighbours take a steady share, which is faster and varies less").Or("`flows`"),
	}
}

func probingKeys(p *Probing) setting.Table {
	return setting.Table{
		setting.Opt("count", setting.Whole(&p.Count).AtLeast(LeastProbes),
			"number of probes of an instance in each sampling period").Or("one in 100ms, and at least 8"),
		setting.Opt("budget", setting.Share(&p.Budget), "share of a host's link that probes may take").Or("`2%`"),
		setting.Opt("resources", setting.Words(p.Resources, func(words []quell.Resource) { p.Resources = words }, quell.Resources, everyResource),
			"what is probed: network, cpu, disk or memory, a list of them, or auto: all that requests or neighbours contend for").Or("`network`"),
	}
}

// everyResource means, in a file, all resources that the workload uses and all in which neighbours affect its requests.
const everyResource quell.Resource = "auto"

// contended lists the resources that requests use. It adds memory if neighbours use memory and thereby lengthen the requests' processor
// time.
func (s *Scenario) contended() []quell.Resource {
	demands := s.Workload.Demands(Host{Network: 1, Cores: 1, DiskIOPS: 1, Memory: 1})
	stretched := demands[quell.CPU] > 0 && s.Workload.CacheStretch > 0
	var list []quell.Resource
	for _, r := range quell.Resources {
		if demands[r] > 0 || r == quell.Memory && stretched && s.interferes(r) {
			list = append(list, r)
		}
	}
	return list
}

// interferes says whether the timeline has neighbours on a resource.
func (s *Scenario) interferes(r quell.Resource) bool {
	return slices.ContainsFunc(s.Timeline, func(e Event) bool { return e.Interfere != nil && e.Interfere.Resource == r })
}

// parts lists which kinds of workloads have which keys, and whether these keys are required.
var parts = []struct {
	key      string
	kinds    []Kind
	required bool
}{
	{"arrivals", []Kind{File, Video, Classes}, false},
	{"load", []Kind{File, Video, Classes}, true},
	{"ramp", []Kind{File, Video, Classes}, false},
	{"size", []Kind{File}, true},
	{"video", []Kind{Video}, false},
	{"classes", []Kind{Classes, Users}, true},
	{"recorded", []Kind{Classes}, false},
	{"application", []Kind{Classes, Users}, false},
	{"spread", []Kind{Classes, Users}, false},
	{"system", []Kind{Classes, Users}, false},
	{"cache_stretch", []Kind{Classes, Users}, false},
	{"users", []Kind{Users}, true},
	{"think", []Kind{Users}, false},
}

// workloadParts refuses keys of other kinds of workloads, and reports required keys that are missing.
func (f *file) workloadParts(d *setting.Decoder) {
	if !d.Given("workload") || !d.Sound("workload.kind") {
		return
	}
	kind, recorded := f.Workload.Kind, d.Given("workload.recorded")
	for _, p := range parts {
		path := "workload." + p.key
		switch fits := slices.Contains(p.kinds, kind); {
		case !fits && d.Given(path):
			d.Refuse(path, "", "goes with %s only, and the kind is %s", kindsText(p.kinds), kind)
		case recorded && (p.key == "load" || p.key == "ramp"):
			if d.Given(path) {
				d.Refuse(path, "", "must not be given: the recorded load has the rates")
			}
		case fits && p.required && !d.Given(path) && !d.Broken(path):
			d.ProblemAt(d.PlaceOf("workload"), path+" is missing", fmt.Sprintf("a workload of kind %s needs it", kind))
			d.MarkBroken(path)
		}
	}
}

func kindsText(kinds []Kind) string {
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = string(k)
	}
	return strings.Join(words, ", ")
}

// onlyItsKind removes the defaults of keys that only other kinds of workloads have.
func onlyItsKind(w Workload) Workload {
	kept := Workload{Kind: w.Kind, Arrivals: w.Arrivals, Load: w.Load, Step: w.Step}
	switch w.Kind {
	case Video:
		kept.Video = w.Video
	case Classes, Users:
		kept.Classes, kept.Spread, kept.System, kept.CacheStretch = w.Classes, w.Spread, w.System, w.CacheStretch
		kept.Application = w.Application
	default:
		kept.Size = w.Size
	}
	if w.Kind == Classes {
		kept.Recorded = w.Recorded
	}
	if w.Kind == Users {
		kept.Users, kept.Think, kept.Arrivals = w.Users, w.Think, ""
	}
	return kept
}

// arrivals reads the name of an arrival process; "exponential" is another name of Poisson, whose gaps are exponential.
func arrivals(dst *Arrivals) setting.Value {
	known := append(slices.Clone(ArrivalProcesses), "exponential")
	return setting.OneOf(dst, known).Into(func(a Arrivals) {
		if a == "exponential" {
			a = Poisson
		}
		*dst = a
	})
}
