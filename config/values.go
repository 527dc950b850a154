package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/quellhq/quell"
)

// scalar reads one single value of a file.
type scalar[T any] struct {
	kind    string // what it is and how it is written, for messages
	parse   func(string) (T, error)
	format  func(T) string
	accepts func(ast.Node) bool
	set     func(T)
	start   string // the default, as a file would write it
	rules   []rule[T]
}

// rule is what a value must keep to; it returns what is wrong, or "".
type rule[T any] func(T) string

func (s *scalar[T]) initial() string { return s.start }

func (s *scalar[T]) read(d *decoder, n ast.Node) {
	if !s.accepts(n) {
		d.problem(n, "must be "+s.kind+", is "+describe(n), s.quoteHint(n))
		return
	}
	v, err := s.parse(written(n))
	if err != nil {
		d.problem(n, fmt.Sprintf("must be %s, is %q", s.kind, shorten(written(n))), "")
		return
	}
	for _, breach := range s.rules {
		if text := breach(v); text != "" {
			d.problem(n, text, "")
			return
		}
	}
	s.set(v)
}

// quoteHint helps where a text looks like a number to YAML, or a number like text.
func (s *scalar[T]) quoteHint(n ast.Node) string {
	if isText(n) {
		if _, err := s.parse(written(n)); err == nil {
			return "write it without quotes"
		}
		return ""
	}
	if s.kind == "text" && isSingle(n) {
		return fmt.Sprintf("put it in quotes if it is text: %q", shorten(written(n)))
	}
	return ""
}

// written returns a single value as the file has it.
func written(n ast.Node) string {
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value
	}
	return n.GetToken().Value
}

// then adds a rule.
func (s *scalar[T]) then(r rule[T]) *scalar[T] {
	s.rules = append(s.rules, r)
	return s
}

// into hands the value to a function.
func (s *scalar[T]) into(set func(T)) *scalar[T] {
	s.set = set
	return s
}

// ordered is a scalar with a size.
type ordered[T cmp.Ordered] struct{ scalar[T] }

func (s *ordered[T]) need(text string, ok func(T) bool) *ordered[T] {
	s.then(func(v T) string {
		if ok(v) {
			return ""
		}
		return "must be " + text + ", is " + s.format(v)
	})
	return s
}

func (s *ordered[T]) atLeast(low T) *ordered[T] {
	return s.need("at least "+s.format(low), func(v T) bool { return v >= low })
}

func (s *ordered[T]) above(low T) *ordered[T] {
	return s.need("above "+s.format(low), func(v T) bool { return v > low })
}

func (s *ordered[T]) below(high T) *ordered[T] {
	return s.need("below "+s.format(high), func(v T) bool { return v < high })
}

func (s *ordered[T]) between(low, high T) *ordered[T] {
	return s.need("between "+s.format(low)+" and "+s.format(high), func(v T) bool { return v >= low && v <= high })
}

func measure[T cmp.Ordered](dst *T, kind string, parse func(string) (T, error), format func(T) string) *ordered[T] {
	return &ordered[T]{scalar[T]{
		kind: kind, parse: parse, format: format, accepts: isSingle,
		set: func(v T) { *dst = v }, start: format(*dst),
	}}
}

// How durations and shares are written, for messages.
const (
	durationKind = "a duration as in 75ms, 10s or 5m"
	shareKind    = "a share as in 5% or 0.05"
)

func duration(dst *time.Duration) *ordered[time.Duration] {
	return measure(dst, durationKind, parseDuration, formatDuration)
}

func share(dst *float64) *ordered[float64] {
	return measure(dst, shareKind, parseShare, formatShare)
}

func bandwidth(dst *float64) *ordered[float64] {
	return measure(dst, "a bandwidth as in 40Mbps or 1Gbps", parseBandwidth, formatBandwidth)
}

func size(dst *int64) *ordered[int64] {
	return measure(dst, "a size in bytes as in 50KB or 64MiB", parseSize, formatSize)
}

func number[T cmp.Ordered](dst *T, kind string, parse func(string) (T, error), format func(T) string) *ordered[T] {
	v := measure(dst, kind, parse, format)
	v.accepts = isNumber
	return v
}

func whole(dst *int) *ordered[int] { return number(dst, "a whole number", parseWhole, strconv.Itoa) }

func decimal(dst *float64) *ordered[float64] {
	return number(dst, "a finite number", parseReal, formatReal)
}

func seed(dst *uint64) *ordered[uint64] {
	return number(dst, "a whole number, not negative", parseSeed, formatSeed)
}

func boolean(dst *bool) *scalar[bool] {
	return &scalar[bool]{
		kind: "true or false", parse: strconv.ParseBool, format: strconv.FormatBool,
		accepts: func(n ast.Node) bool { _, ok := n.(*ast.BoolNode); return ok },
		set:     func(v bool) { *dst = v }, start: strconv.FormatBool(*dst),
	}
}

func text(dst *string) *scalar[string] {
	asIs := func(s string) string { return s }
	return &scalar[string]{
		kind: "text", parse: func(s string) (string, error) { return s, nil }, format: asIs, accepts: isText,
		set: func(v string) { *dst = v }, start: *dst, rules: []rule[string]{notBlank},
	}
}

func notBlank(s string) string {
	if strings.TrimSpace(s) == "" {
		return "must not be empty"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "must not hold control characters"
	}
	return ""
}

// ident is text that can stand in file names, subjects and metrics.
func ident(dst *string) *scalar[string] {
	return text(dst).then(func(s string) string {
		if len(s) > 100 {
			return "must not be longer than 100 characters"
		}
		if strings.ContainsFunc(s, func(r rune) bool { return !isNameRune(r) }) {
			return fmt.Sprintf("must hold only letters, digits, '-', '_', '.' and ':', is %q", shorten(s))
		}
		return ""
	})
}

// longestService is what the bus takes of a service's name, in bytes.
const longestService = 64

func serviceName(dst *string) *scalar[string] {
	return ident(dst).then(func(s string) string {
		if len(s) > longestService {
			return fmt.Sprintf("must not be longer than %d characters, which is what the bus takes", longestService)
		}
		return ""
	})
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:", r)
}

// oneOf is one of a few known words. Those in unsupported are words of the field that a person may well try.
func oneOf[T ~string](dst *T, known []T, unsupported ...string) *scalar[T] {
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	v := &scalar[T]{
		kind: "one of " + strings.Join(words, ", "), format: func(v T) string { return string(v) }, accepts: isText,
		parse: func(s string) (T, error) { return T(s), nil },
		set:   func(v T) { *dst = v }, start: string(*dst),
	}
	return v.then(func(w T) string {
		switch {
		case slices.Contains(unsupported, string(w)):
			return fmt.Sprintf("%q is not supported; supported: %s", w, strings.Join(words, ", "))
		case !slices.Contains(known, w):
			return fmt.Sprintf("unknown value %q%s", shorten(string(w)), suggest(string(w), words))
		}
		return ""
	})
}

// list reads a list; each item is read by the value that item makes for it.
type list[T any] struct {
	dst   *[]T
	item  func(*T) value
	blank T   // what an item is before it is read
	least int // fewest items
}

func listOf[T any](dst *[]T, blank T, item func(*T) value) *list[T] {
	return &list[T]{dst: dst, item: item, blank: blank}
}

// shares reads a list of fractions.
func shares(dst *[]float64, item func(*ordered[float64]) *ordered[float64]) *list[float64] {
	return listOf(dst, 0, func(x *float64) value { return item(share(x)) }).atLeast(1)
}

// idents reads a list of names.
func idents(dst *[]string) *list[string] {
	return listOf(dst, "", func(s *string) value { return ident(s) })
}

// command reads a program and its arguments. An argument may look like a number.
func command(dst *[]string) *list[string] {
	return listOf(dst, "", func(s *string) value {
		word := text(s)
		word.accepts, word.rules = isSingle, []rule[string]{noNUL}
		return word
	}).atLeast(1)
}

func noNUL(s string) string {
	if strings.ContainsRune(s, 0) {
		return "must not hold a NUL character"
	}
	return ""
}

func (l *list[T]) atLeast(n int) *list[T] {
	l.least = n
	return l
}

func (l *list[T]) initial() string { return "" }

func (l *list[T]) current() string { return fmt.Sprintf("%+v", *l.dst) }

func (l *list[T]) read(d *decoder, n ast.Node) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.problem(n, "must be a list, is "+describe(n), "")
		return
	}
	if len(seq.Values) < l.least {
		d.problem(n, fmt.Sprintf("must hold at least %d", l.least), "")
		return
	}
	items := make([]T, len(seq.Values))
	for i, v := range seq.Values {
		items[i] = l.blank
		d.step(fmt.Sprintf("[%d]", i), v, func(inner ast.Node) { l.item(&items[i]).read(d, inner) })
	}
	*l.dst = items
}

func isText(n ast.Node) bool { _, ok := n.(*ast.StringNode); return ok }

func isNumber(n ast.Node) bool {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return true
	}
	return false
}

func isSingle(n ast.Node) bool {
	if _, isFlag := n.(*ast.BoolNode); isFlag {
		return true
	}
	return isText(n) || isNumber(n)
}

// capacity puts a value into a map of resources.
func capacity(dst map[quell.Resource]float64, r quell.Resource, v *ordered[float64]) value {
	if x, ok := dst[r]; ok {
		v.start = v.format(x)
	}
	return v.above(0).into(func(x float64) { dst[r] = x })
}
