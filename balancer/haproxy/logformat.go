package haproxy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// logFormat reads lines of one `log-format` of HAProxy. A format of plain text, which may be JSON written by hand, becomes a pattern. One
// that begins with %{+json}o (HAProxy 3.0) becomes a JSON object, which is read by the names of its items.
type logFormat struct {
	pattern *regexp.Regexp // nil: the lines are JSON objects
	groups  []field        // of the pattern's groups
	names   map[string]field
	has     fields
}

// field is something that a line says and Quell uses.
type field int

const (
	unused field = iota
	aBackend
	aServer
	aFrontend
	aStatus
	aState // how the request and its connections ended: %ts or %tsc
	aTR    // the times are named as in HAProxy's manual
	aTw
	aTc
	aTr
	aTd
	aTa
	aRetries
	aMicroseconds // from the end of the request's headers, in microseconds
	aClass
	aTarget // the path, with or without a query
	aRequest
	fieldCount
)

// fields holds the text of each field in a line, or for a format whether it has the field.
type fields [fieldCount]string

// aliases are HAProxy's names of the fields. Each of the others matches text without spaces, unless spaced contains it.
var aliases = map[string]field{
	"b": aBackend, "s": aServer, "f": aFrontend, "ft": aFrontend, "ST": aStatus, "ts": aState, "tsc": aState,
	"TR": aTR, "Tw": aTw, "Tc": aTc, "Tr": aTr, "Td": aTd, "Ta": aTa, "rc": aRetries, "HP": aTarget, "HPO": aTarget, "HU": aTarget,
	"r": aRequest, "hr": aClass,
}

// spaced are the aliases whose text may contain spaces.
var spaced = []string{"T", "Tl", "trg", "trl", "ID", "hrl", "hsl", "HQ"}

// samples are the sample expressions that say the same as an alias.
var samples = map[string]field{
	"be_name": aBackend, "srv_name": aServer, "fe_name": aFrontend, "status": aStatus, "txn.status": aStatus, "txn.sess_term_state": aState,
	"req.timer.hdr": aTR, "req.timer.queue": aTw, "bc.timer.connect": aTc, "res.timer.hdr": aTr, "res.timer.data": aTd,
	"txn.timer.total": aTa, "capture.req.uri": aTarget, "capture.req.hdr(0)": aClass,
}

// sinceHeaders matches the only way in which HAProxy gives microseconds: the present time less that at which the headers were there.
var sinceHeaders = regexp.MustCompile(`^date\(0,us\),sub\([a-z]+\.[\w.]+\)$`)

// What each field looks like. Names and numbers may be in quotes, because of %{+Q}.
const (
	likeName   = `"?([A-Za-z0-9_.:<>~-]+)"?`
	likeNumber = `"?([+-]?\d*)"?`
	likeState  = `"?([A-Za-z-]{2,4})"?`
	likeWord   = `([^\s"]*)`
	likeText   = `(.*?)`
	likeQuoted = `((?:[^"\\]|\\.)*)`
	likeHeader = `(?:\{([^}]*)\})?` // %hr is nothing at all if no header is captured
)

// parseFormat compiles a log-format. The text is what HAProxy gets, or a whole line of its configuration, `log-format "..."`.
func parseFormat(text string) (*logFormat, error) {
	text = strings.TrimSpace(text)
	if rest, ok := strings.CutPrefix(text, "log-format"); ok && strings.TrimLeft(rest, " \t") != rest {
		var err error
		if text, err = unquoteLine(rest); err != nil {
			return nil, err
		}
	}
	items, err := scanFormat(text)
	if err != nil {
		return nil, err
	}
	f := &logFormat{}
	if err := f.compile(items); err != nil {
		return nil, err
	}
	return f, f.lacks()
}

// compile makes the pattern, or the table of names.
func (f *logFormat) compile(items []item) error {
	for _, it := range items {
		f.has[it.field] = "yes"
	}
	if slices.ContainsFunc(items, func(it item) bool { return it.flags.json }) {
		return f.compileJSON(items)
	}
	var p strings.Builder
	p.WriteString(`(?s)^`)
	for i, it := range items {
		before, after := i == 0 || items[i-1].maybeEmpty(), i+1 < len(items) && items[i+1].maybeEmpty()
		p.WriteString(it.pattern(i > 0 && strings.HasSuffix(items[i-1].literal, `"`), before || after))
		if it.literal == "" {
			f.groups = append(f.groups, it.field)
		}
	}
	p.WriteString(`\s*$`)
	var err error
	f.pattern, err = regexp.Compile(p.String())
	return err
}

func (f *logFormat) compileJSON(items []item) error {
	f.names = map[string]field{}
	for _, it := range items {
		switch {
		case it.field == unused || it.literal != "":
		case it.name == "":
			return fmt.Errorf("in JSON, HAProxy needs a name for every item: write %s", it.named())
		default:
			f.names[it.name] = it.field
		}
	}
	return nil
}

// lacks returns an error that names what a format must have in addition.
func (f *logFormat) lacks() error {
	var missing []string
	need := func(what string, has ...field) {
		if !slices.ContainsFunc(has, func(x field) bool { return f.has[x] != "" }) {
			missing = append(missing, what)
		}
	}
	need("%b (the backend)", aBackend)
	need("%s (the server)", aServer)
	need("%ST (the status)", aStatus)
	need("%ts (how the request ended)", aState)
	if f.has[aMicroseconds] == "" && !(f.has[aTw] != "" && f.has[aTc] != "" && f.has[aTr] != "" && f.has[aTd] != "") {
		need("%TR (the time of the request's headers)", aTR)
		need("%Ta (the request's whole time)", aTa)
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("lacks %s: add it to the log-format in HAProxy's configuration, and here", strings.Join(missing, ", "))
}

// item is a part of a log-format: text, or something that HAProxy fills in.
type item struct {
	literal string // with spaces as HAProxy writes them: one for any number
	alias   string
	sample  string
	name    string
	flags   flags
	field   field
}

// flags are those of %{...} that change what a line looks like.
type flags struct{ quote, json bool }

// maybeEmpty returns whether HAProxy leaves the item out, with the space after it, if there is nothing to say.
func (it *item) maybeEmpty() bool {
	return slices.Contains([]string{"hr", "hs", "hrl", "hsl"}, it.alias)
}

func (it *item) named() string {
	if it.sample != "" {
		return "%(NAME)[" + it.sample + "]"
	}
	return "%(NAME)" + it.alias
}

// pattern returns a regular expression for the item, with one group unless it is text. inQuotes says that the text before it ends with a
// quotation mark, loose that a space may be missing.
func (it *item) pattern(inQuotes, loose bool) string {
	switch {
	case it.literal != "":
		return spacesOf(it.literal, loose)
	case it.maybeEmpty() && (it.alias == "hr" || it.alias == "hs") && !it.flags.quote:
		return likeHeader
	}
	switch f := it.field; {
	case f == aBackend || f == aServer || f == aFrontend:
		return likeName
	case f == aStatus || f >= aTR && f <= aMicroseconds:
		return likeNumber
	case f == aState:
		return likeState
	case it.flags.quote:
		return `"` + likeQuoted + `"`
	case inQuotes:
		return likeQuoted
	case it.sample == "" && f != aRequest && !slices.Contains(spaced, it.alias) || f == aTarget:
		return likeWord
	}
	return likeText
}

// spacesOf quotes text for a pattern. Where it has spaces, a line has one, or none beside an item that may be missing.
func spacesOf(text string, loose bool) string {
	parts := strings.Split(text, " ")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	if loose {
		return strings.Join(parts, " *")
	}
	return strings.Join(parts, " +")
}

// scanFormat splits a log-format into its items.
func scanFormat(text string) (items []item, err error) {
	var common flags
	for rest := text; rest != ""; {
		at := strings.IndexByte(rest, '%')
		if at != 0 {
			if at < 0 {
				at = len(rest)
			}
			items = appendText(items, rest[:at])
			rest = rest[at:]
			continue
		}
		if strings.HasPrefix(rest, "%%") {
			items, rest = appendText(items, "%"), rest[2:]
			continue
		}
		var it item
		if it, rest, err = scanItem(rest, common); err != nil {
			return nil, err
		}
		if it.alias == "o" { // it writes nothing, and sets the flags of all that follow
			common = it.flags
			rest = strings.TrimLeft(rest, " ")
			continue
		}
		items = append(items, it)
	}
	if common.json {
		for i := range items {
			items[i].flags.json = true
		}
	}
	return items, nil
}

// appendText appends text, to the last item if that is text, too. HAProxy writes one space for several.
func appendText(items []item, text string) []item {
	if n := len(items); n > 0 && items[n-1].literal != "" {
		items[n-1].literal = manySpaces.ReplaceAllString(items[n-1].literal+text, " ")
		return items
	}
	return append(items, item{literal: manySpaces.ReplaceAllString(text, " ")})
}

var manySpaces = regexp.MustCompile(`[ \t]+`)

var (
	itemStart = regexp.MustCompile(`^%(?:\(([^)]*)\))?(?:\{([^}]*)\})?`)
	aliasName = regexp.MustCompile(`^[A-Za-z0-9]+`)
)

// scanItem reads %(name){flags}alias or %(name){flags}[expression]. Name and flags may be missing.
func scanItem(text string, common flags) (it item, rest string, err error) {
	m := itemStart.FindStringSubmatch(text)
	it.flags = common
	it.name, _, _ = strings.Cut(m[1], ":") // a type may follow
	for arg := range strings.SplitSeq(m[2], ",") {
		switch arg = strings.TrimSpace(arg); arg {
		case "+Q", "-Q":
			it.flags.quote = arg == "+Q"
		case "+json", "-json":
			it.flags.json = arg == "+json"
		case "+cbor":
			return it, "", errors.New("%{+cbor} is not supported: use %{+json}, or a format of text")
		}
	}
	rest = text[len(m[0]):]
	if strings.HasPrefix(rest, "[") {
		end := endOfExpression(rest)
		if end < 0 {
			return it, "", fmt.Errorf("%q has no closing bracket", shorten(text))
		}
		it.sample = strings.ReplaceAll(rest[1:end], " ", "")
		it.field = meaningOf(it.sample)
		return it, rest[end+1:], nil
	}
	if it.alias = aliasName.FindString(rest); it.alias == "" {
		return it, "", fmt.Errorf("%q is not an item of a log-format; a percent sign is written %%%%", shorten(text))
	}
	it.field = aliases[it.alias]
	return it, rest[len(it.alias):], nil
}

// endOfExpression returns the position of the bracket that closes the first one, -1 if there is none.
func endOfExpression(text string) int {
	depth, quote := 0, byte(0)
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case (c == '"' || c == '\'') && depth > 0:
			quote = c
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ']' && depth <= 0:
			return i
		}
	}
	return -1
}

// meaningOf returns what a sample expression says. Converters that only change its notation do not matter.
func meaningOf(expression string) field {
	if sinceHeaders.MatchString(expression) {
		return aMicroseconds
	}
	fetch, converters, _ := strings.Cut(expression, ",")
	if converters != "" && !strings.HasPrefix(converters, "json") {
		return unused
	}
	return samples[fetch]
}

// unquoteLine undoes the quoting of HAProxy's configuration in the argument of log-format.
func unquoteLine(text string) (string, error) {
	var out strings.Builder
	quote := byte(0)
	text = strings.TrimSpace(text)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote == '\'' && c != '\'':
			out.WriteByte(c)
		case c == '\\' && i+1 < len(text):
			i++
			out.WriteByte(text[i])
		case c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == '"' && c == '$' && i+1 < len(text) && text[i+1] != '%':
			return "", errors.New("has a variable of the environment: write its value instead")
		case quote == 0 && c == '#':
			return out.String(), nil
		case quote == 0 && (c == ' ' || c == '\t'):
			if rest := strings.TrimSpace(text[i:]); rest != "" && rest[0] != '#' {
				return "", errors.New("is a line of HAProxy's configuration with more than one argument: put quotes around the format")
			}
		default:
			out.WriteByte(c)
		}
	}
	if quote != 0 {
		return "", fmt.Errorf("has an opening %c and no closing one", quote)
	}
	return out.String(), nil
}
