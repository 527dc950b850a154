package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// The live measurement has these pieces, which dial:live plays in this order. Each can be played by itself, as in dial:live-compare. Each
// of their runs is kept, so that an interrupted piece continues with the next run.
const (
	calibratePiece = "live-calibrate" // finds how strong neighbours must be
	detectPiece    = "live-detect"    // how often an instance without neighbours is taken for a disturbed one
	classifyPiece  = "live-classify"  // which resource is named beside neighbours that no training has
	comparePiece   = "live-compare"   // the tail with DIAL and with its rivals
)

var dialPieces = []string{calibratePiece, detectPiece, classifyPiece, comparePiece}

// Seeds of the pieces.
const (
	calmSeeds = 2
	nameSeeds = 10 // as many runs for each resource as in the paper
	tailSeeds = 3
)

// dialLab has the page's experiments on the lab's machines. They are played one at a time, because neighbours on the processors or the
// memory of one lab would disturb another lab.
func dialLab() labPage {
	page := labPage{name: "dial", labs: 1}
	for _, n := range dialNeighbours {
		page.parts = append(page.parts, labPart{name: n.ladder(), piece: calibratePiece, title: n.about, sum: ladder})
	}
	page.parts = append(page.parts,
		labPart{name: "dial-calm", piece: detectPiece, seeds: calmSeeds, sum: calmLive},
		labPart{name: "dial-names", piece: classifyPiece, seeds: nameSeeds, sum: named},
		labPart{name: "dial-tail", piece: comparePiece, seeds: tailSeeds, sum: tails})
	return page
}

// dialNeighbour is a neighbour of the experiments, which no training has.
type dialNeighbour struct {
	resource quell.Resource
	what     string // program, or the resource that an interferer uses
	about    string
}

// dialNeighbours are the neighbours for each resource.
var dialNeighbours = []dialNeighbour{
	{quell.Network, "keyvalue", "a key-value server"},
	{quell.CPU, "compile", "a compiler"},
	{quell.Disk, "sort", "sorts of a file past the cache"},
	{quell.Memory, "memory", "a stream through memory"},
}

// ladder is the name of the scenario that calibrates the neighbour.
func (n dialNeighbour) ladder() string { return "dial-calibrate-" + string(n.resource) }

// neighbourOf returns the neighbour that an interference is.
func neighbourOf(n *scenario.Interference) dialNeighbour {
	what := string(n.Program)
	if what == "" {
		what = string(n.Resource)
	}
	i := slices.IndexFunc(dialNeighbours, func(d dialNeighbour) bool { return d.what == what })
	if i < 0 {
		return dialNeighbour{resource: n.Resource, what: what, about: what}
	}
	return dialNeighbours[i]
}

// playDial plays a piece of the live measurement, or all of them (live). Runs that have a record are kept.
func playDial(ctx context.Context, name string) error {
	if name != "live" && !slices.Contains(dialPieces, name) {
		return fmt.Errorf("the dial page has no part %q", name)
	}
	for _, piece := range dialPieces {
		if name != "live" && name != piece {
			continue
		}
		if err := playPiece(ctx, piece); err != nil {
			return err
		}
	}
	return nil
}

func playPiece(ctx context.Context, piece string) error {
	lab := dialLab()
	parts := slices.DeleteFunc(lab.parts, func(p labPart) bool { return p.piece != piece })
	if piece == classifyPiece || piece == comparePiece {
		uses, err := readUses()
		if err != nil {
			return err
		}
		for i := range parts {
			parts[i].uses = uses
		}
	}
	if err := playParts(ctx, parts, lab.labs, false); err != nil {
		return err
	}
	if piece == calibratePiece {
		return calibrate()
	}
	return nil
}

// episode is a time of a scenario in which a neighbour is beside one instance, or in which there are more users.
type episode struct {
	truth      string  // the resource of the neighbour; loadChange
	neighbour  string  //
	instance   string  // "": all
	begin, end float64 // seconds since measuring started
}

// loadChange is the truth of a time with more users.
const loadChange = "load change"

// episodes lists the episodes of a scenario.
func episodes(sc *scenario.Scenario) (list []episode) {
	for i, e := range sc.Timeline {
		one := episode{begin: e.At.Seconds()}
		var ends func(scenario.Event) bool
		switch n := e.Interfere; {
		case n != nil && n.Use > 0:
			known := neighbourOf(n)
			one.truth, one.neighbour, one.instance = string(known.resource), known.about, instanceOn(n.Host)
			ends = func(e scenario.Event) bool {
				return e.Interfere != nil && e.Interfere.Host == n.Host && e.Interfere.Program == n.Program && e.Interfere.Resource == n.Resource
			}
		case e.Users != nil && *e.Users > sc.Workload.Users:
			one.truth, one.neighbour = loadChange, "none"
			ends = func(e scenario.Event) bool { return e.Users != nil }
		default:
			continue
		}
		end := sc.Duration
		if next := slices.IndexFunc(sc.Timeline[i+1:], ends); next >= 0 {
			end = sc.Timeline[i+1+next].At
		}
		one.end = end.Seconds()
		list = append(list, one)
	}
	return list
}

// instanceOn is the instance on a host: the scaler starts i1 on h1, i2 on h2 and so on.
func instanceOn(host string) string { return "i" + host[1:] }

// acted is the part of an episode in which policies can have acted: until the end of its second period none can have.
func (e episode) acted(sampling time.Duration) (begin, end float64) {
	return e.begin + 2*sampling.Seconds(), e.end
}

// Ladders are the calibrations that have been played.
func (f dialFigures) Ladders() (list []ladderFigures, err error) {
	for _, n := range dialNeighbours {
		part, err := f.Live.Part(n.ladder())
		if err != nil {
			return nil, err
		}
		if part.Ladder != nil {
			list = append(list, *part.Ladder)
		}
	}
	return list, nil
}
