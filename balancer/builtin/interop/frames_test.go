package interop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/quellhq/quell/balancer/builtin"
)

// peer is a client that sends single frames, valid or not.
type peer struct {
	*http2.Framer
	conn net.Conn
	head bytes.Buffer
	code *hpack.Encoder
	path string // of the present case, so that a late request does not count for the next one
}

func newPeer(t *testing.T, address string) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	p := &peer{Framer: http2.NewFramer(conn, conn), conn: conn}
	p.AllowIllegalWrites, p.AllowIllegalReads = true, true
	p.code = hpack.NewEncoder(&p.head)
	return p
}

// greet sends the preface and empty settings, and waits for the server's.
func (p *peer) greet(t *testing.T) {
	t.Helper()
	io.WriteString(p.conn, http2.ClientPreface)
	p.WriteSettings()
	for acked, theirs := false, false; !acked || !theirs; {
		f, err := p.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := f.(*http2.SettingsFrame); ok {
			acked, theirs = acked || s.IsAck(), theirs || !s.IsAck()
		}
	}
	p.WriteSettingsAck()
}

// block returns an encoded header: names and values in turn.
func (p *peer) block(fields ...string) []byte {
	p.head.Reset()
	for i := 0; i < len(fields); i += 2 {
		value := fields[i+1]
		if strings.HasPrefix(value, "/") {
			value = p.path + value
		}
		p.code.WriteField(hpack.HeaderField{Name: fields[i], Value: value})
	}
	return bytes.Clone(p.head.Bytes())
}

var plain = []string{":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"}

// request sends the header of a valid request with further fields.
func (p *peer) request(stream uint32, end bool, more ...string) {
	p.headers(stream, end, append(slices.Clone(plain), more...)...)
}

func (p *peer) headers(stream uint32, end bool, fields ...string) {
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.block(fields...), EndHeaders: true, EndStream: end})
}

func (p *peer) post(stream uint32, more ...string) {
	p.headers(stream, false, append([]string{":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/"}, more...)...)
}

// outcome reads until the balancer reacts, and returns how: an answer, a reset of a stream, an end of the connection, or an echo.
func (p *peer) outcome() string {
	status := ""
	decoder := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			status = f.Value
		}
	})
	for {
		f, err := p.ReadFrame()
		if err != nil {
			if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
				return "silence"
			}
			return "closed"
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return "connection " + f.ErrCode.String()
			}
		case *http2.RSTStreamFrame:
			return "stream " + f.ErrCode.String()
		case *http2.HeadersFrame:
			decoder.Write(f.HeaderBlockFragment())
			return status
		case *http2.PingFrame:
			if f.IsAck() {
				return "ping"
			}
		}
	}
}

// frames is a case: what a client sends after the greeting, and the reactions that RFC 9113 allows.
type frames struct {
	name   string
	send   func(p *peer)
	want   string // alternatives, separated by "|"
	full   bool   // no further request is possible
	served int64  // requests that reach the instance
}

// TestFrames sends valid and invalid frames. After an error of a stream, the connection still answers requests.
func TestFrames(t *testing.T) {
	var served [200]atomic.Int64
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if number, what, _ := strings.Cut(r.URL.Path[1:], "/"); what != "after" {
			i, _ := strconv.Atoi(number)
			served[i].Add(1)
		}
		io.Copy(io.Discard, r.Body)
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(ln)
	defer server.Close()
	address := balance(t, builtin.Options{}, ln.Addr().String())
	cases := slices.Concat(connectionCases(), streamCases(), headerCases())
	for i, c := range cases {
		p := newPeer(t, address)
		p.path = fmt.Sprint("/", i)
		p.greet(t)
		c.send(p)
		got := p.outcome()
		if !slices.Contains(strings.Split(c.want, "|"), got) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if strings.HasPrefix(got, "stream") && !c.full {
			p.headers(10001, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/after")
			if then := p.outcome(); then != "200" {
				t.Errorf("%s: a further request gets %s", c.name, then)
			}
		}
		p.conn.Close()
	}
	for i, c := range cases {
		if n := served[i].Load(); n > c.served {
			t.Errorf("%s: %d requests reach the instance", c.name, n)
		}
	}
}

// TestABrokenPreface closes the connection and reaches no instance.
func TestABrokenPreface(t *testing.T) {
	address := balance(t, builtin.Options{})
	for _, text := range []string{
		"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\x00", 9),
	} {
		p := newPeer(t, address)
		io.WriteString(p.conn, text)
		p.conn.(*net.TCPConn).CloseWrite()
		if rest, err := io.ReadAll(p.conn); errors.Is(err, io.ErrUnexpectedEOF) || bytes.Contains(rest, []byte(" 200 ")) {
			t.Errorf("%q: %q, %v", text, rest, err)
		}
	}
}

func connectionCases() []frames {
	raw := func(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) func(*peer) {
		return func(p *peer) { p.WriteRawFrame(kind, flags, stream, []byte(payload)) }
	}
	const (
		protocol = "connection PROTOCOL_ERROR|closed"
		size     = "connection FRAME_SIZE_ERROR|closed"
		flow     = "connection FLOW_CONTROL_ERROR|closed"
	)
	ping := func(p *peer) { p.WritePing(false, [8]byte{1}) }
	return []frames{
		{name: "a ping", send: ping, want: "ping"},
		{name: "an answer to no ping", send: func(p *peer) { p.WritePing(true, [8]byte{1}); ping(p) }, want: "ping"},
		{name: "a ping on a stream", send: raw(http2.FramePing, 0, 1, "12345678"), want: protocol},
		{name: "a ping of 6 bytes", send: raw(http2.FramePing, 0, 0, "123456"), want: size},
		{name: "an unknown frame", send: func(p *peer) { p.WriteRawFrame(0xfa, 0, 0, []byte("any")); ping(p) }, want: "ping"},
		{name: "an unknown setting", send: func(p *peer) { p.WriteSettings(http2.Setting{ID: 0xff, Val: 1}); ping(p) }, want: "ping"},
		{name: "settings on a stream", send: raw(http2.FrameSettings, 0, 1, ""), want: protocol},
		{name: "settings of 5 bytes", send: raw(http2.FrameSettings, 0, 0, "12345"), want: size},
		{name: "an acknowledgement with settings", send: raw(http2.FrameSettings, http2.FlagSettingsAck, 0, "123456"), want: size},
		{name: "a push setting of 2", want: protocol,
			send: func(p *peer) { p.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2}) }},
		{name: "a window beyond 31 bits", want: flow,
			send: func(p *peer) { p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) }},
		{name: "a largest frame below 16,384", want: protocol,
			send: func(p *peer) { p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 16383}) }},
		{name: "an update of 0 of the connection's window", send: raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x00"), want: protocol},
		{name: "an update of 3 bytes", send: raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x01"), want: size},
		{name: "a window of the connection that overflows", send: raw(http2.FrameWindowUpdate, 0, 0, "\x7f\xff\xff\xff"), want: flow},
		{name: "a farewell on a stream", send: raw(http2.FrameGoAway, 0, 1, "\x00\x00\x00\x00\x00\x00\x00\x00"), want: protocol},
		{name: "a push", want: protocol, send: func(p *peer) {
			p.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: p.block(plain...), EndHeaders: true})
		}},
		{name: "a frame of 2 MB", want: size, send: func(p *peer) {
			p.post(1)
			p.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 2<<20))
		}, served: 1},
		{name: "data on stream 0", send: raw(http2.FrameData, 0, 0, "data"), want: protocol},
		{name: "a header on stream 0", send: func(p *peer) { p.request(0, true) }, want: protocol},
		{name: "a reset of stream 0", send: raw(http2.FrameRSTStream, 0, 0, "\x00\x00\x00\x08"), want: protocol},
		{name: "a reset of 3 bytes", want: size, served: 1,
			send: func(p *peer) { p.post(1); p.WriteRawFrame(http2.FrameRSTStream, 0, 1, []byte("\x00\x00\x08")) }},
		{name: "a continuation on stream 0", send: raw(http2.FrameContinuation, 0, 0, ""), want: protocol},
		{name: "a broken header block", want: "connection COMPRESSION_ERROR|closed",
			send: raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1, "\xc6\x00")},
	}
}
