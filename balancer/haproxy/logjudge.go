package haproxy

import (
	"slices"
	"strings"

	"github.com/quellhq/quell/balancer/measure"
)

// judge notes how a request ended, and what it counts as by the rules of package measure if nothing is known of its class.
func judge(l logged, t times, status int, ended string) logged {
	if l.connected = t[2] >= 0 && !l.end.Moved; l.connected {
		l.connect = milliseconds(t[2])
	}
	if l.begun = t[3] >= 0; l.begun {
		l.first = milliseconds(max(0, t[1]) + max(0, t[2]) + t[3])
	}
	if t[4] >= 0 {
		l.took = milliseconds(max(0, t[4]-max(0, t[0])))
	}
	e := &l.end
	e.Status, e.Early = max(0, status), t[4] < 0
	e.Waited, e.Patience = max(0, l.took-milliseconds(max(0, t[1]))), measure.Patience
	e.By, e.Phase = endedBy(ended[0], ended[1])
	verdict := measure.Judge(*e)
	l.failed, l.counted = verdict == measure.Failure, verdict == measure.Response
	if !l.counted {
		l.took = 0
	}
	return l
}

// endedBy translates the first two letters of HAProxy's termination state: who ended the session, and in which phase.
func endedBy(cause, phase byte) (measure.Ender, measure.Phase) {
	in := measure.InWaiting
	switch phase {
	case 'Q':
		in = measure.InQueue
	case 'R':
		in = measure.InUpload
	case 'D', 'L', '-':
		in = measure.InAnswer
	}
	switch cause {
	case '-':
		return measure.ByNobody, in
	case 'c':
		if phase == 'H' {
			in = measure.InUpload // `timeout client` ends uploads that stall
		}
		return measure.ByClient, in
	case 'C':
		return measure.ByClient, in
	case 'K', 'U':
		return measure.ByPerson, in
	case 'S', 's':
		if phase == 'Q' {
			return measure.ByBalancer, in
		}
		return measure.ByInstance, in
	case 'D':
		return measure.ByInstance, in
	case 'P':
		if phase == 'H' || phase == 'D' {
			return measure.ByInstance, in // its response was not valid
		}
	}
	if phase == 'Q' {
		in = measure.InWaiting
	}
	return measure.ByBalancer, in // P, R, I, L
}

// verdict returns what a request counts as, and what its time is.
func (l *logged) verdict(firstByte bool) measure.Verdict {
	l.end.FirstByte = firstByte
	v := measure.Judge(l.end)
	if firstByte {
		if l.took = l.first; v == measure.Response && !l.begun {
			v = measure.Demand
		}
	}
	return v
}

// after returns the words that follow a word.
func after(words []string, word string) []string { return words[slices.Index(words, word)+1:] }

// isMoved returns whether the number of retries says that another server was tried before: HAProxy writes a plus before it. It is the last
// of five numbers (httplog), or a word of its own (%rc).
func isMoved(words []string) bool {
	if len(words) == 0 || strings.Count(words[0], "/") != 4 && strings.Contains(words[0], "/") {
		return false
	}
	retries := words[0][strings.LastIndexByte(words[0], '/')+1:]
	number, plus := strings.CutPrefix(retries, "+")
	return plus && number != "" && strings.Trim(number, "0123456789") == ""
}

// showsStream returns whether any captured header is the media type of a stream.
func showsStream(words []string) bool {
	_, captured, _ := strings.Cut(strings.Join(words, " "), "{")
	return slices.ContainsFunc(strings.FieldsFunc(captured, func(r rune) bool { return strings.ContainsRune("{}|", r) }), measure.IsStream)
}
