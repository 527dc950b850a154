package scenario

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

func eventKeys(e *Event) setting.Table {
	return setting.Table{
		setting.Req("at", setting.Duration(&e.At), "when, since the start"),
		setting.Opt("load", setting.Pointer(&e.Load, func(x *float64) setting.Value { return setting.Decimal(x) }),
			"load from this moment on").Or("as before"),
		setting.Opt("users", setting.Pointer(&e.Users, func(n *int) setting.Value { return setting.Whole(n) }),
			"kind users: number of users from this moment on; those above it leave after their next answer").Or("as before"),
		setting.Opt("interfere", setting.Maybe(&e.Interfere, interferenceKeys).Then(checkUse), "what a neighbour uses from this moment on"),
		setting.Opt("fail", setting.Maybe(&e.Fail, failureKeys), "ends the instance on a host: its process exits; simulator only"),
		setting.Opt("errors", setting.Maybe(&e.Errors, errorKeys),
			"requests that an instance answers by an error, from now on; simulator, and in a lab with files all of them or none"),
		setting.Opt("release", setting.Maybe(&e.Release, releaseKeys),
			"another release of the service on a host, which needs more or less for a request; simulator only"),
		setting.Opt("mark", setting.Text(&e.Mark), "name of the moment; reactions are measured from it"),
	}
}

// checkUse refuses several ways of stating a use at once.
func checkUse(d *setting.Decoder, path string) {
	use := setting.Join(path, "use")
	given := func(name string) bool { return d.Given(setting.Join(path, name)) || d.Broken(setting.Join(path, name)) }
	varies := given("trace") || given("markov")
	if given("program") == given("resource") && !d.Broken(path) {
		d.ProblemAt(d.PlaceOf(path), path+" needs either resource or program", "a resource that is used, or a real program that runs")
		d.MarkBroken(setting.Join(path, "resource"))
	}
	for _, form := range []string{"ramp", "on", "off", "trace", "markov", "own"} {
		if given("program") && given(form) {
			d.Refuse(setting.Join(path, form), "", "goes with a resource only: a program runs at one strength, as a neighbour")
		}
	}
	switch {
	case varies && given("use"):
		d.Refuse(use, "", "must not be given with trace or markov, which contain the uses")
	case !varies && !given("use") && !given("program") && !d.Broken(path):
		d.ProblemAt(d.PlaceOf(path), use+" is missing", "share of the host's resource that is taken; 0 ends it")
		d.MarkBroken(use)
	}
	if given("lengths") && !given("on") {
		d.Refuse(setting.Join(path, "lengths"), "", "goes with on and off only")
	}
}

func interferenceKeys(i *Interference) setting.Table {
	return setting.Table{
		setting.Req("host", setting.Ident(&i.Host),
			"the host whose neighbour it is; the name of hosts with a count means all of them, each with a neighbour of its own"),
		setting.Opt("resource", setting.OneOf(&i.Resource, quell.Resources), "cpu, network, disk or memory").Or("required without program"),
		setting.Opt("program", setting.OneOf(&i.Program, Programs),
			"a real program instead of a resource: compile, keyvalue, pgbench or sort; in labs only").Or("none"),
		setting.Opt("own", setting.Bool(&i.Own),
			"a process of the instance itself uses the resource, such as a backup, and no neighbour does; simulator and kernel lab, there not "+
				"of memory"),
		setting.Opt("use", setting.Share(&i.Use), "share of the host's resource that is taken, or strength of the program; 0 ends it").
			Or("required for a resource without trace and markov; `100%` for a program"),
		setting.Opt("ramp", setting.Duration(&i.Ramp), "time in which the use grows or shrinks to this value"),
		setting.Opt("on", setting.Duration(&i.On), "mean length of the times with the use, which alternate with times without"),
		setting.Opt("off", setting.Duration(&i.Off), "mean length of the times without the use"),
		setting.Opt("lengths", setting.OneOf(&i.Lengths, Spreads),
			"how the lengths of on and off vary: exponential around their mean, or fixed").Or("`exponential`"),
		setting.Opt("trace", setting.FileOf(&i.Trace, "trace", parseTrace),
			"CSV file with what the neighbour uses over time, in lines of seconds,use; in the scenario file's folder"),
		setting.Opt("markov", setting.ListOf(&i.Markov, Stay{}, func(s *Stay) setting.Value { return stayKeys(s) }).AtLeast(1),
			"random uses: states that follow each other at random, the first one first"),
	}
}

func stayKeys(s *Stay) setting.Table {
	return setting.Table{
		setting.Req("use", setting.Share(&s.Use), "share of the resource that is taken in this state"),
		setting.Req("stay", setting.Duration(&s.Mean), "mean of the exponential time in this state"),
	}
}

func failureKeys(f *Failure) setting.Table {
	return setting.Table{setting.Req("host", setting.Ident(&f.Host), "the host, or the name of hosts with a count")}
}

func errorKeys(e *Errors) setting.Table {
	return setting.Table{
		setting.Req("host", setting.Ident(&e.Host), "the host, or the name of hosts with a count"),
		setting.Req("share", setting.Share(&e.Share).Between(0, 1), "share of the requests to the host's instance that fail; 0 ends it"),
	}
}

// longestTrace limits the times of a trace, in seconds, so that arithmetic on them does not overflow.
const longestTrace = 1e9

// parseTrace reads lines of seconds and use. The first line may be a heading; lines that begin with # are comments.
func parseTrace(r io.Reader) ([]TracePoint, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord, lines.Comment, lines.TrimLeadingSpace = 2, '#', true
	var points []TracePoint
	for first := true; ; first = false {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if first && strings.TrimSpace(fields[0]) == "seconds" && strings.TrimSpace(fields[1]) == "use" {
			continue
		}
		line, _ := lines.FieldPos(0)
		seconds, err := setting.ParseReal(strings.TrimSpace(fields[0]))
		if err != nil || seconds < 0 || seconds > longestTrace {
			return nil, fmt.Errorf("line %d: seconds must be a number from 0 on, is %q", line, setting.Shorten(fields[0]))
		}
		use, err := setting.ParseShare(strings.TrimSpace(fields[1]))
		if err != nil || use < 0 || use > 1 {
			return nil, fmt.Errorf("line %d: use must be between 0 and 1, is %q", line, setting.Shorten(fields[1]))
		}
		p := TracePoint{After: time.Duration(seconds * float64(time.Second)), Use: use}
		if n := len(points); n > 0 && p.After <= points[n-1].After {
			return nil, fmt.Errorf("line %d: seconds must go up, are %q", line, setting.Shorten(fields[0]))
		}
		points = append(points, p)
	}
	if len(points) == 0 {
		return nil, errors.New("holds no lines of seconds,use")
	}
	return points, nil
}
