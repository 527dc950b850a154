package haproxy

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell/balancer/measure"
)

// logged is what one line of HAProxy's log says about a request.
type logged struct {
	backend, server string
	frontend        string        // empty if the line does not show it
	class           string        // first captured request header, or of what class its path is; empty if neither is known
	target          string        // path and query of the request; empty if the line does not show them
	took            time.Duration // response time, if counted
	counted         bool          // it succeeded, and took is known
	connect         time.Duration // time until the connection to the server was open; 0 for a kept connection, too
	connected       bool
	failed          bool
	first           time.Duration // time until the response began, if the line shows it
	begun           bool          // it shows it
	end             measure.Ending
	refused         refusal
}

var (
	errNotRequest = errors.New("not about a request")
	errMalformed  = errors.New("in a format that Quell does not know")
)

// parseLog reads a message in the format of `option httplog`, or in Quell's short one,
//
//	quell %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %tsc %rc {%[capture.req.hdr(0)]} "%HM %HP"
//
// with any syslog header before it: parsing starts at the first word that consists of five times. In the short format, retries,
// captures and request may be missing. Other messages, for example that a server is down, are errNotRequest.
//
// A request's response time is Ta - TR: from its last header line to the last byte of the response. The built-in
// balancer measures the same. TR is the time the client takes to send its headers. Neither Ta nor TR includes
// the idle time of a kept connection. HAProxy logs whole milliseconds.
func parseLog(message []byte) (logged, error) {
	head, request, _ := bytes.Cut(message, []byte{'"'})
	words := strings.Fields(string(head))
	for i, w := range words {
		if times, ok := fiveTimes(w); ok && i > 0 {
			l, err := parseRequest(words[i-1], times, words[i+1:])
			if l.frontend = ""; i > 1 {
				l.frontend = frontendOf(words[i-2])
			}
			if err == nil {
				l.target = targetOf(request)
			}
			return l, err
		}
	}
	if bytes.Contains(head, []byte(" quell ")) || aboutRequest(message) {
		return logged{}, errMalformed
	}
	return logged{}, errNotRequest
}

// frontendOf returns the frontend that stands before the backend in httplog; a ~ after it says that the connection was encrypted. In the
// short format another word stands there.
func frontendOf(word string) string {
	if word == "quell" || strings.ContainsAny(word, "[]:") {
		return ""
	}
	return strings.TrimSuffix(word, "~")
}

// times are TR, Tw, Tc, Tr, Ta in milliseconds; -1 for a phase that the request did not reach.
type times [5]int64

func fiveTimes(word string) (t times, ok bool) {
	parts := strings.Split(word, "/")
	if len(parts) != len(t) {
		return t, false
	}
	for i, p := range parts {
		n, err := strconv.ParseInt(strings.TrimPrefix(p, "+"), 10, 64)
		if err != nil || n < -1 || n > int64(24*time.Hour/time.Millisecond) {
			return t, false
		}
		t[i] = n
	}
	if strings.HasPrefix(parts[4], "+") {
		t[4] = -1 // option logasap is set: the line was written before the request's end
	}
	return t, true
}

// parseRequest parses the rest of a line after the times: status, bytes and cookies (not in the short format), how the session ended, and
// the captured headers.
func parseRequest(path string, t times, rest []string) (logged, error) {
	backend, server, ok := strings.Cut(path, "/")
	if !ok || backend == "" || server == "" || len(rest) < 2 {
		return logged{}, errMalformed
	}
	status, err := strconv.Atoi(rest[0])
	if err != nil || status < -1 || status > 999 {
		return logged{}, errMalformed
	}
	ended := rest[1]
	if _, err := strconv.ParseUint(strings.TrimPrefix(ended, "+"), 10, 64); err == nil {
		if len(rest) < 5 {
			return logged{}, errMalformed
		}
		ended = rest[4]
	}
	if len(ended) < 2 || len(ended) > 4 {
		return logged{}, errMalformed
	}
	if strings.HasPrefix(server, "<") {
		return logged{backend: backend, refused: refusalOf(server, status, ended)}, errNotRequest // <NOSRV>, <STATS>: no instance was involved
	}
	l := logged{backend: backend, server: server, class: classOf(rest), refused: refusalOf(server, status, ended)}
	l.end.Moved, l.end.Stream = isMoved(after(rest, ended)), showsStream(rest)
	return judge(l, t, status, ended), nil
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// targetOf returns the second word of what follows the first quotation mark, as in `GET /path?query HTTP/1.1"`. HAProxy cuts long requests
// off, and writes <BADREQ> for one that it cannot read.
func targetOf(request []byte) string {
	request, _, _ = bytes.Cut(request, []byte{'"'})
	if _, rest, ok := bytes.Cut(request, []byte{' '}); ok {
		request, _, _ = bytes.Cut(rest, []byte{' '})
	}
	return string(request)
}

// classOf returns the first captured request header. HAProxy writes them as {one|two} and escapes braces and bars
// inside.
func classOf(words []string) string {
	text := strings.Join(words, " ")
	_, captured, ok := strings.Cut(text, "{")
	if !ok {
		return ""
	}
	captured, _, _ = strings.Cut(captured, "}")
	class, _, _ := strings.Cut(captured, "|")
	return strings.ToValidUTF8(class[:min(len(class), 64)], "?")
}
