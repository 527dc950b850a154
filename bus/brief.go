package bus

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/quellhq/quell"
)

// A report reads a whole day. Decoding by reflection, of much that it does not use, took most of its processor time, so records can be read
// in brief: of each record only what conclusions are drawn from.

// brief reads the parts of a record that reports use, and skips the others. Names and numbers of one brief are kept together.
type brief struct {
	*jsontext.Decoder
	names   map[string]string
	numbers []float64
	err     error
}

func newBrief() *brief { return &brief{Decoder: new(jsontext.Decoder), names: map[string]string{}} }

// read decodes one value by a function.
func (b *brief) read(data []byte, with func()) error {
	b.Reset(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	b.err = nil
	with()
	return b.err
}

// value reads the next value, nil after an error.
func (b *brief) value() (v jsontext.Value) {
	if b.err == nil {
		v, b.err = b.ReadValue()
	}
	return v
}

// object calls field with the name of each member, which must read its value. null has no members.
func (b *brief) object(field func(name []byte)) {
	if b.null() {
		return
	}
	b.expect('{')
	for b.err == nil && b.PeekKind() != '}' {
		if name := b.value(); b.err == nil {
			field(name[1 : len(name)-1])
		}
	}
	b.expect('}')
}

// array calls element before each element, which must read it.
func (b *brief) array(element func()) {
	if b.null() {
		return
	}
	b.expect('[')
	for b.err == nil && b.PeekKind() != ']' {
		element()
	}
	b.expect(']')
}

func (b *brief) expect(k jsontext.Kind) {
	if b.err != nil {
		return
	}
	var token jsontext.Token
	if token, b.err = b.ReadToken(); b.err == nil && token.Kind() != k {
		b.err = fmt.Errorf("%v where %v was expected", token.Kind(), k)
	}
}

// null reads the value if it is null, and returns whether it was.
func (b *brief) null() bool {
	if b.err != nil || b.PeekKind() != 'n' {
		return false
	}
	b.skip()
	return true
}

func (b *brief) skip() {
	if b.err == nil {
		b.err = b.SkipValue()
	}
}

// any decodes a rare or small value by reflection.
func (b *brief) any(v any) {
	if b.err == nil {
		b.err = json.UnmarshalDecode(b.Decoder, v)
	}
}

// number reads a number, nil for null.
func (b *brief) number() *float64 {
	v := b.value()
	if b.err != nil || v.Kind() == 'n' {
		return nil
	}
	if len(b.numbers) == cap(b.numbers) {
		b.numbers = make([]float64, 0, 512)
	}
	var x float64
	x, b.err = strconv.ParseFloat(string(v), 64)
	b.numbers = append(b.numbers, x)
	return &b.numbers[len(b.numbers)-1]
}

func (b *brief) plain() (x float64) {
	if v := b.number(); v != nil {
		x = *v
	}
	return x
}

// name reads a text that comes again and again, such as the name of an instance.
func (b *brief) name() string {
	v := b.value()
	if b.err != nil || v.Kind() == 'n' {
		return ""
	}
	if v.Kind() != '"' {
		b.err = fmt.Errorf("%v where a text was expected", v.Kind())
		return ""
	}
	return b.text(v[1 : len(v)-1])
}

func (b *brief) text(raw []byte) string {
	if s, known := b.names[string(raw)]; known {
		return s
	}
	unquoted, err := jsontext.AppendUnquote(nil, `"`+string(raw)+`"`)
	if err != nil {
		b.err = err
		return ""
	}
	s := string(unquoted)
	b.names[strings.Clone(string(raw))] = s
	return s
}

// word reads one of the words of a kind.
func word[T any, P interface {
	*T
	UnmarshalText([]byte) error
}](b *brief, into P) {
	if text := b.name(); b.err == nil {
		b.err = into.UnmarshalText([]byte(text))
	}
}

// values reads a map to numbers.
func (b *brief) values() map[string]float64 {
	all := map[string]float64{}
	b.object(func(name []byte) { id := b.text(name); all[id] = b.plain() })
	return all
}

// snapshot reads when it was, the turn of a comparison, and of each instance its state, its weights and what its requests did.
func (b *brief) snapshot(s *quell.Snapshot) {
	b.object(func(name []byte) {
		switch string(name) {
		case "at":
			b.any(&s.At)
		case "service":
			s.Service = b.name()
		case "turn":
			b.any(&s.Turn)
		case "instances":
			b.array(func() {
				s.Instances = append(s.Instances, quell.Instance{})
				b.instance(&s.Instances[len(s.Instances)-1])
			})
		default:
			b.skip()
		}
	})
}

func (b *brief) instance(in *quell.Instance) {
	b.object(func(name []byte) {
		switch string(name) {
		case "id":
			in.ID = b.name()
		case "state":
			word(b, &in.State)
		case "health":
			b.any(&in.Health)
		case "weight":
			in.Weight = b.number()
		case "base":
			in.Base = b.number()
		case "held":
			b.any(&in.Held)
		case "observation":
			if !b.null() {
				in.Observation = new(quell.Observation)
				b.observation(in.Observation)
			}
		default:
			b.skip()
		}
	})
}

func (b *brief) observation(o *quell.Observation) {
	b.object(func(name []byte) {
		switch string(name) {
		case "window_s":
			o.WindowS = b.plain()
		case "request_rate":
			o.RequestRate = b.number()
		case "error_rate":
			o.ErrorRate = b.number()
		case "latency_ms":
			if !b.null() {
				o.LatencyMS = new(quell.Latency)
				b.latency(o.LatencyMS)
			}
		case "utilization":
			o.Utilization = map[quell.Resource]float64{}
			b.object(func(name []byte) {
				var r quell.Resource
				if err := r.UnmarshalText(name); err != nil {
					b.err = err
					return
				}
				o.Utilization[r] = b.plain()
			})
		default:
			b.skip()
		}
	})
}

func (b *brief) latency(l *quell.Latency) {
	b.object(func(name []byte) {
		switch string(name) {
		case "mean":
			l.Mean = b.number()
		case "p50":
			l.P50 = b.number()
		case "p90":
			l.P90 = b.number()
		case "p95":
			l.P95 = b.number()
		case "p99":
			l.P99 = b.number()
		case "n":
			l.N = int(b.plain())
		default:
			b.skip()
		}
	})
}

// entry reads a plan: what it wanted and why, and what became of it. Texts of events are not read.
func (b *brief) entry(e *Entry) {
	b.object(func(name []byte) {
		switch string(name) {
		case "at":
			b.any(&e.At)
		case "kind":
			e.Kind = Kind(b.name())
		case "applied":
			b.any(&e.Applied)
		case "mode":
			word(b, &e.Mode)
		case "plan":
			if !b.null() {
				e.Plan = new(quell.Plan)
				b.plan(e.Plan)
			}
		default:
			b.skip()
		}
	})
}

func (b *brief) plan(p *quell.Plan) {
	b.object(func(name []byte) {
		switch string(name) {
		case "at":
			b.any(&p.At)
		case "service":
			p.Service = b.name()
		case "weights":
			p.Weights = b.values()
		case "severity":
			p.Severity = b.values()
		case "capacity":
			p.Capacity = b.values()
		case "predicted_ms":
			p.PredictedMS = b.values()
		case "group":
			b.any(&p.Group)
		case "cause":
			b.any(&p.Cause)
		case "own_work":
			b.any(&p.OwnWork)
		case "authority":
			b.any(&p.Authority)
		case "would":
			b.any(&p.Would)
		case "reasons":
			b.any(&p.Reasons)
		default:
			b.skip()
		}
	})
}

// briefs are the decoders of one reader of the journal.
type briefs struct{ free chan *brief }

func newBriefs() *briefs { return &briefs{make(chan *brief, runtime.GOMAXPROCS(0))} }

func (x *briefs) with(data []byte, do func(*brief)) error {
	var b *brief
	select {
	case b = <-x.free:
	default:
		b = newBrief()
	}
	err := b.read(data, func() { do(b) })
	select {
	case x.free <- b:
	default:
	}
	return err
}

func (x *briefs) snapshot(data []byte, s *quell.Snapshot) error {
	return x.with(data, func(b *brief) { b.snapshot(s) })
}

func (x *briefs) entry(data []byte, e *Entry) error {
	return x.with(data, func(b *brief) { b.entry(e) })
}

func wholeSnapshot(data []byte, s *quell.Snapshot) error { return stdjson.Unmarshal(data, s) }

func wholeEntry(data []byte, e *Entry) error { return stdjson.Unmarshal(data, e) }
