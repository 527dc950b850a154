package builtin

import (
	"bytes"
	"strconv"
	"strings"
)

// framing follows the requests on a client's connection. It finds requests whose length is given twice, by
// Content-Length and by Transfer-Encoding, or by a Transfer-Encoding that HTTP/1.0 does not know. Two servers may
// disagree on where such a request ends, which allows request smuggling. net/http drops the Content-Length silently, so
// code behind it cannot see the conflict. RFC 9112, sections 6.1 and 6.3.
//
//	line ──blank──> skipping (Content-Length) ──────────────────────────┐
//	 ^  │                                                               │
//	 │  └─blank──> chunkSize <──> chunkData; size 0 ──> trailer ──blank─┤
//	 └──────────────────────────────────────────────────────────────────┘
//
// Other malformed requests are left to net/http: framing then stops checking.
type framing struct {
	phase   phase
	part    []byte // beginning of a line whose end has not arrived yet
	inHead  bool   // the request line has been read
	old     bool   // the request is HTTP/1.0
	length  int64  // Content-Length, -1 if there is none
	chunked bool
	remain  int64 // bytes of the body still to skip
}

type phase int

const (
	inLine phase = iota // in a head
	skipping
	inChunkSize
	inChunkData
	inTrailer
	blind // the rest is not checked
)

// inBody returns whether the next byte belongs to a body.
func (f *framing) inBody() bool { return f.phase != inLine && f.phase != blind }

// scan reads the next bytes. It returns the index of the end of the line that makes a request ambiguous, or -1.
func (f *framing) scan(b []byte) int {
	for at := 0; at < len(b); {
		switch f.phase {
		case blind:
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
		f.phase = inLine
	}
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

// line reads a whole line and returns whether the request is still unambiguous.
func (f *framing) line(line []byte) bool {
	switch {
	case f.phase == inChunkSize:
		f.chunk(line)
	case f.phase == inTrailer:
		if len(line) == 0 {
			f.phase = inLine
		}
	case !f.inHead:
		*f = framing{part: f.part, inHead: true, old: bytes.HasSuffix(line, []byte("HTTP/1.0")), length: -1}
	case len(line) == 0:
		f.headDone()
	default:
		return f.field(line)
	}
	return true
}

// field checks a header line. It compares names only if their first letter fits.
func (f *framing) field(line []byte) bool {
	switch line[0] | 0x20 {
	case 'c':
		if value, ok := valueOf(line, "content-length"); ok {
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 {
				f.length = n
			}
			return !f.chunked
		}
	case 't':
		if _, ok := valueOf(line, "transfer-encoding"); ok {
			f.chunked = true
			return f.length < 0 && !f.old
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
