package builtin

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// rawly sends the given parts of a request and returns all that the balancer answers until it closes the connection.
func rawly(t testing.TB, s *Server, parts ...string) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i, part := range parts {
		if i > 0 {
			time.Sleep(2 * time.Millisecond) // with this pause most parts arrive separately; the result must not depend on it
		}
		if _, err := io.WriteString(conn, part); err != nil {
			break
		}
	}
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	text, err := io.ReadAll(conn)
	if err != nil && len(text) == 0 {
		t.Fatalf("no answer: %v", err)
	}
	return string(text)
}

func TestRequestsOfAmbiguousLengthAreRefused(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", nil)
	applyHealthy(t, s, in.backend(1))
	const post = "POST / HTTP/1.1\r\nHost: a\r\n"
	for why, parts := range map[string][]string{
		"length, then coding":     {post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		"coding, then length":     {post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"},
		"other letters":           {post + "content-length: 0\r\nX-Between: 1\r\ntRANSFER-eNCODING: chunked\r\n\r\n0\r\n\r\n"},
		"no carriage returns":     {"POST / HTTP/1.1\nHost: a\nContent-Length: 4\nTransfer-Encoding: chunked\n\n0\r\n\r\n"},
		"in the midst of a name":  {post + "Content-Length: 4\r\nTransfer-", "Encoding: chunked\r\n\r\n0\r\n\r\n"},
		"before a line's end":     {post + "Content-Length: 4\r\nTransfer-Encoding: chunked", "\r\n\r\n0\r\n\r\n"},
		"HTTP/1.0 has no codings": {"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		"behind another's body": {post + "Content-Length: 5\r\n\r\nhello" + post +
			"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		"behind another's chunks": {post + "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX-T: 1\r\n\r\n" + post +
			"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		"byte by byte at the end": {post + "Content-Length: 4\r\nTransfer-Encoding: chunke", "d", "\r", "\n", "\r", "\n", "0"},
		"behind an empty question": {"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + post +
			"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		"a length in a fold": {post + "Content-Length:\r\n 39\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
			"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"},
		"a coding in a fold":         {post + "Content-Length: 4\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n0\r\n\r\n"},
		"a name behind a fold":       {post + "X-Any: 1\r\n Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"},
		"a length that is no number": {post + "Content-Length: \r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		"HTTP/1.0 behind an empty line": {post + "Content-Length: 2\r\n\r\nhi" + "\r\n" +
			"POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		"HTTP/1.0 behind carriage returns": {post + "Content-Length: 2\r\n\r\nhi" + "\r\r\r\n" +
			"POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	} {
		before := in.served.Load()
		got := rawly(t, s, parts...)
		answers := strings.Count(got, "HTTP/1.1 ")
		last := got[max(0, strings.LastIndex(got, "HTTP/1.1 ")):]
		if !strings.HasPrefix(last, "HTTP/1.1 400 ") {
			t.Errorf("%s: the last answer is %q", why, got)
		}
		if served := in.served.Load() - before; int(served) != answers-1 {
			t.Errorf("%s: the instance got %d requests, and the client %d answers", why, served, answers)
		}
	}
}

func TestBodiesMayLookLikeHeads(t *testing.T) {
	s := start(t, Options{})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	applyHealthy(t, s, in.backend(1))
	body := "\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
	for why, request := range map[string]string{
		"length": fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		"chunks": fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
			len(body), body),
	} {
		got, err := http.ReadResponse(bufio.NewReader(strings.NewReader(rawly(t, s, request))), nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(got.Body); err != nil || string(text) != body || got.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %q, %v", why, got.Status, text, err)
		}
	}
}

// However the bytes of requests are divided over reads, framing finds the end of each request, accepts the valid ones, and reports the
// ambiguous one.
func TestFramingFollowsPipelinedRequests(t *testing.T) {
	request := rapid.Custom(func(t *rapid.T) string {
		var b bytes.Buffer
		line := rapid.SampledFrom([]string{"GET /a", "POST /b?Content-Length:", "PUT /" + strings.Repeat("x", 300)}).Draw(t, "line")
		fmt.Fprintf(&b, "%s HTTP/1.1\r\nHost: a\r\nCookie: Transfer-Encoding: chunked\r\n", line)
		body := rapid.SampledFrom([]string{"x", "\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"}).Draw(t,
			"body")
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			b.WriteString("\r\n")
		case 1:
			fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
		case 2:
			fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\nX-After: 1\r\n\r\n%X;ext\r\n%s\r\n0\r\nX-T: 1\r\n\r\n", len(body), body)
		}
		return b.String()
	})
	rapid.Check(t, func(t *rapid.T) {
		good := strings.Join(rapid.SliceOfN(request, 0, 4).Draw(t, "requests"), "")
		bad := "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked"
		all, f, at := []byte(good+bad+"\r\n\r\n0\r\n\r\n"), &framing{}, 0
		for at < len(all) {
			n := min(rapid.IntRange(1, 200).Draw(t, "read"), len(all)-at)
			if end := f.scan(all[at : at+n]); end >= 0 {
				if want := len(good) + len(bad) + 1; at+end != want {
					t.Fatalf("found at %d, want %d", at+end, want)
				}
				return
			}
			at += n
		}
		t.Fatal("not found")
	})
}
