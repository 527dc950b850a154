package builtin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// origin is an instance that notes the requests that reach it, byte by byte, and answers as the present case says. It has a parser of its
// own, because net/http would refuse or repair what a proxy passes on.
type origin struct {
	ln net.Listener

	mu    sync.Mutex
	cases []manners
	now   int // the case that is played
	got   map[int][]*arrival
	conns map[net.Conn]bool // whether a request is in progress on a connection
}

// arrival is a request as the origin got it.
type arrival struct {
	line    string
	fields  []string // name in small letters, colon, value
	body    string
	chunked bool
	trailer []string
	cut     bool // the connection ended in the midst of it
}

func newOrigin(t *testing.T) *origin {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{ln: ln, cases: bytesCases(), got: map[int][]*arrival{}, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { ln.Close(); o.hangUp() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go o.serve(conn)
		}
	}()
	return o
}

// begin makes the origin play a case.
func (o *origin) begin(i int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now, o.got[i] = i, nil
}

// arrived returns what has arrived in a case.
func (o *origin) arrived(i int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for _, a := range o.got[i] {
		all = append(all, a.describe(&o.cases[i]))
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, "; ")
}

// await waits for something that may not happen.
func (o *origin) await(done func() bool) {
	for until := time.Now().Add(8 * time.Second); !done() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
}

// settle waits for the end of requests in progress.
func (o *origin) settle() {
	o.await(func() bool { return !o.busy() })
	o.hangUp()
}

func (o *origin) busy() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, busy := range o.conns {
		if busy {
			return true
		}
	}
	return false
}

func (o *origin) hangUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for conn := range o.conns {
		conn.Close()
	}
}

func (o *origin) mark(conn net.Conn, busy bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.conns[conn] = busy
}

func (o *origin) serve(conn net.Conn) {
	o.mark(conn, false)
	defer func() {
		conn.Close()
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.conns, conn)
	}()
	for in := bufio.NewReader(conn); ; o.mark(conn, false) {
		if _, err := in.Peek(1); err != nil {
			return
		}
		o.mark(conn, true)
		if !o.exchange(conn, in) {
			return
		}
	}
}

// exchange serves one request and returns whether the connection goes on.
func (o *origin) exchange(conn net.Conn, in *bufio.Reader) bool {
	a := &arrival{}
	if a.cut = a.readHead(in) != nil; a.cut {
		o.note(a)
		return false
	}
	if a.path() == after {
		_, err := io.WriteString(conn, ok("after"))
		return err == nil
	}
	c := o.note(a)
	if !c.early {
		if a.cut = a.readBody(in) != nil; a.cut {
			return false
		}
	}
	if c.play != nil {
		return c.play(conn, in, a)
	}
	answer := c.answer
	if answer == "" {
		answer = ok("ok")
	}
	if strings.HasPrefix(a.line, "HEAD ") {
		head, _, _ := strings.Cut(answer, "\r\n\r\n")
		answer = head + "\r\n\r\n"
	}
	_, err := io.WriteString(conn, answer)
	return err == nil && !c.early && !c.ends
}

// numbered finds the number of a request's case in its target. A late request must not count for the next case.
var numbered = regexp.MustCompile(`c(\d+)`)

// note files a request under its case, and returns the case.
func (o *origin) note(a *arrival) *manners {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.now
	if number := numbered.FindStringSubmatch(a.line); number != nil {
		i, _ = strconv.Atoi(number[1])
		a.line = strings.Replace(a.line, number[0], "", 1)
	}
	o.got[i] = append(o.got[i], a)
	return &o.cases[i]
}

// ok is a complete answer of the origin.
func ok(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Origin: 1\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// after is the path of the request with which the client finds out whether its connection was kept.
const after = "/after"

func (a *arrival) path() string {
	if parts := strings.Split(a.line, " "); len(parts) > 1 {
		return parts[1]
	}
	return ""
}

func (a *arrival) readHead(in *bufio.Reader) error {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		switch {
		case line == "" && a.line != "":
			return nil
		case a.line == "":
			a.line = line
		default:
			name, value, _ := strings.Cut(line, ":")
			a.fields = append(a.fields, strings.ToLower(name)+":"+strings.TrimPrefix(value, " "))
		}
	}
}

// values returns the values of a field.
func (a *arrival) values(name string) (all []string) {
	for _, f := range a.fields {
		if n, v, _ := strings.Cut(f, ":"); n == name {
			all = append(all, v)
		}
	}
	return all
}

func (a *arrival) readBody(in *bufio.Reader) error {
	if a.chunked = strings.EqualFold(strings.Join(a.values("transfer-encoding"), ""), "chunked"); a.chunked {
		return a.readChunks(in)
	}
	n := 0
	if v := a.values("content-length"); len(v) > 0 {
		n, _ = strconv.Atoi(v[0])
	}
	body := make([]byte, n)
	got, err := io.ReadFull(in, body)
	a.body = string(body[:got])
	return err
}

func (a *arrival) readChunks(in *bufio.Reader) error {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(size, 16, 32)
		if err != nil {
			return err
		}
		if n == 0 {
			return a.readTrailer(in)
		}
		part := make([]byte, n)
		got, err := io.ReadFull(in, part)
		a.body += string(part[:got])
		if err != nil {
			return err
		}
		if end, err := in.ReadString('\n'); err != nil || strings.TrimSpace(end) != "" {
			return errors.Join(errors.New("a chunk without its end"), err)
		}
	}
}

func (a *arrival) readTrailer(in *bufio.Reader) error {
	for {
		line, err := in.ReadString('\n')
		if err != nil || strings.TrimSpace(line) == "" {
			return err
		}
		a.trailer = append(a.trailer, strings.ToLower(strings.TrimSpace(line)))
	}
}

// usual are the fields that every proxy sets or leaves out in its own way. A case that is about one of them names it.
var usual = []string{"host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "user-agent", "accept-encoding", "content-length",
	"transfer-encoding", "connection", "trailer"}

// describe returns what arrived, as a cell of the table.
func (a *arrival) describe(c *manners) string {
	method, _, _ := strings.Cut(a.line, " ")
	text := method + " " + brief(a.path())
	if n := len(a.fields); n > 50 {
		return fmt.Sprint(text, " with ", n-n%10, " fields and more") // a proxy adds some
	}
	for _, f := range slices.Sorted(slices.Values(a.fields)) {
		if name, value, _ := strings.Cut(f, ":"); !slices.Contains(usual, name) || slices.Contains(c.show, name) {
			text += ", " + brief(name) + ": " + brief(value)
		}
	}
	switch {
	case a.cut: // how much of it has arrived depends on the moment
	case a.chunked:
		text += `, chunks "` + brief(a.body) + `"`
	case a.body != "":
		text += `, body "` + brief(a.body) + `"`
	}
	for _, t := range a.trailer {
		text += ", trailer " + t
	}
	if a.cut {
		text += ", cut"
	}
	return text
}

// brief shortens a text that a table has no room for.
func brief(s string) string {
	if len(s) > 60 {
		s = fmt.Sprintf("%s… (%d bytes)", s[:12], len(s))
	}
	quoted := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
