package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell/lab/testbed/kernel"
)

// ftpServer is a file server that users go to.
type ftpServer struct {
	address string // host:port
	content string // folder of its files
	users   atomic.Int64
}

// ftpUsers are users who download files from a server, each a file of his own, one after the other. A file's cached pages are dropped
// before it is asked for, so that the disk is read each time. A user who leaves, or goes to another server, finishes his download first.
type ftpUsers struct {
	place  kernel.Place
	server atomic.Pointer[ftpServer]
	report func(took time.Duration, err error) // called concurrently

	ctx  context.Context // its end breaks off all downloads
	all  sync.WaitGroup
	stay []context.CancelFunc // by user
}

// ftpFile is the name of a user's file.
func ftpFile(user int) string { return fmt.Sprintf("file%d", user) }

// ftpPatience is how long a user waits for a download.
const ftpPatience = time.Minute

// set changes the number of users. It must not be called concurrently.
func (u *ftpUsers) set(n int) {
	for len(u.stay) > n {
		u.stay[len(u.stay)-1]()
		u.stay = u.stay[:len(u.stay)-1]
	}
	for len(u.stay) < n {
		user := len(u.stay)
		ctx, leave := context.WithCancel(u.ctx)
		u.stay = append(u.stay, leave)
		u.all.Go(func() { u.visit(ctx, ftpFile(user)) })
	}
}

// visit downloads a file again and again until ctx ends.
func (u *ftpUsers) visit(ctx context.Context, file string) {
	for ctx.Err() == nil {
		server := u.server.Load()
		if err := u.use(ctx, server, file); err != nil && u.ctx.Err() == nil {
			u.report(0, err)
			_ = wait(ctx, 200*time.Millisecond)
		}
	}
}

// use logs in and downloads until ctx ends, or there is another server.
func (u *ftpUsers) use(ctx context.Context, server *ftpServer, file string) error {
	server.users.Add(1)
	defer server.users.Add(-1)
	s, err := u.login(server.address)
	if err != nil {
		return err
	}
	defer s.close()
	for ctx.Err() == nil && u.server.Load() == server {
		if err := dropCache(filepath.Join(server.content, file)); err != nil {
			return err
		}
		began := time.Now()
		if err := s.get(file); err != nil {
			return err
		}
		u.report(time.Since(began), nil)
	}
	return nil
}

// ftpSession is a user's connection.
type ftpSession struct {
	users   *ftpUsers
	host    string
	conn    net.Conn
	control *textproto.Conn
	broken  func() bool // undoes the breaking off
}

func (u *ftpUsers) login(address string) (*ftpSession, error) {
	conn, err := u.dial(address)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(address)
	s := &ftpSession{users: u, host: host, conn: conn, control: textproto.NewConn(conn)}
	s.broken = context.AfterFunc(u.ctx, func() { _ = conn.SetDeadline(time.Now()) })
	err = conn.SetDeadline(time.Now().Add(ftpPatience))
	for _, step := range []struct {
		command string
		code    int
	}{{"", 220}, {"USER anonymous", 230}, {"TYPE I", 200}} {
		if err == nil {
			_, err = s.ask(step.code, step.command)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("logging in: %w", err), s.control.Close())
	}
	return s, nil
}

// dial connects from the users' place.
func (u *ftpUsers) dial(address string) (conn net.Conn, err error) {
	err = u.place.Do(func() error {
		conn, err = (&net.Dialer{Timeout: ftpPatience}).DialContext(u.ctx, "tcp4", address)
		return err
	})
	return conn, err
}

// ask sends a command, unless it is empty, and reads the answer.
func (s *ftpSession) ask(code int, command string) (string, error) {
	if command != "" {
		if _, err := s.control.Cmd("%s", command); err != nil {
			return "", err
		}
	}
	_, text, err := s.control.ReadResponse(code)
	return text, err
}

// get downloads a file.
func (s *ftpSession) get(file string) error {
	if err := s.conn.SetDeadline(time.Now().Add(ftpPatience)); err != nil {
		return err
	}
	text, err := s.ask(229, "EPSV")
	if err != nil {
		return err
	}
	var port int
	if _, err := fmt.Sscanf(text, "Entering Extended Passive Mode (|||%d|)", &port); err != nil {
		return fmt.Errorf("the port in %q: %w", text, err)
	}
	data, err := s.users.dial(net.JoinHostPort(s.host, fmt.Sprint(port)))
	if err != nil {
		return err
	}
	defer data.Close()
	defer context.AfterFunc(s.users.ctx, func() { _ = data.SetDeadline(time.Now()) })()
	if err := data.SetDeadline(time.Now().Add(ftpPatience)); err != nil {
		return err
	}
	if _, err := s.ask(150, "RETR "+file); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, data); err != nil {
		return err
	}
	_, err = s.ask(226, "")
	return err
}

// close says goodbye.
func (s *ftpSession) close() {
	s.broken()
	_, _ = s.ask(221, "QUIT")
	_ = s.control.Close()
}

// dropCache drops a file's pages from the kernel's cache.
func dropCache(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
}
