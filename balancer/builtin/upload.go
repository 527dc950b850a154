package builtin

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

// upload is a client's request body. It keeps the body's beginning until the connection to the instance is known to work, so that another
// attempt can send the same bytes.
type upload struct {
	reading sync.Mutex // held while the transport reads
	over    bool       // the handler has ended: nothing more may be read

	body   io.Reader
	ended  atomic.Bool // the end was read
	kept   []byte
	lost   bool        // bytes were passed on that were not kept
	keep   bool        // whether to keep more bytes
	broken atomic.Bool // the client broke off
	late   atomic.Bool // the client sent nothing for too long
}

// mostKept is more than the transport reads before it sends the first byte.
const mostKept = 64 << 10

// forget stops keeping bytes if nothing was read yet. It is called when no further attempt is expected.
func (u *upload) forget() {
	if len(u.kept) == 0 {
		u.keep = false
	}
}

// prepare gives an attempt the body from its beginning, and the trailers if the request has any.
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

// canRepeat returns whether another attempt can send the request from its beginning.
func (x *exchange) canRepeat() bool {
	return x.upload == nil || !x.upload.lost && !x.upload.broken.Load()
}

// reading is the body of one attempt. Closing it does nothing: if the attempt fails, the next one reads the rest, and the server closes the
// client's body. Attempts run one after the other.
type reading struct {
	upload  *upload
	at      int           // number of kept bytes that it has passed on
	request *http.Request // the client's request, to which trailers are added
	trailer http.Header   // the attempt's trailers; nil: it has none
}

// errOver is the error of reading an upload whose request was answered.
var errOver = errors.New("the request was answered before its body was read")

// Read implements io.Reader.
func (r *reading) Read(b []byte) (int, error) {
	u := r.upload
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.over {
		return 0, errOver
	}
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
		u.ended.Store(true)
		r.trail()
	case err != nil:
		u.broken.Store(true)
		u.late.Store(errors.Is(err, os.ErrDeadlineExceeded))
	}
	return n, err
}

// settle is called when a request on an HTTP/1 connection was answered. If an instance answers early, the transport may
// still read the body; net/http would then read the connection's next request at the same time. So settle waits until the
// transport has stopped, and reads what has arrived. If the client has not sent all of it, no further request can follow,
// and the connection is closed.
func (u *upload) settle(client *inbound) {
	client.seal()
	u.reading.Lock()
	defer u.reading.Unlock()
	u.over = true
	if u.ended.Load() {
		client.unseal()
		return
	}
	if client.framing.bodyArrived() {
		client.unseal()
		_, _ = io.Copy(io.Discard, u.body) // cannot wait for the client; an error closes the connection
	}
}

// Close implements io.Closer.
func (*reading) Close() error { return nil }

// trail copies the trailers, announced or not, to the attempt. Trailers arrive at the end of the body.
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

// mayTrail returns false for fields that must not be in a trailer, because they control framing, routing, authorisation or the response
// (RFC 9110, section 6.5.1). If an instance merges trailers into the header, it would trust such a field from a client as if the balancer
// had set it.
func mayTrail(name string) bool {
	if isForwarded(name) || strings.HasPrefix(name, "Proxy-") || strings.HasPrefix(name, "If-") {
		return false
	}
	switch name {
	case "Transfer-Encoding", "Content-Length", "Trailer", "Te", "Connection", "Keep-Alive", "Upgrade", "Host",
		"Authorization", "Cookie", "Content-Encoding", "Content-Type", "Content-Range", "Range", "Expect", "Max-Forwards",
		"Cache-Control", "X-Real-Ip", "Via":
		return false
	}
	return true
}
