package accesslog

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell/balancer/measure"
)

// Format is the log_format that is read, as nginx's configuration has it.
const Format = `log_format quell 'quell1\t$upstream_addr\t$upstream_connect_time\t$upstream_header_time\t$upstream_response_time\t` +
	`$upstream_status\t$status\t$request_time\t$request_completion\t$sent_http_content_type\t$request_uri';`

const (
	formatMark   = "quell1\t"
	formatFields = 10
)

// errOther says that a message of the log is not a line in Quell's format.
var errOther = errors.New("it is not in the format quell")

// attempt is one server that a request was given to.
type attempt struct {
	server              string // its address
	connect, first, all time.Duration
	connected, begun    bool
	status              int // 0: there was none
}

// logged is a request in the log.
type logged struct {
	attempts []attempt
	status   int // that the client got
	took     time.Duration
	complete bool // the client got the whole response
	kind     string
	target   string
}

// parseLine reads one message of the log. Its last field may be cut off.
func parseLine(message []byte) (l logged, err error) {
	_, text, found := strings.Cut(string(message), formatMark)
	if !found {
		return l, errOther
	}
	f := strings.SplitN(strings.TrimRight(text, "\r\n\x00"), "\t", formatFields)
	if len(f) < formatFields {
		return l, errOther
	}
	if l.status, err = strconv.Atoi(f[5]); err != nil {
		return l, errOther
	}
	l.took, _ = seconds(f[6])
	l.complete, l.kind, l.target = f[7] == "OK", f[8], f[9]
	servers, connects, firsts, alls, statuses := split(f[0]), split(f[1]), split(f[2]), split(f[3]), split(f[4])
	if len(connects) != len(servers) || len(firsts) != len(servers) || len(alls) != len(servers) || len(statuses) != len(servers) {
		return l, errOther
	}
	for i, server := range servers {
		a := attempt{server: server}
		a.connect, a.connected = seconds(connects[i])
		a.first, a.begun = seconds(firsts[i])
		a.all, _ = seconds(alls[i])
		a.status, _ = strconv.Atoi(statuses[i])
		l.attempts = append(l.attempts, a)
	}
	return l, nil
}

// split divides a variable that has one value for each attempt: commas separate servers, colons separate internal redirects.
func split(values string) []string {
	return strings.Split(strings.ReplaceAll(values, " : ", ", "), ", ")
}

// seconds reads a time of nginx, in seconds with three decimals; false for "-".
func seconds(text string) (time.Duration, bool) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v < 0 || v > 1e6 {
		return 0, false
	}
	return time.Duration(v * float64(time.Second)).Round(time.Millisecond), true
}

// given returns the attempts at servers with an address. Without one nginx asked nobody, or has no server left and writes the upstream's
// name.
func (l *logged) given() (list []attempt) {
	for _, a := range l.attempts {
		if a.server != "-" && strings.Contains(a.server, ":") && !strings.HasPrefix(a.server, "unix:") {
			list = append(list, a)
		}
	}
	return list
}

// unserved returns the name of the upstream in which nginx had no server to ask; empty if it had one, or asked none.
func (l *logged) unserved() (upstream string) {
	last := l.attempts[len(l.attempts)-1].server
	if len(l.given()) > 0 || last == "-" || strings.Contains(last, ":") {
		return ""
	}
	return last
}

// verdict returns what an attempt counts as, after which nginx asked another server.
func (a *attempt) verdict() measure.Verdict {
	if !a.begun {
		return measure.Failure
	}
	return measure.Judge(measure.Ending{Status: a.status})
}

// clientLeft is the status that nginx logs if the client closed its connection before the response began.
const clientLeft = 499

// ending describes how a request ended at the last server that it was given to.
func (l *logged) ending(a *attempt, moved bool) measure.Ending {
	e := measure.Ending{Status: a.status, Waited: a.all, Patience: measure.Patience, Moved: moved, Stream: measure.IsStream(l.kind)}
	if e.Status == 0 {
		e.Status = l.status
	}
	switch {
	case l.status == clientLeft && !a.begun:
		e.By, e.Phase, e.Waited = measure.ByClient, measure.InWaiting, max(a.all, l.took)
	case l.status == clientLeft, a.begun && !l.complete:
		e.By, e.Phase = measure.ByClient, measure.InAnswer
	case !a.begun:
		e.By, e.Phase = measure.ByInstance, measure.InWaiting
	}
	return e
}
