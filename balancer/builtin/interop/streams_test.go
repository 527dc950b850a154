package interop

import (
	"strings"

	"golang.org/x/net/http2"
)

const (
	closedStream = "stream STREAM_CLOSED|connection STREAM_CLOSED|closed"
	badStream    = "connection PROTOCOL_ERROR|closed"
	badRequest   = "stream PROTOCOL_ERROR|connection PROTOCOL_ERROR|closed|400"
)

func streamCases() []frames {
	const idle = "connection PROTOCOL_ERROR|closed"
	return []frames{
		{name: "a request", send: func(p *peer) { p.request(1, true) }, want: "200", served: 1},
		{name: "a request with a body", send: func(p *peer) { p.post(1); p.WriteData(1, true, []byte("data")) }, want: "200", served: 1},
		{name: "a body with padding", send: func(p *peer) { p.post(1); p.WriteDataPadded(1, true, []byte("data"), make([]byte, 9)) },
			want: "200", served: 1},
		{name: "a body with trailers", want: "200", served: 1, send: func(p *peer) {
			p.post(1)
			p.WriteData(1, false, []byte("data"))
			p.headers(1, true, "x-sum", "42")
		}},
		{name: "a header in three parts", want: "200", served: 1, send: func(p *peer) {
			b := p.block(append(plain[:8:8], "x-long", strings.Repeat("x", 50))...)
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:3], EndStream: true})
			p.WriteContinuation(1, false, b[3:6])
			p.WriteContinuation(1, true, b[6:])
		}},
		{name: "another frame between the parts of a header", want: badStream, send: func(p *peer) {
			b := p.block(plain...)
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:3], EndStream: true})
			p.WritePing(false, [8]byte{1})
		}},
		{name: "a continuation behind a whole header", want: badStream + "|200", served: 1,
			send: func(p *peer) { p.request(1, true); p.WriteContinuation(1, true, nil) }},
		{name: "data on an idle stream", send: func(p *peer) { p.WriteData(1, true, []byte("data")) }, want: idle},
		{name: "a reset of an idle stream", send: func(p *peer) { p.WriteRSTStream(1, http2.ErrCodeCancel) }, want: idle},
		{name: "an update of an idle stream's window", send: func(p *peer) { p.WriteWindowUpdate(1, 100) }, want: idle},
		{name: "a stream of an even number", send: func(p *peer) { p.request(2, true) }, want: idle},
		{name: "a stream of a lower number", want: badStream + "|" + closedStream + "|200", served: 1,
			send: func(p *peer) { p.request(5, true); p.request(3, true) }},
		{name: "data behind the end of a request", want: closedStream + "|200", served: 1,
			send: func(p *peer) { p.post(1); p.WriteData(1, true, nil); p.WriteData(1, true, []byte("more")) }},
		{name: "a header behind the end of a request", want: closedStream + "|200", served: 1,
			send: func(p *peer) { p.post(1); p.WriteData(1, true, nil); p.request(1, true) }},
		{name: "data behind a reset", want: closedStream, served: 1,
			send: func(p *peer) {
				p.post(1)
				p.WriteRSTStream(1, http2.ErrCodeCancel)
				p.WriteData(1, true, []byte("more"))
			}},
		{name: "a second header without an end", want: badRequest, served: 1,
			send: func(p *peer) { p.post(1); p.headers(1, false, "x-sum", "42") }},
		{name: "a stream that depends on itself", want: "stream PROTOCOL_ERROR|" + badStream + "|200", served: 1, send: func(p *peer) {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.block(plain...), EndHeaders: true, EndStream: true,
				Priority: http2.PriorityParam{StreamDep: 1}})
		}},
		{name: "an update of 0 of a stream's window", want: "stream PROTOCOL_ERROR|" + badStream, served: 1,
			send: func(p *peer) { p.post(1); p.WriteRawFrame(http2.FrameWindowUpdate, 0, 1, make([]byte, 4)) }},
		{name: "a window of a stream that overflows", want: "stream FLOW_CONTROL_ERROR|connection FLOW_CONTROL_ERROR|closed", served: 1,
			send: func(p *peer) { p.post(1); p.WriteWindowUpdate(1, 1<<31-1) }},
		{name: "padding longer than the frame", want: badStream, served: 1, send: func(p *peer) {
			p.post(1)
			p.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte("\x09data"))
		}},
		{name: "more streams than allowed", want: "stream REFUSED_STREAM|stream PROTOCOL_ERROR|" + badStream, full: true, served: 300,
			send: func(p *peer) {
				for i := range uint32(300) {
					p.post(1 + 2*i)
				}
			}},
	}
}

func headerCases() []frames {
	bad := func(name string, fields ...string) frames {
		return frames{name: name, want: badRequest, send: func(p *peer) { p.headers(1, true, fields...) }}
	}
	with := func(name string, more ...string) frames {
		return bad(name, append(append([]string{}, plain...), more...)...)
	}
	return []frames{
		with("a name in capitals", "X-A", "1"),
		with("a name with a blank", "x a", "1"),
		with("a value with a line break", "x-a", "1\r\nx-b: 2"),
		with("an unknown pseudo-field", ":any", "1"),
		with("a pseudo-field of answers", ":status", "200"),
		with("a field of the connection", "connection", "keep-alive"),
		with("a coding", "transfer-encoding", "chunked"),
		with("an upgrade", "upgrade", "websocket"),
		with("a wish for other things than trailers", "te", "gzip"),
		with("a path twice", ":path", "/b"),
		with("two lengths", "content-length", "0", "content-length", "1"),
		bad("a pseudo-field behind others", "x-a", "1", ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"),
		bad("no method", ":scheme", "http", ":authority", "a", ":path", "/"),
		bad("no path", ":method", "GET", ":scheme", "http", ":authority", "a"),
		bad("no scheme", ":method", "GET", ":authority", "a", ":path", "/"),
		bad("an empty path", ":method", "GET", ":scheme", "http", ":authority", "a", ":path", ""),
		bad("a path without a slash", ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "b"),
		bad("a fragment", ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/#part"),
		bad("an authority with a blank", ":method", "GET", ":scheme", "http", ":authority", "a b", ":path", "/"),
		bad("an authority with a user", ":method", "GET", ":scheme", "http", ":authority", "user@a", ":path", "/"),
		bad("an empty method", ":method", "", ":scheme", "http", ":authority", "a", ":path", "/"),
		bad("a method with a line break", ":method", "GET /b HTTP/1.1\r\nX:", ":scheme", "http", ":authority", "a", ":path", "/"),
		bad("a path with a line break", ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/ HTTP/1.1\r\nX: 1"),
		bad("a broken length", ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/", "content-length", "two"),
		bad("a method with a blank", ":method", "GE T", ":scheme", "http", ":authority", "a", ":path", "/"),
		{name: "a body shorter than its length", want: badRequest, served: 1,
			send: func(p *peer) { p.post(1, "content-length", "9"); p.WriteData(1, true, []byte("data")) }},
		{name: "a body longer than its length", want: badRequest, served: 1,
			send: func(p *peer) { p.post(1, "content-length", "2"); p.WriteData(1, true, []byte("data")) }},
		{name: "a pseudo-field in a trailer", want: badRequest, served: 1,
			send: func(p *peer) { p.post(1); p.headers(1, true, ":path", "/b") }},
		{name: "host beside authority", want: "200|400", served: 1, send: func(p *peer) { p.request(1, true, "host", "b") }},
		{name: "100,000 bytes of fields", want: "431|connection COMPRESSION_ERROR|" + badRequest, send: func(p *peer) {
			b := p.block(append(plain[:8:8], "x-long", strings.Repeat("x", 100000))...)
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:16384], EndStream: true})
			for b = b[16384:]; len(b) > 16384; b = b[16384:] {
				p.WriteContinuation(1, false, b[:16384])
			}
			p.WriteContinuation(1, true, b)
		}},
	}
}
