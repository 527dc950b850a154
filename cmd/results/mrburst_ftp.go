package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"time"
)

// ftpSession is a user's connection.
type ftpSession struct {
	users   *burstUsers
	host    string
	conn    net.Conn
	control *textproto.Conn
	broken  func() bool // undoes the breaking off
}

// loginFTP connects with a file server.
func loginFTP(u *burstUsers, address string) (burstSession, error) {
	conn, err := u.dial(address)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(address)
	s := &ftpSession{users: u, host: host, conn: conn, control: textproto.NewConn(conn)}
	s.broken = context.AfterFunc(u.ctx, func() { _ = conn.SetDeadline(time.Now()) })
	err = conn.SetDeadline(time.Now().Add(burstPatience))
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
	if err := s.conn.SetDeadline(time.Now().Add(burstPatience)); err != nil {
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
	if err := data.SetDeadline(time.Now().Add(burstPatience)); err != nil {
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
