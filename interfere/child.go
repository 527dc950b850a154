package interfere

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell/internal/lifeline"
)

// Child is an interferer that runs in a process of its own. Its methods must not be called concurrently.
type Child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *os.File
	lines *bufio.Reader
	said  bytes.Buffer // on standard error; read only when the process has ended
	used  float64
}

// patience is how long an interferer may take to start, or to answer.
const patience = 10 * time.Second

// Args are the arguments with which the command quell interferes.
func (o Options) Args() []string {
	float := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	return []string{"interfere", string(o.Resource), "--use", float(o.Use), "--cores", float(o.Cores), "--operations", float(o.Operations),
		"--folder", o.Folder, "--lasts", o.Lasts.String(), "--seed", strconv.FormatUint(o.Seed, 10)}
}

// Start starts an interferer with a command that calls Run, and waits until it uses the resource.
func Start(cmd *exec.Cmd) (c *Child, err error) {
	c = &Child{cmd: cmd}
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	var end *os.File
	if c.out, end, err = os.Pipe(); err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = end, &c.said
	cmd.Env = lifeline.Without(cmd.Environ())
	err = cmd.Start()
	end.Close()
	if err != nil {
		c.out.Close()
		return nil, fmt.Errorf("starting the interferer: %w", err)
	}
	c.lines = bufio.NewReader(c.out)
	if line, err := c.line(); err != nil || line != ready {
		return nil, c.failed(err)
	}
	return c, nil
}

func (c *Child) line() (string, error) {
	if err := c.out.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	line, err := c.lines.ReadString('\n')
	return strings.TrimSpace(line), err
}

// Used returns what the interferer has used so far, in seconds of the whole resource, and tells it to go on for a time. It is an error if
// the interferer has ended.
func (c *Child) Used(lasts time.Duration) (float64, error) {
	if _, err := fmt.Fprintln(c.in, lasts.Seconds()); err != nil {
		return c.used, c.failed(err)
	}
	line, err := c.line()
	if err != nil {
		return c.used, c.failed(err)
	}
	if c.used, err = strconv.ParseFloat(line, 64); err != nil {
		return c.used, c.failed(err)
	}
	return c.used, nil
}

// failed ends the process and says why it did not do what it should.
func (c *Child) failed(err error) error {
	c.Close()
	if text := strings.TrimSpace(c.said.String()); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("the interferer ended by itself: %w", err)
}

// Close ends the interferer. It may be called again.
func (c *Child) Close() {
	c.in.Close()
	late := time.AfterFunc(time.Second, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	_ = c.cmd.Wait() // its status says nothing that is not known
	_ = c.out.Close()
}
