package builtin

import (
	"bufio"
	"io"
	"net"
	"strings"
	"time"
)

const plainGet = "GET /@ HTTP/1.1\r\nHost: a\r\n\r\n"

func upgradeCases() []manners {
	const ask = "GET /@ HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nUpgrade: "
	const change = "HTTP/1.1 101 Switching Protocols\r\nX-Origin: 1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
	shout := func(conn net.Conn, in *bufio.Reader, _ *arrival) bool {
		io.WriteString(conn, change)
		for {
			said, err := in.ReadString('.')
			io.WriteString(conn, strings.ToUpper(said))
			if err != nil {
				io.WriteString(conn, "and bye.")
				return false
			}
		}
	}
	return []manners{
		{name: "a WebSocket", speaks: "hello.", play: shout, send: bytesOf(ask + "websocket\r\n\r\n")},
		{name: "a WebSocket whose client closes its sending side", speaks: "hello.", half: true, play: shout,
			send: bytesOf(ask + "websocket\r\n\r\n")},
		{name: "a WebSocket whose client does not wait", play: shout, send: bytesOf(ask + "websocket\r\n\r\nhello.")},
		{name: "a WebSocket that is refused", send: bytesOf(ask + "websocket\r\n\r\n")},
		{name: "an upgrade to h2c", send: bytesOf("GET /@ HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n" +
			"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")},
		{name: "an upgrade to h2c or WebSocket", send: bytesOf(ask + "h2c, websocket\r\n\r\n")},
		{name: "Upgrade without Connection", send: bytesOf("GET /@ HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n")},
		{name: "an instance that changes the protocol unasked", send: bytesOf(plainGet), answer: change, ends: true, silence: true},
	}
}

func answerCases() []manners {
	const head = "HTTP/1.1 200 OK\r\nX-Origin: 1\r\n"
	answer := func(name, text string) manners {
		return manners{name: name, send: bytesOf(plainGet), answer: text, ends: true}
	}
	kept := func(name, text string) manners { return manners{name: name, send: bytesOf(plainGet), answer: text} }
	return []manners{
		kept("an answer in chunks", head+"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
		kept("a trailer of an answer", head+"Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 42\r\n\r\n"),
		kept("a trailer that was not announced", head+"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 42\r\n\r\n"),
		answer("an answer to the connection's end", head+"\r\nok"),
		answer("an answer of HTTP/1.0", "HTTP/1.0 200 OK\r\nX-Origin: 1\r\n\r\nok"),
		answer("an answer that is cut", head+"Content-Length: 5\r\n\r\nok"),
		answer("chunks that are cut", head+"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"),
		kept("an answer with length and chunks", head+"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
		kept("an answer with two lengths", head+"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok!"),
		kept("an answer with a broken length", head+"Content-Length: two\r\n\r\nok"),
		answer("an answer longer than its length", head+"Content-Length: 2\r\n\r\nok, and more"),
		{name: "a chunk of an answer that is no number", send: bytesOf(plainGet), begun: true,
			answer: head + "Transfer-Encoding: chunked\r\n\r\ntwo\r\nok\r\n0\r\n\r\n"},
		{name: "an answer that is no HTTP", send: bytesOf(plainGet), answer: "hello\r\n", ends: true, silence: true},
		kept("an answer of status 99", "HTTP/1.1 99 Low\r\nX-Origin: 1\r\nContent-Length: 0\r\n\r\n"),
		kept("an answer of status 999", "HTTP/1.1 999 High\r\nX-Origin: 1\r\nContent-Length: 0\r\n\r\n"),
		kept("a folded field of an answer", head+"X-Hop: 1\r\n 2\r\nContent-Length: 2\r\n\r\nok"),
		kept("a field of an answer without a colon", head+"nonsense\r\nContent-Length: 2\r\n\r\nok"),
		kept("a NUL in an answer", head+"X-Hop: 1\x002\r\nContent-Length: 2\r\n\r\nok"),
		{name: "no answer", send: bytesOf(plainGet), play: func(net.Conn, *bufio.Reader, *arrival) bool { return false }},
		kept("an answer without Content-Type", head+"Content-Length: 6\r\n\r\n<html>"),
		kept("204 with a body", "HTTP/1.1 204 No Content\r\nX-Origin: 1\r\n\r\n"),
		kept("304 with a length", "HTTP/1.1 304 Not Modified\r\nX-Origin: 1\r\nContent-Length: 5\r\n\r\n"),
		kept("fields of one connection in an answer", head+
			"Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nok"),
		kept("a redirection to the instance", "HTTP/1.1 302 Found\r\nX-Origin: 1\r\nLocation: http://a/else\r\nContent-Length: 0\r\n\r\n"),
		withAbout(kept("a field of an answer of 3,000 bytes", head+"X-Long: "+strings.Repeat("l", 3000)+"\r\nContent-Length: 2\r\n\r\nok"),
			"The instance answers with a field of 3,000 bytes."),
		withAbout(kept("a field of an answer of 100,000 bytes", head+"X-Long: "+strings.Repeat("l", 100000)+"\r\nContent-Length: 2\r\n\r\nok"),
			"The instance answers with a field of 100,000 bytes."),
	}
}

func withAbout(c manners, about string) manners {
	c.about = about
	return c
}

func interimCases() []manners {
	const done = "HTTP/1.1 200 OK\r\nX-Origin: 1\r\nContent-Length: 2\r\n\r\nok"
	hints := "HTTP/1.1 103 Early Hints\r\nLink: </s.css>\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n"
	return []manners{
		{name: "an early hint", send: bytesOf(plainGet), answer: hints + done, silence: true},
		{name: "an early hint for HTTP/1.0", send: bytesOf("GET /@ HTTP/1.0\r\nHost: a\r\n\r\n"), answer: hints + done, silence: true},
		{name: "100 that nobody expected", send: bytesOf(plainGet), answer: "HTTP/1.1 100 Continue\r\n\r\n" + done, silence: true},
		{name: "102", send: bytesOf(plainGet), answer: "HTTP/1.1 102 Processing\r\n\r\n" + done, silence: true},
	}
}

func clientCases() []manners {
	waits := func(conn net.Conn, in *bufio.Reader, a *arrival) bool {
		conn.SetReadDeadline(time.Now().Add(1500 * time.Millisecond))
		_, err := in.ReadByte()
		a.cut = err != nil && strings.Contains(err.Error(), "EOF") || err != nil && strings.Contains(err.Error(), "reset")
		return false
	}
	later := func(conn net.Conn, in *bufio.Reader, a *arrival) bool {
		time.Sleep(200 * time.Millisecond) // the proxy sees the client's end before
		io.WriteString(conn, ok("ok"))
		return false
	}
	slowly := func(conn net.Conn, in *bufio.Reader, a *arrival) bool {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Origin: 1\r\nContent-Length: 40000000\r\n\r\n")
		conn.SetWriteDeadline(time.Now().Add(8 * time.Second))
		_, err := io.Copy(conn, io.LimitReader(zeros{}, 40000000))
		a.cut = err != nil
		return false
	}
	return []manners{
		{name: "a client that closes its sending side", half: true, known: true, play: later, send: bytesOf(plainGet)},
		{name: "a client that closes its sending side behind a body", half: true, known: true, play: later,
			send: bytesOf(postHead + "Content-Length: 5\r\n\r\nhello")},
		{name: "a client that ends in the midst of a body", half: true, known: true, send: bytesOf(postHead + "Content-Length: 9\r\n\r\nhello")},
		{name: "a client that ends in the midst of chunks", half: true, known: true,
			send: bytesOf(postHead + "Transfer-Encoding: chunked\r\n\r\n9\r\nhello")},
		{name: "a client that ends in the midst of a head", half: true, send: bytesOf("GET /@ HTTP/1.1\r\nHost: a\r\nX-A")},
		{name: "a client that says nothing", half: true, about: "The client closes its sending side at once.", send: bytesOf("")},
		{name: "a client that leaves while it waits", stalls: true, leave: true, known: true, play: waits, send: bytesOf(plainGet),
			about: "The client closes its connection. The instance answers only after 1.5 s; " +
				"\"cut\" means that the proxy gave the request up before."},
		{name: "a client that connects and stays silent", stalls: true, send: bytesOf(""), answers: 2,
			about: "The client sends nothing. The time-out of the proxy is 0.3 s."},
		{name: "a client that stalls in a method", stalls: true, send: bytesOf("GE"), answers: 2,
			about: "The client sends two bytes. The time-out of the proxy is 0.3 s."},
		{name: "a client that stalls in a head", stalls: true, send: bytesOf("GET /@ HTTP/1.1\r\nHost: a\r\n"), answers: 2,
			about: "The head does not end. The time-out of the proxy is 0.3 s."},
		{name: "a client that stalls in a body", stalls: true, silence: true, answers: 2,
			send:  bytesOf(postHead + "Content-Length: 9\r\n\r\nhello"),
			about: "Five of nine bytes of a body come. The time-out of the proxy is 0.3 s."},
		{name: "a client that does not read", stalls: true, slow: true, play: slowly, send: bytesOf(plainGet),
			about: "The client reads nothing of 40 MB until the instance is rid of the request. The time-out of the proxy is 0.3 s."},
		{name: "an answer before the body has come", early: true, send: bytesOf(postHead + "Content-Length: 9\r\n\r\nhello"),
			answer: "HTTP/1.1 413 Too Large\r\nX-Origin: 1\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"},
		{name: "an instance that ends without an answer to a POST", send: bytesOf(postHead + "Content-Length: 5\r\n\r\nhello"),
			play: func(net.Conn, *bufio.Reader, *arrival) bool { return false }},
		{name: "bytes behind a request to be closed",
			send: bytesOf("GET /@ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /@ HTTP/1.1\r\nHost: a\r\n\r\n")},
	}
}

// zeros is an endless stream.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
