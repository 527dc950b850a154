package haproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Limits of one exchange.
const (
	exchangeLimit = 2 * time.Second        // HAProxy answers in microseconds; after this time it counts as hung
	hungLimit     = 200 * time.Millisecond // limit after a hang, until HAProxy answers again, so that it does not delay others
	patientEvery  = 10 * time.Second       // after a hang, how often exchangeLimit is the limit all the same: HAProxy may be slow from now on
	answerLimit   = 16 << 20               // limit of one answer, in bytes
	batch         = 100                    // number of commands written before their answers are read, so that neither side blocks the other
)

// prompt ends every answer of the runtime API in interactive mode. masterPrompt ends those of a master process, which has no servers.
var prompt, masterPrompt = []byte("\n> "), []byte("master> ")

var (
	errMaster = errors.New("this is the socket of the master process (-S): name that of a `stats socket` line in the global section")
	errHangs  = errors.New("it takes connections but does not answer: is it stopped or overloaded?")
)

// socket is one persistent connection to HAProxy's runtime API. It is opened when it is needed, and opened again if it broke. Exchanges run
// one at a time.
type socket struct {
	network, address string

	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Reader
	hung bool // the last exchange was not answered in time

	whole, short time.Duration // exchangeLimit and hungLimit
	patient      time.Time     // when the last exchange with the whole limit began
}

// newSocket returns a socket for a path, which must contain a slash, or for a host:port.
func newSocket(address string) *socket {
	if strings.Contains(address, "/") {
		return &socket{network: "unix", address: address, whole: exchangeLimit, short: hungLimit}
	}
	return &socket{network: "tcp", address: address, whole: exchangeLimit, short: hungLimit}
}

// exec sends all commands at once and returns their answers, without the blank line that ends each. If the connection turns out to be
// closed, exec opens it again, because HAProxy closes idle ones (`stats timeout`).
func (s *socket) exec(ctx context.Context, commands ...string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	limit := s.short
	if !s.hung || began.Sub(s.patient) >= patientEvery {
		limit, s.patient = s.whole, began
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reused := s.conn != nil
	answers, err := s.attempt(ctx, commands)
	if err != nil && reused && len(answers) == 0 && ctx.Err() == nil {
		answers, err = s.attempt(ctx, commands)
	}
	switch {
	case err == nil:
		s.hung = false
		return answers, nil
	case time.Since(began) >= limit: // HAProxy hangs: it was not the caller's time that was over
		s.hung, err = true, errHangs
	}
	return answers, s.explain(err)
}

// close closes the connection; the next exchange opens one.
func (s *socket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

func (s *socket) drop() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

func (s *socket) attempt(ctx context.Context, commands []string) (answers []string, err error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.drop()
		}
	}()
	for len(commands) > 0 {
		n := min(batch, len(commands))
		got, err := s.exchange(ctx, commands[:n])
		answers = append(answers, got...)
		if err != nil {
			return answers, err
		}
		commands = commands[n:]
	}
	return answers, nil
}

// open connects and switches to interactive mode, in which HAProxy keeps the connection open.
func (s *socket) open(ctx context.Context) error {
	if s.conn != nil {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, s.network, s.address)
	if err != nil {
		return err
	}
	s.conn, s.in = conn, bufio.NewReaderSize(conn, 64<<10)
	if _, err = s.exchange(ctx, []string{"prompt"}); err != nil {
		s.drop()
	}
	return err
}

func (s *socket) exchange(ctx context.Context, commands []string) ([]string, error) {
	conn := s.conn
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write([]byte(strings.Join(commands, "\n") + "\n")); err != nil {
		return nil, err
	}
	answers := make([]string, 0, len(commands))
	for range commands {
		answer, err := readAnswer(s.in)
		if err != nil {
			return answers, err
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

// readAnswer reads an answer up to the next prompt.
func readAnswer(in *bufio.Reader) (string, error) {
	var answer []byte
	for {
		part, err := in.ReadSlice(' ')
		answer = append(answer, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return "", err
		case bytes.HasSuffix(answer, masterPrompt):
			return "", errMaster
		case bytes.HasSuffix(answer, prompt) || string(answer) == "> ":
			return strings.TrimRight(strings.TrimSuffix(string(answer), "> "), "\n"), nil
		}
		if len(answer) > answerLimit {
			return "", fmt.Errorf("an answer is longer than %d bytes", answerLimit)
		}
	}
}

// explain adds to a failed exchange's error what the person who set HAProxy up can do.
func (s *socket) explain(err error) error {
	at := "HAProxy at " + s.address
	found, _ := os.Stat(s.address)
	switch {
	case s.network == "unix" && found != nil && found.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s: this is no socket: name that of a `stats socket` line in its global section (%w)", at, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: the socket does not exist: is HAProxy running, with `stats socket %s level admin` in its global section? (%w)", at,
			s.address, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: this user may not open the socket: give `stats socket` a user, group or mode that lets it (%w)", at, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s: nobody answers: start HAProxy again (%w)", at, err)
	}
	return fmt.Errorf("%s: %w", at, err)
}
