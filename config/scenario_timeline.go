package config

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

func eventKeys(e *scenario.Event) section {
	var load float64
	var users int
	return section{
		req("at", duration(&e.At), "when, since the start"),
		opt("load", decimal(&load).into(func(x float64) { e.Load = &x }), "the load from now on").or("as before"),
		opt("users", whole(&users).into(func(n int) { e.Users = &n }), "kind users: their number from now on; those above it leave after their next answer").or("as before"),
		opt("interfere", interference{interferenceKeys(&scenario.Interference{}), e}, "what a neighbour takes from now on"),
		opt("fail", failure{failureKeys(&scenario.Failure{}), e}, "ends the instance on a host: its process exits; simulator only"),
		opt("mark", text(&e.Mark), "names the moment; reactions are measured from it"),
	}
}

// interference makes the part of an event that may be absent.
type interference struct {
	section // for the reference
	event   *scenario.Event
}

func (i interference) read(d *decoder, n ast.Node) {
	i.event.Interfere = &scenario.Interference{}
	interferenceKeys(i.event.Interfere).read(d, n)
	given := func(name string) bool { return d.given(join(d.path, name)) || d.broken[join(d.path, name)] }
	varies := given("trace") || given("markov")
	switch {
	case varies && given("use"):
		d.refuse(join(d.path, "use"), "", "a trace and a Markov chain have uses of their own")
	case !varies && !given("use") && !d.broken[d.path]:
		d.problemAt(start(n), join(d.path, "use")+" is missing", "share of the host's resource that is taken; 0 ends it")
		d.spoil(join(d.path, "use"))
	}
	if given("lengths") && !given("on") {
		d.refuse(join(d.path, "lengths"), "", "goes with on and off only")
	}
}

func interferenceKeys(i *scenario.Interference) section {
	return section{
		req("host", ident(&i.Host), "the host whose neighbour it is; the name of hosts with a count means all of them, each with a neighbour of its own"),
		req("resource", oneOf(&i.Resource, quell.Resources), "cpu, network, disk or memory"),
		opt("use", share(&i.Use), "share of the host's resource that is taken; 0 ends it").or("required without trace and markov"),
		opt("ramp", duration(&i.Ramp), "time over which the use grows or shrinks to this"),
		opt("on", duration(&i.On), "mean length of times with the use, in turn with times without"),
		opt("off", duration(&i.Off), "mean length of the times without"),
		opt("lengths", oneOf(&i.Lengths, scenario.Spreads), "of on and off: exponential around their mean, or fixed").or("`exponential`"),
		opt("trace", trace{&i.Trace}, "a recorded use: a CSV file of lines seconds,use, beside the scenario's"),
		opt("markov", listOf(&i.Markov, scenario.Stay{}, func(s *scenario.Stay) value { return stayKeys(s) }).atLeast(1), "random uses: states that follow each other at random, the first one first"),
	}
}

func stayKeys(s *scenario.Stay) section {
	return section{
		req("use", share(&s.Use), "share of the resource that is taken in this state"),
		req("stay", duration(&s.Mean), "mean of the exponential time in it"),
	}
}

// failure makes the part of an event that may be absent.
type failure struct {
	section // for the reference
	event   *scenario.Event
}

func (f failure) read(d *decoder, n ast.Node) {
	f.event.Fail = &scenario.Failure{}
	failureKeys(f.event.Fail).read(d, n)
}

func failureKeys(f *scenario.Failure) section {
	return section{req("host", ident(&f.Host), "the host, or the name of hosts with a count")}
}

// rampStep makes the part of a workload that may be absent.
type rampStep struct {
	section  // for the reference
	workload *scenario.Workload
}

func (r rampStep) read(d *decoder, n ast.Node) {
	r.workload.Step = &scenario.Step{}
	rampKeys(r.workload.Step).read(d, n)
}

// trace reads a recorded use from the file that it names.
type trace struct{ dst *[]scenario.TracePoint }

func (t trace) initial() string { return "" }

func (t trace) read(d *decoder, n ast.Node) {
	var name string
	text(&name).read(d, n)
	if name == "" {
		return
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.file), path)
	}
	points, err := readTrace(path)
	if err != nil {
		d.problem(n, fmt.Sprintf("the trace %s: %v", shorten(name), err), "")
		return
	}
	*t.dst = points
}

func readTrace(path string) ([]scenario.TracePoint, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, errors.Unwrap(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("is no plain file")
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("is larger than %s", formatSize(maxBytes))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	return parseTrace(f)
}

// longestTrace bounds times to what arithmetic on them can bear.
const longestTrace = 1e9

// parseTrace reads lines of seconds and use. The first line may be a heading; # begins a comment line.
func parseTrace(r io.Reader) ([]scenario.TracePoint, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord, lines.Comment, lines.TrimLeadingSpace = 2, '#', true
	var points []scenario.TracePoint
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
		seconds, err := parseReal(strings.TrimSpace(fields[0]))
		if err != nil || seconds < 0 || seconds > longestTrace {
			return nil, fmt.Errorf("line %d: seconds must be a number from 0 on, is %q", line, shorten(fields[0]))
		}
		use, err := parseShare(strings.TrimSpace(fields[1]))
		if err != nil || use < 0 || use > 1 {
			return nil, fmt.Errorf("line %d: use must be between 0 and 1, is %q", line, shorten(fields[1]))
		}
		p := scenario.TracePoint{After: time.Duration(seconds * float64(time.Second)), Use: use}
		if n := len(points); n > 0 && p.After <= points[n-1].After {
			return nil, fmt.Errorf("line %d: seconds must go up, are %q", line, shorten(fields[0]))
		}
		points = append(points, p)
	}
	if len(points) == 0 {
		return nil, errors.New("holds no lines of seconds,use")
	}
	return points, nil
}
