package builtin

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
)

// upload is a request's body as the client sends it. It keeps the beginning until it is known that the connection to
// the instance is good, so that another attempt can send the same.
type upload struct {
	body   io.Reader
	kept   []byte
	lost   bool        // bytes were handed out that are not kept
	keep   bool        // whether to go on keeping
	broken atomic.Bool // the client's fault
	late   atomic.Bool // it sent nothing for too long
}

// mostKept is more than the transport reads before it sends the first byte.
const mostKept = 64 << 10

// forget stops keeping, if nothing was read yet: no further attempt is expected.
func (u *upload) forget() {
	if len(u.kept) == 0 {
		u.keep = false
	}
}

// prepare gives an attempt the body from its beginning, and trailers, if the request has them.
func (x *exchange) prepare(attempt *http.Request) {
	if x.upload == nil {
		return
	}
	x.upload.keep = true
	r := &reading{upload: x.upload}
	if attempt.ContentLength < 0 {
		r.request, r.trailer = x.request, http.Header{}
		for k := range x.request.Trailer {
			if mayTrail(k) {
				r.trailer[k] = nil
			}
		}
		attempt.Trailer = r.trailer
	}
	attempt.Body = r
}

// canRepeat says whether another attempt can send the request from its beginning.
func (x *exchange) canRepeat() bool {
	return x.upload == nil || !x.upload.lost && !x.upload.broken.Load()
}

// reading is the body of one attempt. Closing it does nothing, so that a failed attempt leaves the rest to the next;
// the server closes what is under it. Attempts come one after the other.
type reading struct {
	upload  *upload
	at      int           // how much of what is kept it has handed out
	request *http.Request // where trailers arrive
	trailer http.Header   // where they go to; nil: nowhere
}

// Read implements io.Reader.
func (r *reading) Read(b []byte) (int, error) {
	u := r.upload
	if r.at < len(u.kept) {
		n := copy(b, u.kept[r.at:])
		r.at += n
		return n, nil
	}
	n, err := u.body.Read(b)
	switch {
	case n > 0 && u.keep && len(u.kept)+n <= mostKept:
		u.kept = append(u.kept, b[:n]...)
		r.at += n
	case n > 0:
		u.kept, u.keep, u.lost, r.at = nil, false, true, 0
	}
	switch {
	case errors.Is(err, io.EOF):
		r.trail()
	case err != nil:
		u.broken.Store(true)
		u.late.Store(errors.Is(err, os.ErrDeadlineExceeded))
	}
	return n, err
}

// Close implements io.Closer.
func (*reading) Close() error { return nil }

// trail hands over the trailers, announced or not, which have arrived with the body's end.
func (r *reading) trail() {
	if r.trailer == nil {
		return
	}
	for k, v := range r.request.Trailer {
		if mayTrail(k) {
			r.trailer[k] = v
		}
	}
}

// mayTrail leaves out the fields that must not stand in a trailer, because they say how to read, route, authorise or
// answer the request: an instance that merges trailers into the header would take a client's word for the balancer's.
// RFC 9110, section 6.5.1.
func mayTrail(name string) bool {
	if strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Proxy-") || strings.HasPrefix(name, "If-") {
		return false
	}
	switch name {
	case "Transfer-Encoding", "Content-Length", "Trailer", "Te", "Connection", "Keep-Alive", "Upgrade", "Host", "Forwarded",
		"Authorization", "Cookie", "Content-Encoding", "Content-Type", "Content-Range", "Range", "Expect", "Max-Forwards",
		"Cache-Control", "X-Real-Ip", "Via":
		return false
	}
	return true
}
