package haproxy

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// header is what a log target of HAProxy, or a relay, writes before the message: formats rfc5424, rfc3164 and local, iso, timed, short and
// priority. It matches nothing with format raw.
var header = regexp.MustCompile(`^(?:<\d{1,3}>)?(?:` +
	`1 \S+ \S+ \S+ \S+ \S+ (?:-|(?:\[(?:[^\]\\"]|"(?:[^"\\]|\\.)*")*\])+) ?|` +
	`(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\dT\S+) (?:(?:\S+ )?[^\s:\["{]+(?:\[\d+\])?: )?)?`)

// parse reads a message. ok is false if it is not in this format.
func (f *logFormat) parse(message []byte) (l logged, ok bool, err error) {
	message = message[len(header.Find(message)):]
	var values fields
	if f.pattern == nil {
		if values, ok = f.object(message); !ok {
			return logged{}, false, nil
		}
	} else {
		groups := f.pattern.FindSubmatch(message)
		if groups == nil {
			return logged{}, false, nil
		}
		for i, name := range f.groups {
			values[name] = string(groups[i+1])
		}
	}
	l, err = values.logged()
	return l, true, err
}

// object reads a JSON object, which has the format if it has all names of fields.
func (f *logFormat) object(message []byte) (values fields, ok bool) {
	var object map[string]json.RawMessage
	if json.Unmarshal(message, &object) != nil {
		return values, false
	}
	for name, f := range f.names {
		raw, has := object[name]
		if !has {
			return values, false
		}
		text := string(raw)
		if text == "null" {
			text = ""
		}
		_ = json.Unmarshal(raw, &text) // a number stays as it is written
		values[f] = text
	}
	return values, true
}

// logged makes what a line says of its fields.
func (v *fields) logged() (logged, error) {
	status, err := strconv.Atoi(v[aStatus])
	if err != nil || status < -1 || status > 999 || v[aBackend] == "" || v[aServer] == "" || len(v[aState]) < 2 || len(v[aState]) > 4 {
		return logged{}, errMalformed
	}
	l := logged{backend: v[aBackend], server: v[aServer], frontend: strings.TrimSuffix(v[aFrontend], "~"), target: unescaped(v[aTarget])}
	if strings.HasPrefix(l.server, "<") {
		refused := refusalOf(l.server, status, v[aState])
		return logged{backend: l.backend, frontend: l.frontend, refused: refused}, errNotRequest // <NOSRV>, <STATS>: no instance was involved
	}
	l.refused = refusalOf(l.server, status, v[aState])
	if v[aRequest] != "" {
		l.target = targetOf([]byte(v[aRequest]))
	}
	l.class, _, _ = strings.Cut(unescaped(strings.Trim(v[aClass], "{}")), "|")
	l.class = strings.ToValidUTF8(l.class[:min(len(l.class), 64)], "?")
	t, exact, ok := v.times()
	if !ok {
		return logged{}, errMalformed
	}
	l.end.Moved = isMoved([]string{v[aRetries]})
	l = judge(l, t, status, v[aState])
	if l.counted && exact != unknownTime {
		l.took = exact
	}
	return l, nil
}

// unescaped undoes the escapes of JSON, which the converter json and the flag +E write.
func unescaped(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var clear string
	if json.Unmarshal([]byte(`"`+text+`"`), &clear) != nil {
		return text
	}
	return clear
}

// unknownTime says that a time in microseconds is not known.
const unknownTime = -time.Microsecond

// times returns the five times of httplog, of which a line may lack some, and the response time if the line has it in microseconds.
func (v *fields) times() (t times, exact time.Duration, ok bool) {
	exact = unknownTime
	for i, f := range []field{aTR, aTw, aTc, aTr, aTa} {
		if t[i], ok = readTime(v[f]); !ok {
			return t, exact, false
		}
	}
	data, ok := readTime(v[aTd])
	if !ok {
		return t, exact, false
	}
	if v[aTR] == "" || v[aTa] == "" { // Ta - TR is also the sum of the other four
		if t[0], t[4] = 0, -1; t[1] >= 0 && t[2] >= 0 && t[3] >= 0 && data >= 0 {
			t[4] = t[1] + t[2] + t[3] + data
		}
	}
	if us, err := strconv.ParseInt(v[aMicroseconds], 10, 64); err == nil && us >= 0 && us <= int64(longestTime/time.Microsecond) {
		exact = time.Duration(us) * time.Microsecond
		t[0], t[4] = 0, us/1000
	}
	return t, exact, true
}

// longestTime is the longest time that a line may say.
const longestTime = 24 * time.Hour

// readTime reads a time in milliseconds: -1 for a phase that was not reached, for one that the line does not have, and for one that was
// written before its end (option logasap).
func readTime(text string) (int64, bool) {
	if text == "" || text == "-" || strings.HasPrefix(text, "+") {
		return -1, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= -1 && n <= longestTime.Milliseconds()
}
