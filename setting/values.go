package setting

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scalar reads one single value of a file.
type Scalar[T any] struct {
	kind    string // type and notation of the value, for messages
	parse   func(string) (T, error)
	format  func(T) string
	accepts func(*Node) bool
	set     func(T)
	start   string // the default, as written in a file
	quoted  bool   // the value is text, and is written in quotes
	types   any    // what JSON Schema calls the value's type, one or several
	pattern string // of a value that is text; "": any
	words   any    // the words that a value can be; nil: others, too
	rules   []Rule[T]
}

// Rule is a condition on a value; it returns what is wrong, or "".
type Rule[T any] func(T) string

func (s *Scalar[T]) initial() string { return s.start }

func (s *Scalar[T]) read(d *Decoder, n *Node) {
	if !s.accepts(n) {
		d.problem(n, "must be "+s.kind+", is "+describe(n), s.quoteHint(n))
		return
	}
	v, err := s.parse(n.Text)
	if err != nil {
		d.problem(n, fmt.Sprintf("must be %s, is %q", s.kind, Shorten(n.Text)), "")
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

// quoteHint helps with text that looks like a number to YAML, and with numbers in quotes.
func (s *Scalar[T]) quoteHint(n *Node) string {
	if isText(n) {
		if _, err := s.parse(n.Text); err == nil {
			return "write it without quotes"
		}
		return ""
	}
	if s.kind == "text" && isSingle(n) {
		return fmt.Sprintf("put it in quotes if it is text: %q", Shorten(n.Text))
	}
	return ""
}

// Then adds a rule.
func (s *Scalar[T]) Then(r Rule[T]) *Scalar[T] {
	s.rules = append(s.rules, r)
	return s
}

// First adds a rule that is checked before the others.
func (s *Scalar[T]) First(r Rule[T]) *Scalar[T] {
	s.rules = slices.Insert(s.rules, 0, r)
	return s
}

// Into passes the value, once it is read, to a function.
func (s *Scalar[T]) Into(set func(T)) *Scalar[T] {
	s.set = set
	return s
}

// Ordered is a scalar whose values can be compared.
type Ordered[T cmp.Ordered] struct{ Scalar[T] }

// Need adds a rule; text says, in the message, what a value must be.
func (s *Ordered[T]) Need(text string, ok func(T) bool) *Ordered[T] {
	s.Then(func(v T) string {
		if ok(v) {
			return ""
		}
		return "must be " + text + ", is " + s.format(v)
	})
	return s
}

// AtLeast refuses lower values.
func (s *Ordered[T]) AtLeast(low T) *Ordered[T] {
	return s.Need("at least "+s.format(low), func(v T) bool { return v >= low })
}

// Above refuses this value and lower ones.
func (s *Ordered[T]) Above(low T) *Ordered[T] {
	return s.Need("above "+s.format(low), func(v T) bool { return v > low })
}

// Below refuses this value and higher ones.
func (s *Ordered[T]) Below(high T) *Ordered[T] {
	return s.Need("below "+s.format(high), func(v T) bool { return v < high })
}

// Between refuses values outside the range.
func (s *Ordered[T]) Between(low, high T) *Ordered[T] {
	return s.Need("between "+s.format(low)+" and "+s.format(high), func(v T) bool { return v >= low && v <= high })
}

func measure[T cmp.Ordered](dst *T, kind string, parse func(string) (T, error), format func(T) string) *Ordered[T] {
	return &Ordered[T]{*Parsed(dst, kind, parse, format)}
}

// Parsed reads a single value with a given parser; format writes it so that the parser can read it.
func Parsed[T any](dst *T, kind string, parse func(string) (T, error), format func(T) string) *Scalar[T] {
	return &Scalar[T]{kind: kind, parse: parse, format: format, accepts: isSingle, set: func(v T) { *dst = v }, start: format(*dst),
		types: []string{"string", "number", "boolean"}}
}

// How durations and shares are written, for messages.
const (
	durationKind = "a duration as in 75ms, 10s or 5m"
	shareKind    = "a share as in 5% or 0.05"
)

// Duration is written as 75ms, 10s, 1h30m or 1d.
func Duration(dst *time.Duration) *Ordered[time.Duration] {
	return measure(dst, durationKind, parseDuration, FormatDuration)
}

// Share is a fraction, written as 5% or 0.05.
func Share(dst *float64) *Ordered[float64] {
	return measure(dst, shareKind, parseShare, FormatShare)
}

// Bandwidth is in bit/s, written as 40Mbps.
func Bandwidth(dst *float64) *Ordered[float64] {
	return measure(dst, "a bandwidth as in 40Mbps or 1Gbps", parseBandwidth, formatBandwidth)
}

// Size is in bytes, written as 50KB or 64MiB.
func Size(dst *int64) *Ordered[int64] {
	return measure(dst, "a size in bytes as in 50KB or 64MiB", parseSize, FormatSize)
}

func number[T cmp.Ordered](dst *T, kind string, parse func(string) (T, error), format func(T) string) *Ordered[T] {
	v := measure(dst, kind, parse, format)
	v.accepts, v.types = isNumber, []string{"number", "string"} // a text such as 1e6 is a number, too
	v.pattern = `^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$`
	return v
}

// Whole is a whole number.
func Whole(dst *int) *Ordered[int] { return number(dst, "a whole number", parseWhole, strconv.Itoa) }

// Decimal is a finite number.
func Decimal(dst *float64) *Ordered[float64] {
	return number(dst, "a finite number", ParseReal, formatReal)
}

// Seed is a non-negative whole number.
func Seed(dst *uint64) *Ordered[uint64] {
	return number(dst, "a whole number, not negative", parseSeed, formatSeed)
}

// Bool is true or false.
func Bool(dst *bool) *Scalar[bool] {
	v := Parsed(dst, "true or false", strconv.ParseBool, strconv.FormatBool)
	v.accepts, v.types = func(n *Node) bool { return n.Kind == TruthNode }, "boolean"
	return v
}

// Not is true or false; dst gets the opposite.
func Not(dst *bool) *Scalar[bool] {
	said := !*dst
	return Bool(&said).Into(func(v bool) { *dst = !v })
}

// Text is one line of text that is not blank.
func Text(dst *string) *Scalar[string] {
	asIs := func(s string) string { return s }
	v := Parsed(dst, "text", func(s string) (string, error) { return s, nil }, asIs)
	v.accepts, v.quoted, v.types = isText, true, "string"
	return v.Then(notBlank)
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

// Ident is text without characters that are not allowed in file names, subjects of the bus, or metrics.
func Ident(dst *string) *Scalar[string] {
	return Text(dst).Then(func(s string) string {
		if len(s) > 100 {
			return "must not be longer than 100 characters"
		}
		if strings.ContainsFunc(s, func(r rune) bool { return !isNameRune(r) }) {
			return fmt.Sprintf("must hold only letters, digits, '-', '_', '.' and ':', is %q", Shorten(s))
		}
		return ""
	})
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:", r)
}

// OneOf is one of a few known words. For the words in unsupported, which users may expect to work, the error says that they are not
// supported.
func OneOf[T ~string](dst *T, known []T, unsupported ...string) *Scalar[T] {
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	asIs := func(s string) (T, error) { return T(s), nil }
	v := Parsed(dst, "one of "+strings.Join(words, ", "), asIs, func(v T) string { return string(v) })
	v.accepts, v.types, v.words = isText, "string", known
	return v.Then(func(w T) string {
		switch {
		case slices.Contains(known, w):
			return ""
		case slices.Contains(unsupported, string(w)):
			return fmt.Sprintf("%q is not supported; supported: %s", w, strings.Join(words, ", "))
		}
		return fmt.Sprintf("unknown value %q%s", Shorten(string(w)), Suggest(string(w), words))
	})
}

// List reads a list; item returns the Value that reads one item.
type List[T any] struct {
	dst   *[]T
	item  func(*T) Value
	blank T    // an item before it is read
	least int  // smallest number of items
	most  int  // largest number of items; 0: any
	one   bool // a single value is a list of one item
	set   func([]T)
}

// ListOf reads a list; item returns the Value that reads one item, and blank is an item before it is read.
func ListOf[T any](dst *[]T, blank T, item func(*T) Value) *List[T] {
	return &List[T]{dst: dst, item: item, blank: blank}
}

// Shares reads a list of fractions.
func Shares(dst *[]float64, item func(*Ordered[float64]) *Ordered[float64]) *List[float64] {
	return ListOf(dst, 0, func(x *float64) Value { return item(Share(x)) }).AtLeast(1)
}

// Idents reads a list of names.
func Idents(dst *[]string) *List[string] {
	return ListOf(dst, "", func(s *string) Value { return Ident(s) })
}

// Command reads a program and its arguments. An argument may look like a number.
func Command(dst *[]string) *List[string] {
	return ListOf(dst, "", func(s *string) Value {
		word := Text(s)
		word.accepts, word.rules, word.types = isSingle, []Rule[string]{noNUL}, []string{"string", "number", "boolean"}
		return word
	}).AtLeast(1)
}

func noNUL(s string) string {
	if strings.ContainsRune(s, 0) {
		return "must not hold a NUL character"
	}
	return ""
}

// AtLeast refuses lists with fewer items.
func (l *List[T]) AtLeast(n int) *List[T] {
	l.least = n
	return l
}

// AtMost refuses lists with more items.
func (l *List[T]) AtMost(n int) *List[T] {
	l.most = n
	return l
}

// OrOne also accepts a single value, as a list of one item.
func (l *List[T]) OrOne() *List[T] {
	l.one = true
	return l
}

// Into also calls set with the list that was read, for settings that are not stored in a slice.
func (l *List[T]) Into(set func([]T)) *List[T] {
	l.set = set
	return l
}

func (l *List[T]) initial() string { return "" }

func (l *List[T]) current() string { return fmt.Sprintf("%+v", *l.dst) }

func (l *List[T]) read(d *Decoder, n *Node) {
	if n.Kind != ListNode && l.one {
		items := []T{l.blank}
		l.item(&items[0]).read(d, n)
		*l.dst = items
		return
	}
	if n.Kind != ListNode {
		d.problem(n, "must be a list, is "+describe(n), "")
		return
	}
	if len(n.Items) < l.least {
		d.problem(n, fmt.Sprintf("must hold at least %d", l.least), "")
		return
	}
	if l.most > 0 && len(n.Items) > l.most {
		d.problem(n, fmt.Sprintf("must hold at most %d", l.most), "")
		return
	}
	items := make([]T, len(n.Items))
	for i, v := range n.Items {
		items[i] = l.blank
		d.step(fmt.Sprintf("[%d]", i), v, func(inner *Node) { l.item(&items[i]).read(d, inner) })
	}
	*l.dst = items
	if l.set != nil {
		l.set(items)
	}
}

func isText(n *Node) bool { return n.Kind == TextNode }

// isNumber returns whether a value is a number. A text such as 1e6 may be both.
func isNumber(n *Node) bool { return n.Kind == NumberNode || n.Numeric }

func isSingle(n *Node) bool { return n.Kind == TruthNode || isText(n) || isNumber(n) }

// Entry reads the value of a key of a map.
func Entry[K comparable](dst map[K]float64, k K, v *Ordered[float64]) *Ordered[float64] {
	if x, ok := dst[k]; ok {
		v.start = v.format(x)
	}
	v.Into(func(x float64) { dst[k] = x })
	return v
}

// WordList is one of a few known words, or a list of them.
type WordList[T ~string] struct {
	now, known, alone []T
	set               func([]T)
}

// Words reads one of the known words, or a list of them without repetition, such as [network, cpu]. The words in alone are not
// allowed in a list. now is the value before a file is read.
func Words[T ~string](now []T, set func([]T), known []T, alone ...T) *WordList[T] {
	return &WordList[T]{now: now, known: known, alone: alone, set: set}
}

func (w *WordList[T]) initial() string {
	words := make([]string, len(w.now))
	for i, word := range w.now {
		words[i] = string(word)
	}
	if len(words) == 1 {
		return words[0]
	}
	return "[" + strings.Join(words, ", ") + "]"
}

func (w *WordList[T]) read(d *Decoder, n *Node) {
	if n.Kind == ListNode {
		w.readList(d, n)
		return
	}
	var word T
	single := OneOf(&word, slices.Concat(w.known, w.alone))
	single.kind += ", or a list of them"
	if single.read(d, n); word != "" {
		w.set([]T{word})
	}
}

func (w *WordList[T]) readList(d *Decoder, n *Node) {
	var words []T
	ListOf(&words, "", func(word *T) Value { return OneOf(word, w.known) }).AtLeast(1).read(d, n)
	if !d.Sound(d.path) {
		return
	}
	for i, word := range words {
		if slices.Contains(words[:i], word) {
			d.Refuse(Join(d.path, fmt.Sprintf("[%d]", i)), "", "%s is listed twice", word)
			return
		}
	}
	w.set(words)
}
