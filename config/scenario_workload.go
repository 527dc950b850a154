package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell/lab/scenario"
)

func blankWorkload() scenario.Workload {
	return scenario.Workload{
		Kind: scenario.File, Arrivals: scenario.Poisson, Video: scenario.DefaultVideo(),
		Spread: scenario.Exponential, System: 0.25, CacheStretch: 1, Think: 5 * time.Second,
	}
}

func workloadKeys(w *scenario.Workload) section {
	return section{
		opt("kind", oneOf(&w.Kind, scenario.Kinds), "file: one object of fixed size; video: sessions that fetch a video in chunks; classes: kinds of requests with demands of their own; users: the same, from users who think in between"),
		opt("arrivals", arrivals(&w.Arrivals), "poisson (or exponential), deterministic, or ramp: poisson with a sudden step; not for users"),
		opt("load", decimal(&w.Load), "at the start, in units of one instance alone; not for users").or("required but for users"),
		opt("ramp", rampStep{rampKeys(&scenario.Step{}), w}, "arrivals: ramp: the step"),
		opt("size", size(&w.Size), "file: of one response").or("required for a file"),
		opt("video", videoKeys(&w.Video), "video: what a session is like"),
		opt("classes", listOf(&w.Classes, scenario.Class{Share: 1}, func(c *scenario.Class) value { return classKeys(c) }).atLeast(1), "classes and users: the kinds of requests").or("required for classes and users"),
		opt("spread", oneOf(&w.Spread, scenario.Spreads), "classes and users: demands are exponential around their mean, or fixed"),
		opt("system", share(&w.System), "classes and users: the kernel's share of the processors' time"),
		opt("cache_stretch", decimal(&w.CacheStretch), "classes and users: neighbours on memory lengthen processor time by 1 + this * their use"),
		opt("users", whole(&w.Users), "users: how many at the start").or("required for users"),
		opt("think", duration(&w.Think), "users: mean of the exponential time between an answer and the next request"),
	}
}

func rampKeys(step *scenario.Step) section {
	return section{
		req("at", duration(&step.At), "when the load changes"),
		req("load", decimal(&step.Load), "from then on"),
	}
}

func videoKeys(v *scenario.VideoSessions) section {
	return section{
		opt("videos", whole(&v.Videos), "to choose from; their sizes are exponential"),
		opt("zipf", decimal(&v.Zipf), "exponent of their popularity"),
		opt("sessions", whole(&v.Sessions), "drawn beforehand; those that arrive are chosen from them"),
		opt("size", size(&v.Size), "mean bytes of a session's video"),
		opt("rate", bandwidth(&v.Rate), "at which a video plays"),
		opt("chunk", duration(&v.Chunk), "of play in one chunk"),
		opt("prefetch", whole(&v.Prefetch), "chunks at the start without pause; the others follow at the pace of play"),
	}
}

func classKeys(c *scenario.Class) section {
	return section{
		req("name", ident(&c.Name), "of the class"),
		opt("share", decimal(&c.Share), "of the requests, relative to the other classes"),
		opt("cpu", duration(&c.CPU), "mean time on one core"),
		opt("disk", decimal(&c.Disk), "mean number of disk operations"),
		opt("memory", duration(&c.Memory), "mean time of the reference machine's memory bandwidth"),
		opt("network", size(&c.Network), "mean size of the answer"),
	}
}

func readingsKeys(r *scenario.Readings) section {
	return section{
		opt("noise", share(&r.Noise), "standard deviation of utilisations and probes, as a share of themselves"),
		opt("lost", share(&r.Lost), "share of the machines' readings that never arrive"),
		opt("late", duration(&r.Late), "mean delay of the others, exponential"),
	}
}

func stationsKeys(s *scenario.Stations) section {
	return section{
		opt("discipline", oneOf(&s.Discipline, scenario.Disciplines), "sharing: all open work advances at once, at equal speed; fcfs: first come, first served, a core each on processors").or("`sharing`"),
		opt("neighbours", oneOf(&s.Neighbours, scenario.NeighbourKinds), "flows: they come at random and compete; fluid: their share is taken off evenly, which is faster and varies less").or("`flows`"),
	}
}

func probingKeys(p *scenario.Probing) section {
	return section{
		opt("count", whole(&p.Count).atLeast(scenario.LeastProbes), "probes of an instance in a sampling period").or("one in 100ms, and at least 8"),
		opt("budget", share(&p.Budget), "share of a host's link that probes may take").or("`2%`"),
	}
}

// parts says which keys of a workload go with which kinds, and whether they must be given.
var parts = []struct {
	key      string
	kinds    []scenario.Kind
	required bool
}{
	{"arrivals", []scenario.Kind{scenario.File, scenario.Video, scenario.Classes}, false},
	{"load", []scenario.Kind{scenario.File, scenario.Video, scenario.Classes}, true},
	{"ramp", []scenario.Kind{scenario.File, scenario.Video, scenario.Classes}, false},
	{"size", []scenario.Kind{scenario.File}, true},
	{"video", []scenario.Kind{scenario.Video}, false},
	{"classes", []scenario.Kind{scenario.Classes, scenario.Users}, true},
	{"spread", []scenario.Kind{scenario.Classes, scenario.Users}, false},
	{"system", []scenario.Kind{scenario.Classes, scenario.Users}, false},
	{"cache_stretch", []scenario.Kind{scenario.Classes, scenario.Users}, false},
	{"users", []scenario.Kind{scenario.Users}, true},
	{"think", []scenario.Kind{scenario.Users}, false},
}

// workloadParts refuses keys of other kinds of workloads, and misses those of its own.
func (f *scenarioFile) workloadParts(d *decoder) {
	if !d.given("workload") || !d.sound("workload.kind") {
		return
	}
	kind := f.Workload.Kind
	for _, p := range parts {
		path := "workload." + p.key
		switch fits := slices.Contains(p.kinds, kind); {
		case !fits && d.given(path):
			d.refuse(path, "", "goes with %s only, and the kind is %s", kindsText(p.kinds), kind)
		case fits && p.required && !d.given(path) && !d.broken[path]:
			d.problemAt(d.placeOf("workload"), path+" is missing", fmt.Sprintf("a workload of kind %s needs it", kind))
			d.spoil(path)
		}
	}
}

func kindsText(kinds []scenario.Kind) string {
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = string(k)
	}
	return strings.Join(words, ", ")
}

// onlyItsKind drops the defaults of what other kinds of workloads have.
func onlyItsKind(w scenario.Workload) scenario.Workload {
	kept := scenario.Workload{Kind: w.Kind, Arrivals: w.Arrivals, Load: w.Load, Step: w.Step}
	switch w.Kind {
	case scenario.Video:
		kept.Video = w.Video
	case scenario.Classes, scenario.Users:
		kept.Classes, kept.Spread, kept.System, kept.CacheStretch = w.Classes, w.Spread, w.System, w.CacheStretch
	default:
		kept.Size = w.Size
	}
	if w.Kind == scenario.Users {
		kept.Users, kept.Think, kept.Arrivals = w.Users, w.Think, ""
	}
	return kept
}
