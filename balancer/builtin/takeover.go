package builtin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/connlimit"
)

// Inherited is what a server need not make itself: listening sockets from systemd or from the previous balancer process, and that process's
// results of health checks. Fields may be nil.
type Inherited struct {
	Traffic, Metrics, Admin net.Listener
	Lasting                 bool              // systemd owns the sockets: they stay open when the process ends
	Healthy                 map[string]string // addresses of instances that passed their health checks, by id

	dropped []net.Addr // of sockets that do not fit; the process that passed them on has them open still
}

// handover is the line that the old balancer sends to the new one together with the sockets.
type handover struct {
	Sockets []string          `json:"sockets"` // the purpose of each socket, in the order in which they are sent
	Lasting bool              `json:"lasting"`
	Healthy map[string]string `json:"healthy"`
}

const (
	takeOverPath   = "/take-over"
	takeOverAnswer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: quell-take-over\r\n\r\n"
	serving        = "serving\n" // what the new balancer sends when it accepts connections

	// takeOverWait is how long the new balancer may take to start. Until it accepts connections, the old balancer continues.
	takeOverWait = 30 * time.Second
)

// errTakeOver is returned to a second process that asks for the sockets.
var errTakeOver = errors.New("another process is taking over already")

// HandedOver returns a channel that is closed when another process has taken over: that process accepts connections, and this one no longer
// does. The caller must then call Shutdown, which lets open requests finish.
func (s *Server) HandedOver() <-chan struct{} { return s.handedOver }

// serveTakeOver sends the listening sockets to the client. Who may connect is decided by the permissions of the admin socket.
func (s *Server) serveTakeOver(w http.ResponseWriter, _ *http.Request) {
	if !s.handing.TryLock() {
		reply(w, http.StatusConflict, adminError{Error: errTakeOver.Error()})
		return
	}
	defer s.handing.Unlock()
	select {
	case <-s.handedOver:
		reply(w, http.StatusConflict, adminError{Error: errTakeOver.Error()})
		return
	default:
	}
	hijacked, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		reply(w, http.StatusInternalServerError, adminError{Error: err.Error()})
		return
	}
	defer hijacked.Close()
	conn, ok := hijacked.(*connlimit.Conn).Conn.(*net.UnixConn)
	if !ok {
		return
	}
	if err := s.offer(conn); err != nil {
		s.opts.Logger.Warn("another process did not take over: this one goes on", "error", err)
		return
	}
	s.step(conn)
}

// offer sends the sockets and waits until the other process accepts connections.
func (s *Server) offer(conn *net.UnixConn) error {
	if err := conn.SetDeadline(time.Now().Add(takeOverWait)); err != nil {
		return err
	}
	h := handover{Lasting: s.opts.Inherited.Lasting}
	var files []int
	for _, e := range s.named() {
		if e.endpoint == nil {
			continue
		}
		raw, err := e.socket.(syscall.Conn).SyscallConn()
		if err != nil {
			return err
		}
		if err := raw.Control(func(fd uintptr) { files = append(files, int(fd)) }); err != nil {
			return err
		}
		h.Sockets = append(h.Sockets, e.name)
	}
	h.Healthy = map[string]string{}
	for _, b := range s.pool.state() {
		if b.Healthy {
			h.Healthy[b.ID] = b.Address
		}
	}
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if _, _, err := conn.WriteMsgUnix([]byte(takeOverAnswer), syscall.UnixRights(files...), nil); err != nil {
		return fmt.Errorf("sending the sockets: %w", err)
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("sending the sockets: %w", err)
	}
	word := make([]byte, len(serving))
	if _, err := io.ReadFull(conn, word); err != nil || string(word) != serving {
		return fmt.Errorf("it ended before it served: %w", err)
	}
	return nil
}

// step makes this process stop accepting connections, because the other one accepts them now.
func (s *Server) step(conn net.Conn) {
	s.proxy.ending.Store(true)
	s.stopReports()
	for _, e := range s.named() {
		if e.endpoint != nil {
			if u, ok := e.socket.(*unlinkingListener); ok {
				u.kept.Store(true)
			}
			e.listener.Close()
		}
	}
	s.opts.Logger.Info("another process has taken over: open requests may finish")
	_, _ = io.WriteString(conn, "\n") // an error is ignored, because the other process may have ended
	close(s.handedOver)
}

type namedEndpoint struct {
	name string
	*endpoint
}

func (s *Server) named() []namedEndpoint {
	return []namedEndpoint{{"traffic", s.traffic}, {"metrics", s.metricsEnd}, {"admin", s.admin}}
}

// TakeOver is the new balancer's side of a take-over.
type TakeOver struct {
	Inherited
	conn *net.UnixConn
}

// ErrNobody says that no balancer listens on an admin socket.
var ErrNobody = errors.New("no balancer runs there")

// AskToTakeOver gets the listening sockets of the balancer that has the given admin socket. That balancer accepts connections until Serving
// is called. If no balancer runs there, the error is ErrNobody.
func AskToTakeOver(ctx context.Context, adminSocket string) (*TakeOver, error) {
	dialled, err := (&net.Dialer{}).DialContext(ctx, "unix", adminSocket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("taking over at %s: %w", adminSocket, ErrNobody)
	}
	if err != nil {
		return nil, fmt.Errorf("taking over at %s: %w", adminSocket, err)
	}
	t := &TakeOver{conn: dialled.(*net.UnixConn)}
	if err := t.receive(); err != nil {
		t.conn.Close()
		return nil, fmt.Errorf("taking over at %s: %w; the running balancer goes on", adminSocket, err)
	}
	return t, nil
}

func (t *TakeOver) receive() error {
	if err := t.conn.SetDeadline(time.Now().Add(takeOverWait)); err != nil {
		return err
	}
	if _, err := io.WriteString(t.conn, "POST "+takeOverPath+" HTTP/1.1\r\nHost: balancer\r\nContent-Length: 0\r\n\r\n"); err != nil {
		return err
	}
	text, rights := make([]byte, 4096), make([]byte, syscall.CmsgSpace(8*4))
	n, rightsLen, _, _, err := t.conn.ReadMsgUnix(text, rights)
	if err != nil {
		return err
	}
	body, ok := bytes.CutPrefix(text[:n], []byte(takeOverAnswer))
	if !ok {
		return t.refusal(text[:n])
	}
	files, err := received(rights[:rightsLen])
	if err != nil {
		return err
	}
	defer closeAll(files)
	var h handover
	line, err := bufio.NewReader(io.MultiReader(bytes.NewReader(body), t.conn)).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	if err != nil {
		return fmt.Errorf("it broke off: %w", err)
	}
	t.Healthy, t.Lasting = h.Healthy, h.Lasting
	return t.adopt(h.Sockets, files)
}

// refusal returns the reason for a refused take-over. begun is the beginning of the old balancer's answer.
func (t *TakeOver) refusal(begun []byte) error {
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(bytes.NewReader(begun), t.conn)), nil)
	if err != nil {
		return fmt.Errorf("it does not answer as a balancer does: %w", err)
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // an error is ignored, because the status is enough
	if resp.StatusCode == http.StatusNotFound {
		return errors.New("it is of a version that cannot hand over: restart it")
	}
	return fmt.Errorf("it refused: %w", refusal(resp.Status, data))
}

// received returns the files in a control message.
func received(rights []byte) (files []*os.File, err error) {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, fmt.Errorf("the sockets did not arrive: %w", err)
	}
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return nil, fmt.Errorf("the sockets did not arrive: %w", err)
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "socket"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func (t *TakeOver) adopt(names []string, files []*os.File) error {
	if len(names) != len(files) {
		return fmt.Errorf("%d of %d sockets arrived", len(files), len(names))
	}
	for i, name := range names {
		ln, err := net.FileListener(files[i])
		if err != nil {
			return fmt.Errorf("the socket for %s: %w", name, err)
		}
		switch name {
		case "traffic":
			t.Traffic = ln
		case "metrics":
			t.Metrics = ln
		case "admin":
			t.Admin = ln
		default:
			ln.Close() // sent by a newer version
		}
	}
	return nil
}

// Close ends the exchange with the old balancer. If Serving was not called before, the old balancer keeps everything.
func (t *TakeOver) Close() { t.conn.Close() }

// Serving tells the old balancer that this one accepts connections. It returns when the old one has stopped accepting.
func (t *TakeOver) Serving() error {
	if _, err := io.WriteString(t.conn, serving); err != nil {
		return fmt.Errorf("telling the old balancer: %w", err)
	}
	if _, err := t.conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("the old balancer did not answer: %w", err)
	}
	return nil
}

// SameAddress returns whether a socket listens on a configured address. An address without a host means every interface, and port 0 means
// any port.
func SameAddress(ln net.Listener, configured string) bool {
	if ln.Addr().Network() == "unix" {
		return true // the socket was asked for by its path
	}
	want, err := net.ResolveTCPAddr("tcp", configured)
	have, ok := ln.Addr().(*net.TCPAddr)
	if err != nil || !ok || want.Port != 0 && want.Port != have.Port {
		return false
	}
	everywhere := len(want.IP) == 0 || want.IP.IsUnspecified()
	return everywhere && have.IP.IsUnspecified() || want.IP.Equal(have.IP)
}

// fitting returns the sockets without those whose addresses are no longer configured.
func (i Inherited) fitting(o *Options) Inherited {
	drop := func(what string, ln *net.Listener, address string) {
		if *ln != nil && (address == "" || !SameAddress(*ln, address)) {
			o.Logger.Warn("an inherited socket is not used: another address is configured", "for", what, "inherited", (*ln).Addr(), "configured",
				address)
			i.dropped = append(i.dropped, (*ln).Addr())
			(*ln).Close()
			*ln = nil
		}
	}
	drop("traffic", &i.Traffic, o.Listen)
	drop("metrics", &i.Metrics, o.Metrics)
	drop("admin", &i.Admin, o.Admin)
	return i
}

// listenTCP returns a socket that was passed on, or else opens an address.
func (i Inherited) listenTCP(ctx context.Context, inherited net.Listener, what, address string) (net.Listener, error) {
	if inherited != nil {
		return inherited, nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, i.inUse(what, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s address: %w", what, err)
	}
	return ln, nil
}

// inUse says who has the port of an address: the process that passed on a socket of the same port, or another one.
func (i Inherited) inUse(what, address string) error {
	_, port, _ := net.SplitHostPort(address) // it was listened at
	for _, at := range i.dropped {
		tcp, ok := at.(*net.TCPAddr)
		switch {
		case !ok || strconv.Itoa(tcp.Port) != port:
		case i.Lasting:
			return &quell.UserError{Err: fmt.Errorf("%s address %s: systemd has its port open at %s: give the socket unit the new address "+
				"(ListenStream=), and restart it and the balancer", what, address, at)}
		default:
			return &quell.UserError{Err: fmt.Errorf("%s address %s: the running balancer has its port open at %s, and another address of the "+
				"same port cannot be taken over: restart the balancer", what, address, at)}
		}
	}
	return fmt.Errorf("%s address %s is in use by another process: stop it or choose another port", what, address)
}

// assume uses what another process knew of the instances' health, until this process's own checks give results.
func (p *pool) assume(healthy map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.listed {
		if address, ok := healthy[b.id]; ok && address == b.address {
			b.health.Up, b.health.EverUp = true, true
		}
	}
	p.refresh()
}
