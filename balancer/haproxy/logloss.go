package haproxy

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/quellhq/quell/internal/terminal"
)

// completeness finds out whether the log has every request that HAProxy counted.
type completeness struct {
	served, gap float64         // requests that HAProxy answered recently, and how many of them the log lacks; older periods count half
	short       bool            // the log lacked requests at the end of the last period, too
	seen        map[string]bool // frontends of lines that were read
	sample      string          // the first line that could not be read, as long as there are some, so that the message stays
}

const (
	// leastGap and leastGapPart are how many requests must be missing in the log, beside those that are still open, and which part of all.
	// Counters and log are read at slightly different times.
	leastGap, leastGapPart = 3, 0.02
	// longestSample is how much of a line is shown.
	longestSample = 200
)

// judge returns an error if the log lacks requests of this window. Lines that cannot be read may be about other backends, so they are
// reported only if requests are missing. frontends returns the names of HAProxy's frontends.
func (c *completeness) judge(w *window, frontends func() []string) error {
	served, open := w.served()
	c.note(&w.log)
	if missing := served - float64(w.log.lines); missing <= 0 {
		c.gap = 0
	} else {
		c.gap = c.gap/2 + missing
	}
	c.served = c.served/2 + served
	before := c.short
	c.short = c.gap > open+max(leastGap, leastGapPart*c.served)
	if w.log.malformed == 0 {
		c.sample = ""
	}
	switch {
	case w.log.malformed > 0 && (c.short || w.log.lines == 0 && served > 0):
		c.sample = cmp.Or(c.sample, w.log.sample)
		return unreadText(w.log.malformed, c.sample, frontends())
	case c.short && (before || w.log.lines == 0):
		return fmt.Errorf("HAProxy answered %.0f requests in a period and logged %d of them here%s: do all frontends have `log global` and "+
			"`option httplog`, its global section this address without a level above info, and nothing `dontlog-normal` or a sample?",
			served, w.log.lines, c.silent(frontends()))
	}
	return nil
}

func (c *completeness) note(log *heardOf) {
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	for name := range log.frontends {
		c.seen[name] = true
	}
}

// silent names the frontends of which no line ever came. It returns "" if lines do not show their frontend.
func (c *completeness) silent(frontends []string) string {
	silent := slices.DeleteFunc(slices.Clone(frontends), func(name string) bool { return c.seen[name] })
	if c.seen[""] || len(silent) == 0 || len(silent) == len(frontends) {
		return ""
	}
	return ", and none of frontend " + strings.Join(silent, ", ")
}

// served returns how many requests were answered in the window, and how many were open on average.
func (w *window) served() (answered, open float64) {
	for _, c := range w.counts {
		answered += float64(c.responses)
		open += c.meanOpen()
	}
	return answered, open
}

// unreadText describes lines that cannot be read, by an example, and says what to do.
func unreadText(lines int64, sample string, frontends []string) error {
	of := ""
	if name := frontendIn(sample, frontends); name != "" {
		of = " of frontend " + name
	}
	return fmt.Errorf("%d lines of a period are %w; for example%s: %s. %s", lines, errMalformed, of,
		terminal.Printable(strings.TrimSpace(sample), longestSample), adviceFor(sample))
}

// frontendIn returns the frontend that a line names, the longest name if it has several.
func frontendIn(line string, frontends []string) (found string) {
	for _, name := range frontends {
		if len(name) > len(found) && regexp.MustCompile(`(^|[^\w.-])`+regexp.QuoteMeta(name)+`($|[^\w.-])`).MatchString(line) {
			found = name
		}
	}
	return found
}

// cutAt is the length of a line that was probably cut off: HAProxy's default is 1024 bytes.
const cutAt = 1000

var (
	threeTimes = regexp.MustCompile(` \S+/\S+ -?\d+/-?\d+/\+?\d+ `)
	connectedA = regexp.MustCompile(`Connect from \S+ to \S+ \(`)
)

// adviceFor says what to do about a line that cannot be read.
func adviceFor(line string) string {
	switch {
	case connectedA.MatchString(line):
		return "These lines are about connections: add `option httplog` to the frontend"
	case threeTimes.MatchString(line):
		return "These lines are about connections: use `mode http` and `option httplog` in the frontend"
	case len(line) >= cutAt:
		return "The line seems to be cut off: write `len 4096` after the address in HAProxy's `log` line"
	}
	return "Add the frontend's log-format to balancer.haproxy.log_format"
}

var (
	priority = regexp.MustCompile(`^<(\d{1,3})>`)
	// notRequests matches messages of severity info that are not about requests: connections that failed before one, changes of servers.
	notRequests = regexp.MustCompile(`(\] \S+/\S+: [A-Z]|^(Server|Health check for server|Backend|Proxy|Stopping|Pausing|Resuming) )`)
)

// aboutRequest returns whether a message that could not be read looks like one about a request. HAProxy logs those with the severity
// info, or error (option log-separate-errors), and everything about servers and itself with another one.
func aboutRequest(message []byte) bool {
	text := message[len(header.Find(message)):]
	if len(text) == 0 || notRequests.Match(text) {
		return false
	}
	if m := priority.FindSubmatch(message); m != nil {
		n, _ := strconv.Atoi(string(m[1]))
		const err, info = 3, 6
		return n%8 == info || n%8 == err
	}
	return strings.ContainsAny(string(text), `"{`)
}

// frontends returns the names of the frontends of all HAProxies that have had requests.
func (d *Driver) frontends(ctx context.Context) (names []string) {
	for _, p := range d.processes {
		if answers, err := p.socket.exec(ctx, "show stat -1 1 -1"); err == nil {
			names = append(names, busyFrontends(answers[0])...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// busyFrontends reads the frontends of `show stat` that have had requests.
func busyFrontends(text string) (names []string) {
	in := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "# ")))
	in.FieldsPerRecord, in.LazyQuotes = -1, true
	records, err := in.ReadAll()
	if err != nil || len(records) == 0 {
		return nil
	}
	columns, err := columnsOf(records[0], "pxname svname req_tot")
	if err != nil {
		return nil
	}
	for _, fields := range records[1:] {
		if r := (row{columns, fields, nil}); r.text("svname") == "FRONTEND" && r.optional("req_tot") > 0 {
			names = append(names, r.text("pxname"))
		}
	}
	return names
}
