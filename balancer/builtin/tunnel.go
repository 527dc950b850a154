package builtin

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/quellhq/quell/internal/connlimit"
)

// tunnel is an upgraded connection to an instance.
type tunnel struct {
	io.ReadWriteCloser
	conn  *outbound
	grace time.Duration // how long the instance may go on after its client's end
}

// CloseWrite tells the instance that its client has closed its sending side.
func (t *tunnel) CloseWrite() error {
	half, ok := t.conn.Conn.(interface{ CloseWrite() error })
	if !ok || t.grace <= 0 {
		return io.EOF
	}
	_ = t.conn.SetReadDeadline(time.Now().Add(t.grace)) // fails only on a closed connection
	return half.CloseWrite()
}

// upgrading is the response to a request that may upgrade its connection.
type upgrading struct {
	http.ResponseWriter
	client *inbound // nil if the connection was not accepted by the balancer
}

// Unwrap lets http.ResponseController find the server's own writer.
func (u upgrading) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// Hijack implements http.Hijacker. ReverseProxy reads from the connection only, so what the server has read already is put before it.
func (u upgrading) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, both, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err == nil && u.client != nil {
		u.client.upgraded.Store(true) // not before: until now, the end of the client's sending side would cancel the request
	}
	if err != nil || both.Reader.Buffered() == 0 {
		return conn, both, err
	}
	early, _ := both.Reader.Peek(both.Reader.Buffered())
	return &ahead{conn, io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)}, both, nil
}

// ahead is a connection of which a part was read already.
type ahead struct {
	net.Conn
	all io.Reader
}

// Read implements net.Conn.
func (a *ahead) Read(b []byte) (int, error) { return a.all.Read(b) }

// CloseWrite closes the sending side.
func (a *ahead) CloseWrite() error { return connlimit.CloseWrite(a.Conn) }
