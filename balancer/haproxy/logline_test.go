package haproxy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/balancer/measure"
)

const head = "<134>Nov 21 23:29:59 haproxy[12616]: "

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestParseLog(t *testing.T) {
	for _, c := range []struct {
		name, line string
		want       logged
		err        error
	}{
		{"httplog with a class",
			head + `127.0.0.1:35062 [21/Nov/2026:23:29:59.521] f b/s1 3/0/2/10/25 200 549 - - ---- 1/1/0/0/0 0/0 {foo|bar} "GET / HTTP/1.1"`,
			logged{backend: "b", server: "s1", target: "/", class: "foo", took: ms(22), counted: true, connect: ms(2), connected: true}, nil},
		{"httplog behind an RFC 5424 header, without captures",
			`<134>1 2026-11-21T23:29:59+00:00 host haproxy 1 - - 1.2.3.4:1 [21/Nov/2026:23:29:59.521] f b/s1 0/0/0/7/7 304 9 - - ---- 1/1/0/0/0 0/0 "GET /{x} HTTP/1.1"`,
			logged{backend: "b", server: "s1", target: "/{x}", took: ms(7), counted: true, connected: true}, nil},
		{"the short format",
			head + `quell b/s1 0/0/1/5/9 200 -- {video}`,
			logged{backend: "b", server: "s1", class: "video", took: ms(9), counted: true, connect: ms(1), connected: true}, nil},
		{"the short format without captures",
			head + `quell b/s1 0/0/1/5/9 404 -- {}`,
			logged{backend: "b", server: "s1", took: ms(9), counted: true, connect: ms(1), connected: true}, nil},
		{"the short format with the request",
			head + `quell b/s1 0/0/1/5/9 200 -- {video} "GET /a?b"`,
			logged{backend: "b", server: "s1", class: "video", target: "/a?b", took: ms(9), counted: true, connect: ms(1), connected: true}, nil},
		{"the request alone", head + `quell b/s1 0/0/0/5/9 200 -- "POST /a b`,
			logged{backend: "b", server: "s1", target: "/a", took: ms(9), counted: true, connected: true}, nil},
		{"a request that HAProxy cannot read", head + `c:1 [d] f b/s1 0/0/0/5/9 400 9 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>"`,
			logged{backend: "b", server: "s1", target: "<BADREQ>", connected: true}, nil},
		{"5xx is a failure", head + `quell b/s1 0/0/0/5/9 500 -- {}`, logged{backend: "b", server: "s1", connected: true, failed: true}, nil},
		{"no connection", head + `c:1 [d] f b/s1 0/0/-1/-1/1003 503 217 - - SC-- 1/1/0/0/3 0/0 "GET / HTTP/1.1"`,
			logged{backend: "b", server: "s1", target: "/", failed: true}, nil},
		{"a client that was tired of waiting", head + `c:1 [d] f b/s1 0/0/1/-1/2000 -1 0 - - CH-- 1/1/0/0/0 0/0 "GET / HTTP/1.1"`,
			logged{backend: "b", server: "s1", target: "/", connect: ms(1), connected: true, failed: true}, nil},
		{"a client that went away while it was served is no failure, nor a response time",
			head + `c:1 [d] f b/s1 0/0/1/5/2000 200 99 - - CD-- 1/1/0/0/0 0/0 "GET / HTTP/1.1"`,
			logged{backend: "b", server: "s1", target: "/", connect: ms(1), connected: true}, nil},
		{"a server that broke off", head + `c:1 [d] f b/s1 0/0/1/5/2000 200 99 - - SD-- 1/1/0/0/0 0/0 "GET / HTTP/1.1"`,
			logged{backend: "b", server: "s1", target: "/", connect: ms(1), connected: true, failed: true}, nil},
		{"an upgraded connection", head + `c:1 [d] f b/s1 0/0/1/5/90000 101 99 - - ---- 1/1/0/0/0 0/0 "GET / HTTP/1.1"`,
			logged{backend: "b", server: "s1", target: "/", connect: ms(1), connected: true}, nil},
		{"written before its end", head + `c:1 [d] f b/s1 0/0/1/5/+6 200 +99 - - ---- 1/1/0/0/0 0/0 "GET / HTTP/1.1"`,
			logged{backend: "b", server: "s1", target: "/", connect: ms(1), connected: true}, nil},
		{"nobody served it", head + `c:1 [d] f b/<NOSRV> 0/-1/-1/-1/0 503 217 - - SC-- 1/1/0/0/0 0/0 "GET / HTTP/1.1"`,
			logged{backend: "b", refused: unserved}, errNotRequest},
		{"a queue that was too long, for any server", head + `c:1 [d] f b/<NOSRV> 0/100/-1/-1/100 503 217 - - sQ-- 1/1/0/0/0 0/1 "GET / HTTP/1.1"`,
			logged{backend: "b", refused: queued}, errNotRequest},
		{"a server's queue that was too long", head + `c:1 [d] f b/s1 0/100/-1/-1/100 503 217 - - sQ-- 1/1/0/0/0 1/0 "GET / HTTP/1.1"`,
			logged{backend: "b", server: "s1", target: "/", refused: queued}, nil},
		{"denied by a rule", head + `c:1 [d] f b/<NOSRV> 0/-1/-1/-1/0 403 217 - - PR-- 1/1/0/0/0 0/0 "GET / HTTP/1.1"`,
			logged{backend: "b"}, errNotRequest},
		{"a notice", head + `Server b/s1 is UP, reason: Layer4 check passed. 1 active and 0 backup servers online.`, logged{}, errNotRequest},
		{"another format", head + `c:1 [d] GET "/" 200`, logged{}, errMalformed},
		{"cut off", head + `c:1 [d] f b/s1 0/0/1/5/6 200`, logged{}, errMalformed},
		{"a status of letters", head + `quell b/s1 0/0/1/5/9 abc -- {}`, logged{}, errMalformed},
		{"times that cannot be", head + `quell b/s1 0/0/1/5/-9 200 -- {}`, logged{}, errMalformed},
		{"empty", "", logged{}, errNotRequest},
	} {
		got, err := parseLog([]byte(c.line))
		if httplog := strings.Contains(c.line, "] f b/"); httplog != (got.frontend == "f") {
			t.Errorf("%s: frontend %q", c.name, got.frontend)
		}
		got.frontend, got.end, got.first, got.begun = "", measure.Ending{}, 0, false
		if !errors.Is(err, c.err) || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.name, got, err, c.want, c.err)
		}
	}
}

func FuzzParseLog(f *testing.F) {
	f.Add([]byte(head +
		`127.0.0.1:35062 [21/Nov/2026:23:29:59.521] f b/s1 3/0/2/10/25 200 549 - - ---- 1/1/0/0/0 0/0 {foo|bar} "GET / HTTP/1.1"`))
	f.Add([]byte(head + `quell b/s1 0/0/1/5/9 200 -- {video}`))
	f.Add([]byte(head + `c:1 [d] f b/s1 0/0/1/5/+6 200 +99 - - ---- {`))
	f.Fuzz(func(t *testing.T, line []byte) {
		l, err := parseLog(line)
		if err != nil {
			return
		}
		if l.server == "" || l.backend == "" || l.took < 0 || l.connect < 0 || len(l.class) > 64*3 || l.counted && l.failed ||
			strings.ContainsAny(l.class, "{}|\"") {
			t.Errorf("%q gives %+v", line, l)
		}
	})
}
