package builtin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/health"
	"github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/internal/need"
)

// manners is one case of the comparison with other proxies: the same bytes for each of them.
type manners struct {
	name  string
	send  []string // what the client sends, in parts
	about string   // what is sent, if the bytes do not say it

	answers int      // final answers that are due before the client asks whether the connection was kept; default 1
	show    []string // usual fields that are shown in this case
	stalls  bool     // someone stops: the proxy has short time-outs
	known   bool     // the client goes on when the instance has the request
	half    bool     // the client closes its sending side
	leave   bool     // the client leaves without an answer
	slow    bool     // the client does not read
	silence bool     // some proxy neither answers nor closes
	speaks  string   // what the client says after an answer 101

	answer string // of the origin; default ok("ok")
	early  bool   // the origin answers before it reads the body, and ends the connection
	ends   bool   // the origin ends the connection after its answer
	begun  bool   // the answer turns out to be wrong once it has begun: what of it has been sent by then is chance
	play   func(conn net.Conn, in *bufio.Reader, a *arrival) bool
}

// peer is a proxy under comparison.
type peer struct {
	name, version string // of the version, only what is compared
	address       string // of the listener with long time-outs
	short         string // of the listener with short time-outs
	origin        *origin
}

const page = "../../docs/balancers/bytes.md"

// TestTheSameBytes sends the same bytes to the balancer, to HAProxy and to nginx. The page has what each of them passed on and answered,
// and why they differ. The other two are compared only in the version that the page names.
func TestTheSameBytes(t *testing.T) {
	if n := len(bytesCases()); n < 60 {
		t.Fatalf("%d cases", n)
	}
	known := readPage(t)
	var all sync.WaitGroup
	results := map[string]map[string]string{}
	peers := []*peer{ownPeer(t), haproxyPeer(t), nginxPeer(t)}
	for _, p := range peers {
		results[p.name] = map[string]string{}
		if p.address == "" {
			continue
		}
		all.Go(func() {
			p.playAll(results[p.name], known.cells[p.name])
		})
	}
	all.Wait()
	for _, p := range peers {
		if len(results[p.name]) == 0 { // not installed, or in another version
			p.version, results[p.name] = known.versions[p.name], known.cells[p.name]
		}
	}
	for _, c := range bytesCases() {
		differ := results["Quell"][c.name] != results["HAProxy"][c.name] || results["Quell"][c.name] != results["nginx"][c.name]
		if differ != (bytesReasons[c.name] != "") {
			t.Errorf("%s: a difference needs a reason, and a reason a difference\n Quell   %s\n HAProxy %s\n nginx   %s", c.name,
				results["Quell"][c.name], results["HAProxy"][c.name], results["nginx"][c.name])
		}
	}
	golden.Compare(t, page, writePage(peers, results))
}

// ownPeer starts the balancer twice, with long and with short time-outs.
func ownPeer(t *testing.T) *peer {
	p := &peer{name: "Quell", origin: newOrigin(t)}
	serve := func(limit time.Duration) string {
		s, err := New(Options{Listen: "127.0.0.1:0", HTTP2: true, Upgrades: []string{"websocket"}, Health: health.Options{Interval: time.Hour},
			Timeouts: Timeouts{Body: limit, Write: limit, ReadHeader: limit, ResponseHeader: 20 * time.Second, UpstreamIdle: 1,
				HalfClosed: min(limit, 5*time.Second)}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stop(t, s) })
		applyHealthy(t, s, quell.Backend{ID: "i1", Address: p.origin.ln.Addr().String(), Weight: 1})
		return s.Addr()
	}
	p.address, p.short = serve(20*time.Second), serve(shortLimit)
	return p
}

// shortLimit is the time-out of clients that stall.
const shortLimit = 300 * time.Millisecond

const haproxyConfig = `
defaults
  mode http
  timeout connect 5s
  timeout server 20s
  option forwardfor
  option http-keep-alive
  http-reuse never
frontend long
  bind %[3]s
  timeout client 20s
  timeout http-request 20s
  default_backend web
frontend short
  bind %[4]s
  timeout client 300ms
  timeout http-request 300ms
  default_backend web
backend web
  server i1 %[2]s
`

const nginxConfig = `
pid %[1]s/pid;
error_log /dev/null;
events { worker_connections 200; }
http {
  access_log off;
  proxy_temp_path %[1]s/p; client_body_temp_path %[1]s/b; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
  proxy_http_version 1.1;
  proxy_request_buffering off;
  proxy_buffering off;
  proxy_set_header Host $http_host;
  proxy_set_header Connection $connection_upgrade;
  proxy_set_header Upgrade $http_upgrade;
  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
  server { listen %[3]s; client_body_timeout 20s; location / { proxy_pass http://%[2]s; } }
  server { listen %[4]s; client_body_timeout 300ms; client_header_timeout 300ms; send_timeout 300ms;
    location / { proxy_pass http://%[2]s; } }
}
`

func haproxyPeer(t *testing.T) *peer {
	p := &peer{name: "HAProxy", version: "2.6"}
	program := p.installed(t, "haproxy", "-v")
	return p.run(t, program, haproxyConfig, "-db", "-f")
}

func nginxPeer(t *testing.T) *peer {
	p := &peer{name: "nginx", version: "1.22"}
	program := p.installed(t, "nginx", "-v")
	return p.run(t, program, nginxConfig, "-g", "daemon off; master_process off;", "-e", "/dev/null", "-c")
}

// installed returns the path of the program, empty if it is not there in the version that the page is about.
func (p *peer) installed(t *testing.T, program, argument string) string {
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("QUELL_REQUIRE") == "all" {
			need.Program(t, program)
		}
		t.Logf("%s is not installed: its column is not checked", p.name)
		return ""
	}
	says, _ := exec.Command(path, argument).CombinedOutput()
	if !regexp.MustCompile(`\b` + regexp.QuoteMeta(p.version) + `\.`).Match(says) {
		t.Logf("%s has another version than %s: its column is not checked", p.name, p.version)
		return ""
	}
	return path
}

// run starts a proxy with a configuration, whose path is its last argument.
func (p *peer) run(t *testing.T, program, config string, args ...string) *peer {
	if program == "" {
		return p
	}
	p.origin = newOrigin(t)
	dir := filepath.Dir(socketPath(t))
	file := filepath.Join(dir, "config")
	p.address, p.short = need.FreeAddress(t), need.FreeAddress(t)
	if err := os.WriteFile(file, fmt.Appendf(nil, config, dir, p.origin.ln.Addr(), p.address, p.short), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(args, file)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	waitFor(t, p.name, func() bool {
		conn, err := net.Dial("tcp", p.short)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return p
}

// halfCloser is a connection whose sending side can be closed.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

func (p *peer) dial(c *manners) (halfCloser, error) {
	address := p.address
	if c.stalls {
		address = p.short
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return conn.(halfCloser), nil
}

// playAll plays all cases, and notes what the origin got and what the client got. A case that differs from what is known is played again:
// on a busy machine a client may be too late for the short time-outs, and only what differs each time is different.
func (p *peer) playAll(results, known map[string]string) {
	const tries = 3
	for range tries {
		p.playThose(results, func(name string) bool { return results[name] == "" || results[name] != known[name] })
	}
}

// playThose plays some of the cases.
func (p *peer) playThose(results map[string]string, which func(name string) bool) {
	cases := bytesCases()
	got := map[int]string{}
	for i, c := range cases {
		if which(c.name) {
			p.origin.begin(i)
			got[i] = p.play(i, &c)
		}
	}
	p.origin.settle()
	for i, answer := range got {
		results[cases[i].name] = p.origin.arrived(i) + " ⟶ " + answer
	}
}

func (p *peer) play(i int, c *manners) string {
	conn, err := p.dial(c)
	if err != nil {
		return err.Error()
	}
	for k, part := range c.send {
		c.send[k] = strings.ReplaceAll(part, "@", fmt.Sprint("c", i))
	}
	got := c.converse(conn, func() {
		p.origin.await(func() bool { return p.origin.arrived(i) != "nothing" })
	}, func() {
		p.origin.await(func() bool { return p.origin.arrived(i) != "nothing" && !p.origin.busy() })
	})
	conn.Close()
	p.origin.settle()
	if c.begun && got == `200 ""; cut` {
		return "closed"
	}
	return got
}

// patience is for how long the client waits. Only in a case of silence some proxy does not answer.
func (c *manners) patience() time.Duration {
	if c.silence {
		return time.Second
	}
	return 15 * time.Second
}

// converse sends the case's bytes and returns the answers, and how the connection ended. The functions wait until the instance has the
// request, and until it is rid of it.
func (c *manners) converse(conn halfCloser, awaitArrival, awaitEnd func()) string {
	conn.SetDeadline(time.Now().Add(c.patience()))
	for i, part := range c.send {
		if i > 0 {
			time.Sleep(20 * time.Millisecond) // most parts arrive separately; the result must not depend on it
		}
		if _, err := io.WriteString(conn, part); err != nil {
			break
		}
	}
	if c.known {
		awaitArrival()
	}
	switch {
	case c.half && c.speaks == "":
		conn.CloseWrite()
	case c.leave:
		return "it has left"
	case c.slow:
		awaitEnd()
	}
	return c.readAnswers(conn)
}

func (c *manners) readAnswers(conn halfCloser) string {
	var got []string
	for in, due, asked := bufio.NewReader(conn), max(c.answers, 1), false; ; {
		one, body, end := c.readAnswer(in, asked)
		if body == "after" {
			return strings.Join(append(got, "kept"), "; ")
		}
		if one != "" {
			got = append(got, one)
		}
		if end != "" {
			return strings.Join(append(got, end), "; ")
		}
		if strings.HasPrefix(one, "101") {
			return strings.Join(append(got, c.speak(conn, in)), "; ")
		}
		if len(one) > 0 && one[0] != '1' {
			due--
		}
		if due <= 0 && !asked && !c.half {
			asked = true
			io.WriteString(conn, "GET "+after+" HTTP/1.1\r\nHost: a\r\n\r\n")
		}
	}
}

// speak talks to the instance on an upgraded connection.
func (c *manners) speak(conn halfCloser, in *bufio.Reader) string {
	io.WriteString(conn, c.speaks)
	said, _ := in.ReadString('.')
	if !c.half {
		return "then " + said
	}
	conn.CloseWrite()
	rest, _ := io.ReadAll(in)
	return "then " + said + string(rest)
}

// readAnswer returns the next answer as text, its body, and, if it is the last one, how the connection ended.
func (c *manners) readAnswer(in *bufio.Reader, asked bool) (text, body, end string) {
	first, err := in.Peek(5)
	var late net.Error
	switch {
	case errors.As(err, &late) && late.Timeout():
		return "", "", "silence"
	case err != nil && len(first) == 0:
		return "", "", "closed"
	case string(first) != "HTTP/":
		rest, _ := io.ReadAll(io.LimitReader(in, 9))
		if len(rest) == 9 && rest[3] == 4 && rest[0] == 0 {
			return "", "", "frames of HTTP/2"
		}
		return "", "", "no HTTP: " + brief(string(rest))
	}
	method, _, _ := strings.Cut(c.send[0], " ")
	if asked {
		method = http.MethodGet
	}
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		return "", "", "a broken answer"
	}
	text = fmt.Sprint(resp.StatusCode)
	raw, err := io.ReadAll(resp.Body)
	fromInstance := resp.Header.Get("X-Origin") != ""
	for _, name := range []string{"Link", "X-Hop", "X-Long", "Content-Type", "Upgrade", "Location"} {
		if v := resp.Header.Get(name); v != "" && (fromInstance || resp.StatusCode < 200) {
			text += ", " + strings.ToLower(name) + ": " + brief(v)
		}
	}
	switch {
	case resp.StatusCode < 200 || fromInstance && c.slow:
	case fromInstance:
		text += ` "` + brief(string(raw)) + `"`
	default:
		text += " of its own"
	}
	for name, v := range resp.Trailer {
		text += ", trailer " + strings.ToLower(name) + ": " + strings.Join(v, "")
	}
	switch {
	case errors.As(err, &late) && late.Timeout():
		return text, string(raw), "silence"
	case err != nil:
		return text, string(raw), "cut"
	case resp.StatusCode < 200:
		return text, "", ""
	}
	return text, string(raw), ""
}
