package builtin

import (
	"bytes"
	"strconv"
	"strings"
)

// framing follows the requests on a client's connection. It finds requests whose length is given twice, by
// Content-Length and by Transfer-Encoding, or by a Transfer-Encoding that HTTP/1.0 does not know, and folded header
// lines, which can hide a length. Two servers may disagree on where such a request ends, which allows request smuggling.
// net/http drops the Content-Length silently, so code behind it cannot see the conflict. RFC 9112, sections 5.2, 6.1 and
// 6.3.
//
//	line ──blank──> skipping (Content-Length) ──────────────────────────┐
//	 ^  │                                                               │
//	 │  └─blank──> chunkSize <──> chunkData; size 0 ──> trailer ──blank─┤
//	 └──────────────────────────────────────────────────────────────────┘
//
// Other malformed requests are left to net/http: framing then stops checking.
type framing struct {
	phase    phase
	complete int64  // requests that have arrived completely
	part     []byte // beginning of a line whose end has not arrived yet
	inHead   bool   // the request line has been read
	old      bool   // the request is HTTP/1.0
	sized    bool   // there is a Content-Length, valid or not
	length   int64  // its value
	chunked  bool
	remain   int64 // bytes of the body still to skip
}

type phase int

const (
	inLine phase = iota // in a head
	skipping
	inChunkSize
	inChunkData
	inTrailer
	blind  // the rest is not checked
	frames // the client speaks HTTP/2
)

// inBody returns whether the next byte belongs to a body.
func (f *framing) inBody() bool { return f.phase != inLine && f.phase < blind }

// bodyArrived returns whether all bytes of the present request have arrived.
func (f *framing) bodyArrived() bool { return f.phase == inLine }

// awaitsRequest returns whether the next byte is the first one of a request.
func (f *framing) awaitsRequest() bool { return f.phase == inLine && !f.inHead && len(f.part) == 0 }

// begun returns how many requests have begun to arrive. A client that speaks HTTP/2 sends frames instead.
func (f *framing) begun() int64 {
	if f.phase == frames || f.awaitsRequest() {
		return f.complete
	}
	return f.complete + 1
}

// scan reads the next bytes. It returns the index of the end of the line that makes a request ambiguous, or -1.
func (f *framing) scan(b []byte) int {
	for at := 0; at < len(b); {
		switch f.phase {
		case blind, frames:
			return -1
		case skipping, inChunkData:
			n := min(int64(len(b)-at), f.remain)
			at, f.remain = at+int(n), f.remain-n
			if f.remain == 0 {
				f.bodyPartDone()
			}
		default:
			end := bytes.IndexByte(b[at:], '\n')
			if end < 0 {
				f.part = append(f.part, b[at:]...)
				return -1
			}
			if !f.line(f.whole(b[at : at+end])) {
				f.phase = blind
				return at + end
			}
			at += end + 1
		}
	}
	return -1
}

func (f *framing) bodyPartDone() {
	if f.phase == inChunkData {
		f.phase = inChunkSize
	} else {
		f.requestDone()
	}
}

func (f *framing) requestDone() {
	f.phase = inLine
	f.complete++
}

// whole joins the end of a line with its earlier parts and removes the carriage return.
func (f *framing) whole(last []byte) []byte {
	line := last
	if len(f.part) > 0 {
		line = append(f.part, last...)
		f.part = f.part[:0]
	}
	return bytes.TrimSuffix(line, []byte{'\r'})
}

// preface is the line with which a client begins HTTP/2 (RFC 9113, section 3.4).
const preface = "PRI * HTTP/2.0"

// line reads a whole line and returns whether the request is still unambiguous.
func (f *framing) line(line []byte) bool {
	switch {
	case f.phase == inChunkSize:
		f.chunk(line)
	case f.phase == inTrailer:
		if len(line) == 0 {
			f.requestDone()
		}
	case !f.inHead && isEmpty(line):
	case !f.inHead && f.complete == 0 && string(line) == preface:
		f.phase = frames
	case !f.inHead:
		*f = framing{part: f.part, complete: f.complete, inHead: true, old: bytes.HasSuffix(line, []byte("HTTP/1.0"))}
	case len(line) == 0:
		f.headDone()
	case line[0] == ' ' || line[0] == '\t':
		return false
	default:
		return f.field(line)
	}
	return true
}

// isEmpty returns whether net/http skips a line in front of a request: it does not count carriage returns.
func isEmpty(line []byte) bool { return len(bytes.Trim(line, "\r")) == 0 }

// field checks a header line. It compares names only if their first letter fits.
func (f *framing) field(line []byte) bool {
	switch line[0] | 0x20 {
	case 'c':
		if value, ok := valueOf(line, "content-length"); ok {
			f.sized = true
			f.length, _ = strconv.ParseInt(value, 10, 64) // net/http refuses an invalid one
			return !f.chunked
		}
	case 't':
		if _, ok := valueOf(line, "transfer-encoding"); ok {
			f.chunked = true
			return !f.sized && !f.old
		}
	}
	return true
}

func valueOf(line []byte, name string) (string, bool) {
	if len(line) <= len(name) || line[len(name)] != ':' || !strings.EqualFold(string(line[:len(name)]), name) {
		return "", false
	}
	return strings.Trim(string(line[len(name)+1:]), " \t"), true
}

func (f *framing) headDone() {
	f.inHead = false
	switch {
	case f.chunked:
		f.phase = inChunkSize
	case f.length > 0:
		f.phase, f.remain = skipping, f.length
	default:
		f.requestDone()
	}
}

func (f *framing) chunk(line []byte) {
	digits, _, _ := strings.Cut(string(line), ";")
	n, err := strconv.ParseInt(strings.TrimRight(digits, " \t"), 16, 64)
	switch {
	case err != nil || n < 0:
		f.phase = blind
	case n == 0:
		f.phase = inTrailer
	default:
		f.phase, f.remain = inChunkData, n+2 // includes the line break after the data
	}
}
