package builtin

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowConn returns a server's connection with the given rules, in synthetic time, and the client's end of it.
func slowConn(rules clientRules) (c *inbound, client net.Conn) {
	server, client := net.Pipe()
	c = newInbound(server, &atomic.Pointer[clientRules]{}, nil)
	c.rules.Store(&rules)
	return c, client
}

func TestABodyMayBeSlowButNotHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := slowConn(clientRules{body: 10 * time.Second})
		defer client.Close()
		go func() {
			io.WriteString(client, "POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n")
			for range 5 { // 45 s in all
				time.Sleep(9 * time.Second)
				io.WriteString(client, "x")
			}
		}()
		begin, b := time.Now(), make([]byte, 1000)
		for range 6 {
			if _, err := c.Read(b); err != nil {
				t.Fatalf("after %v: %v", time.Since(begin), err)
			}
		}
		if _, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != 55*time.Second {
			t.Errorf("%v after %v, want the deadline 10 s after the last byte", err, time.Since(begin))
		}
	})
}

func TestAHeadIsNotABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := slowConn(clientRules{body: 10 * time.Second})
		defer client.Close()
		go func() {
			io.WriteString(client, "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
			time.Sleep(time.Minute) // the connection stays open
			io.WriteString(client, "GET / HTTP/1.1\r\n\r\n")
		}()
		b := make([]byte, 1000)
		for range 2 {
			if _, err := c.Read(b); err != nil {
				t.Error(err)
			}
			c.Conn.SetReadDeadline(time.Time{}) // as the server does when a request's body has been read
		}
	})
}

// If a client pauses while it sends a body, it still counts as alive if it reads the answer meanwhile, as in a conversation.
func TestAConversationIsNotIdle(t *testing.T) {
	for name, upgraded := range map[string]bool{"body": false, "upgraded": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, client := slowConn(clientRules{body: 10 * time.Second, upgrade: 10 * time.Second})
				defer client.Close()
				go io.Copy(io.Discard, client)
				go io.WriteString(client, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
				b := make([]byte, 1000)
				if _, err := c.Read(b); err != nil {
					t.Fatal(err)
				}
				c.upgraded.Store(upgraded)
				go func() {
					for range 5 {
						time.Sleep(8 * time.Second)
						c.Write([]byte("news"))
					}
				}()
				begin := time.Now()
				if _, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != 50*time.Second {
					t.Errorf("%v after %v, want the deadline 10 s after the last news", err, time.Since(begin))
				}
			})
		})
	}
}

func TestAReaderMayBeSlowButNotHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := slowConn(clientRules{write: 10 * time.Second})
		defer client.Close()
		go func() {
			for range 5 {
				time.Sleep(8 * time.Second)
				io.ReadFull(client, make([]byte, 10))
			}
		}()
		begin := time.Now()
		n, err := c.Write(make([]byte, 100))
		if took := time.Since(begin); n != 50 || !errors.Is(err, os.ErrDeadlineExceeded) || took < 48*time.Second || took > 60*time.Second {
			t.Errorf("%d bytes, %v after %v; want 50, and the deadline within 20 s of them", n, err, took)
		}
	})
}

func TestNoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := slowConn(clientRules{})
		defer client.Close()
		go func() {
			io.WriteString(client, "POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n")
			time.Sleep(24 * time.Hour)
			io.WriteString(client, "x")
			time.Sleep(24 * time.Hour)
			io.ReadFull(client, make([]byte, 1))
		}()
		b := make([]byte, 1000)
		for range 2 {
			if _, err := c.Read(b); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Write(b[:1]); err != nil {
			t.Error(err)
		}
	})
}

func TestSlowClientsOfTheServer(t *testing.T) {
	s := start(t, Options{Timeouts: Timeouts{Body: 30 * time.Millisecond, Write: 30 * time.Millisecond, Upgrade: 30 * time.Millisecond}})
	in := newInstance(t, "i1", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			echoUpgraded(t, w)
			return
		}
		io.Copy(io.Discard, r.Body)
		piece := make([]byte, 1<<20)
		for range 64 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	applyHealthy(t, s, in.backend(1))
	t.Run("body", func(t *testing.T) {
		got := rawly(t, s, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
		if !strings.HasPrefix(got, "HTTP/1.1 408 ") || !strings.Contains(got, "Connection: close") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("reader", func(t *testing.T) {
		before := in.served.Load()
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		waitFor(t, "the request", func() bool { return in.served.Load() > before })
		waitFor(t, "its end", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
	})
	t.Run("upgraded", func(t *testing.T) {
		got := rawly(t, s, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 101 ") {
			t.Errorf("got %q", got)
		}
	})
	waitFor(t, "the end of all requests", func() bool { return stateOf(t, s, "i1").InFlight == 0 })
	if r := s.reporter.readings(time.Now())[0]; r.Errors != 0 {
		t.Errorf("%d of %d requests count against the instance", r.Errors, r.Requests)
	}
}

func TestOneClientDoesNotTakeAllConnections(t *testing.T) {
	for _, tt := range []struct {
		why     string
		o       Options
		refused bool
	}{
		{"half of all", Options{MaxConns: 4}, true},
		{"as configured", Options{MaxConnsPerClient: new(2)}, true},
		{"no limit", Options{MaxConns: 4, MaxConnsPerClient: new(0)}, false},
		{"a trusted proxy", Options{MaxConns: 4, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			s := start(t, tt.o)
			in := newInstance(t, "i1", nil)
			applyHealthy(t, s, in.backend(1))
			var held []net.Conn
			ask := func() (*http.Response, error) {
				conn, err := net.Dial("tcp", s.Addr())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				held = append(held, conn)
				io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				return http.ReadResponse(bufio.NewReader(conn), nil)
			}
			for range 2 {
				if resp, err := ask(); err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("%v, %v", resp, err)
				}
			}
			resp, err := ask()
			if refused := err != nil || resp.StatusCode == http.StatusTooManyRequests; refused != tt.refused {
				t.Errorf("the third connection: %v, %v", resp, err)
			}
			if _, n := s.limiter.counts(); (n == 1) != tt.refused {
				t.Errorf("%d connections refused", n)
			}
			held[0].Close()
			waitFor(t, "room for another connection", func() bool {
				resp, err := ask()
				return err == nil && resp.StatusCode == http.StatusOK
			})
		})
	}
}

func TestWhatCountsAsOneClient(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true},
		{"2001:db8:0:1::1", "2001:db8:0:2::1", false},
	} {
		if same := clientOf(netip.MustParseAddr(tt.a)) == clientOf(netip.MustParseAddr(tt.b)); same != tt.same {
			t.Errorf("%s and %s: %v", tt.a, tt.b, same)
		}
	}
	mapped := &net.TCPAddr{IP: net.ParseIP("192.0.2.1").To16(), Port: 1}
	if got := peerOf(addressed{mapped}); got != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("an IPv4 address in IPv6 form is %v", got)
	}
}

// addressed is a connection that has only a remote address.
type addressed struct{ at net.Addr }

func (a addressed) RemoteAddr() net.Addr             { return a.at }
func (addressed) LocalAddr() net.Addr                { return nil }
func (addressed) Read([]byte) (int, error)           { return 0, io.EOF }
func (addressed) Write([]byte) (int, error)          { return 0, io.EOF }
func (addressed) Close() error                       { return nil }
func (addressed) SetDeadline(time.Time) error        { return nil }
func (addressed) SetReadDeadline(time.Time) error    { return nil }
func (addressed) SetWriteDeadline(t time.Time) error { return nil }
