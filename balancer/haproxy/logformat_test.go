package haproxy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/balancer/measure"
)

// The formats of the tests. httplogText is what `option httplog` stands for, as HAProxy's manual gives it.
const (
	httplogText = `%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r`
	jsonText    = `{"client":"%ci","frontend":"%f","backend":"%b","server":"%s","status":%ST,"state":"%ts","TR":%TR,"Tc":%Tc,"Ta":%Ta,` +
		`"path":"%[capture.req.uri,json(utf8s)]","agent":"%[capture.req.hdr(0),json(utf8s)]"}`
	shortText = `%s.%b %ST %TR+%Ta %tsc`
	exactText = `%b %s %ST %ts us=%[date(0,us),sub(txn.quell_start)]`
	namedText = `%{+json}o %(be)b %(srv)s %(code)ST %(ts)ts %(TR)TR %(Ta)Ta %(Tc)Tc %(req)r %(agent)[capture.req.hdr(0)]`
)

func TestOwnFormats(t *testing.T) {
	const other = "<134>1 2026-11-21T23:29:59+00:00 host haproxy 1 - - "
	for _, c := range []struct {
		name, format, line string
		want               logged
	}{
		{"JSON by hand", jsonText, head + `{"client":"1.2.3.4","frontend":"json","backend":"b","server":"s1","status":200,"state":"--","TR":3,"Tc":2,"Ta":25,"path":"\/a \"b","agent":"curl\/8"}`,
			logged{backend: "b", server: "s1", frontend: "json", target: `/a "b`, class: "curl/8", took: ms(22), counted: true, connect: ms(2), connected: true}},
		{"a short one", shortText, other + `s1.b 200 1+10 ----`, logged{backend: "b", server: "s1", took: ms(9), counted: true}},
		{"a failure", shortText, "s1.b 503 0+-1 SC--", logged{backend: "b", server: "s1", failed: true}},
		{"logged before its end", shortText, "s1.b 200 0+12 ----", logged{backend: "b", server: "s1", took: ms(12), counted: true}},
		{"microseconds", exactText, "<134>Nov  1 23:29:59 host haproxy[1]: b s1 200 -- us=1234",
			logged{backend: "b", server: "s1", took: 1234 * time.Microsecond, counted: true}},
		{"microseconds that are not known", exactText, head + "b s1 200 -- us=", logged{backend: "b", server: "s1"}},
		{"HAProxy's own JSON", namedText, head + `{"be": "b", "srv": "s1", "code": 200, "ts": "--", "TR": 0, "Ta": 7, "Tc": 0, "req": "GET /x?y HTTP/1.1", "agent": null}`,
			logged{backend: "b", server: "s1", target: "/x?y", took: ms(7), counted: true, connected: true}},
		{"httplog in its own words, with captures", httplogText, head +
			`1.2.3.4:35062 [21/Nov/2026:23:29:59.521] f~ b/s1 3/0/2/10/25 200 549 - - ---- 1/1/0/0/0 0/0 {foo|bar} "GET /p HTTP/1.1"`,
			logged{backend: "b", server: "s1", frontend: "f", target: "/p", class: "foo", took: ms(22), counted: true,
				connect: ms(2), connected: true}},
		{"and without", httplogText, head + `1.2.3.4:35062 [21/Nov/2026:23:29:59.521] f b/s1 3/0/2/10/25 200 549 - - ---- 1/1/0/0/0 0/0 "GET /p HTTP/1.1"`,
			logged{backend: "b", server: "s1", frontend: "f", target: "/p", took: ms(22), counted: true, connect: ms(2), connected: true}},
		{"the sum of the phases", `%b/%s %Tw/%Tc/%Tr/%Td %ST %ts`, head + "b/s1 1/2/3/4 200 --",
			logged{backend: "b", server: "s1", took: ms(10), counted: true, connect: ms(2), connected: true}},
		{"a line of haproxy.cfg", `log-format "quoted \"%b\" %s %ST %ts %TR/%Ta" # comment`, `quoted "b" s1 200 -- 0/4`,
			logged{backend: "b", server: "s1", took: ms(4), counted: true}},
		{"one without quotes", `log-format %b\ %s\ %ST\ %ts\ %TR/%Ta\ 100%%`, `b s1 200 -- 0/4 100%`,
			logged{backend: "b", server: "s1", took: ms(4), counted: true}},
		{"quotes everywhere", `%{+Q}o %b %s %{-Q}ST %ts %TR/%Ta %HP`, `"b" "s1" 200 "--" 0/4 "/a%20b"`,
			logged{backend: "b", server: "s1", target: "/a%20b", took: ms(4), counted: true}},
	} {
		f, err := parseFormat(c.format)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, ok, err := f.parse([]byte(c.line))
		got.end, got.first, got.begun = measure.Ending{}, 0, false
		if got != c.want || !ok || err != nil {
			t.Errorf("%s: %+v, %v, %v; want %+v", c.name, got, ok, err, c.want)
		}
		if _, ok, _ := f.parse([]byte(head + "Server b/s1 is UP, reason: Layer4 check passed.")); ok {
			t.Errorf("%s: a notice was taken for a request", c.name)
		}
	}
}

func TestFormatsThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct{ format, want string }{
		{`%b %s %ST %TR %Ta`, "lacks %ts (how the request ended)"},
		{`%ci`, "lacks %b (the backend), %s (the server), %ST (the status), %ts (how the request ended), %TR"},
		{`%b %s %ST %ts %Tr`, "lacks %TR (the time of the request's headers), %Ta"},
		{`%b %`, "is not an item of a log-format"},
		{`%b %[srv_name`, "has no closing bracket"},
		{`%{+cbor}o %b`, "%{+cbor} is not supported"},
		{`%{+json}o %b %(s)s %(st)ST %(ts)ts %(a)TR %(b)Ta`, "write %(NAME)b"},
		{`log-format "%b %s`, "an opening \" and no closing one"},
		{`log-format "${FORMAT}"`, "a variable of the environment"},
		{`log-format %b %s`, "more than one argument"},
	} {
		if _, err := parseFormat(c.format); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.format, err, c.want)
		}
	}
}

// A line in a configured format whose values make no sense is not read.
func TestOwnFormatsWithOddValues(t *testing.T) {
	f, err := parseFormat(shortText)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]error{
		"s1.b 1200 1+10 ----": errMalformed, "s1.b  1+10 ----": errMalformed, "s1.b 200 1+999999999999 ----": errMalformed,
		"<NOSRV>.b 503 0+-1 SC--": errNotRequest,
	} {
		if _, ok, err := f.parse([]byte(line)); !ok || !errors.Is(err, want) {
			t.Errorf("%s: %v, %v; want %v", line, ok, err, want)
		}
	}
}

func FuzzParseFormat(f *testing.F) {
	for _, text := range []string{httplogText, jsonText, shortText, exactText, namedText, `log-format "%b\" $" '%%`, "%(a:int){+Q,-X}[f(\"]\"),json]"} {
		f.Add(text, head+`b s1 200 -- us=1234`)
	}
	f.Fuzz(func(t *testing.T, format, line string) {
		parsed, err := parseFormat(format)
		if err != nil {
			return
		}
		l, ok, err := parsed.parse([]byte(line))
		if ok && err == nil && (l.server == "" || l.backend == "" || l.took < 0 || l.counted && l.failed) {
			t.Errorf("%q in %q gives %+v", line, format, l)
		}
	})
}

func BenchmarkOwnFormat(b *testing.B) {
	for name, c := range map[string][2]string{
		"json": {jsonText, `{"client":"1.2.3.4","frontend":"json","backend":"b","server":"s1","status":200,"state":"--","TR":3,"Tc":2,"Ta":25,"path":"\/a","agent":"x"}`},
		"http": {httplogText, `1.2.3.4:35062 [21/Nov/2026:23:29:59.521] f b/s1 3/0/2/10/25 200 549 - - ---- 1/1/0/0/0 0/0 "GET /p HTTP/1.1"`},
	} {
		f, err := parseFormat(c[0])
		if err != nil {
			b.Fatal(err)
		}
		line := fmt.Append(nil, head, c[1])
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, ok, _ := f.parse(line); !ok {
					b.Fatal("not read")
				}
			}
		})
	}
}
