package process

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/webcheck"
)

// Options describes an instance and where its state is kept. Command, Slots and Dir have no defaults.
type Options struct {
	// Command is a program with its arguments. In Command, Env, Address and ProbeAddress, {id}, {port}, {probe_port}, {slot} and {host} (the
	// slot's host, such as h3) are replaced. If {port} is in Address it must also be in Command or Env. A probe port is only assigned if
	// {probe_port} is used.
	Command []string
	Env     []string // added to this process's environment, as NAME=value
	// Address is the address of an instance, "127.0.0.1:{port}" by default. ProbeAddress is the address of its probe server; by default it is
	// "127.0.0.1:{probe_port}", or empty if {probe_port} is not used.
	Address, ProbeAddress string
	Type                  string // Member.Type of new instances
	Prefix                string // of ids: i1, i2, ... by default
	Slots                 int    // how many instances may run at once
	// Dir is the state folder: instances.json and one log per instance. One driver at a time can use it.
	Dir      string
	LogBytes int64     // size at which an instance's log is cut; 10 MiB by default
	Ports    PortRange // free on 127.0.0.1; the zero value lets the system pick them
	Ready    Ready
	Drain    time.Duration // from TERM to KILL; 10 s by default
	// Lifeline is passed to every instance as file descriptor 3, named by QUELL_LIFELINE_FD: the read end of a pipe that
	// reaches end of file when this process ends.
	Lifeline *os.File
	Now      func() time.Time
	Logger   *slog.Logger
}

// PortRange is the ports First to Last, both included.
type PortRange struct{ First, Last int }

// Ready says when an instance is ready: when a GET of Path at its address returns 2xx.
type Ready struct {
	Path     string        // "/" by default
	Interval time.Duration // between tries; 50 ms by default
	Timeout  time.Duration // an instance that is not ready after this time is killed and counts as failed; 30 s by default
	Request  webcheck.Request
}

// prefixRule makes ids valid as file names. A prefix must not end with a digit, because a number follows it.
var prefixRule = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_-]*[A-Za-z_-])?$`)

func (o Options) withDefaults() Options {
	o.Prefix = cmp.Or(o.Prefix, "i")
	o.Address = cmp.Or(o.Address, "127.0.0.1:{port}")
	if o.uses("{probe_port}") {
		o.ProbeAddress = cmp.Or(o.ProbeAddress, "127.0.0.1:{probe_port}")
	}
	o.LogBytes = cmp.Or(o.LogBytes, 10<<20)
	o.Ready.Path = cmp.Or(o.Ready.Path, "/")
	o.Ready.Interval = cmp.Or(o.Ready.Interval, 50*time.Millisecond)
	o.Ready.Timeout = cmp.Or(o.Ready.Timeout, 30*time.Second)
	o.Drain = cmp.Or(o.Drain, 10*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// check returns every mistake in the options, joined in one *quell.UserError.
func (o Options) check() error {
	var errs []error
	addf := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Command) == 0 || o.Command[0] == "" {
		addf("command: missing: give the program that runs one instance, and its arguments")
	} else if strings.Contains(o.Address, "{port}") && !o.uses("{port}") {
		addf("command: {port} does not occur: every instance would listen on the same port")
	}
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		addf("address: %q: give host:port, as in 127.0.0.1:{port}", o.Address)
	}
	if _, _, err := net.SplitHostPort(o.ProbeAddress); err != nil && o.ProbeAddress != "" {
		addf("probe_address: %q: give host:port, as in 127.0.0.1:{probe_port}", o.ProbeAddress)
	}
	if o.Slots < 1 {
		addf("slots: %d: at least one instance must be able to run", o.Slots)
	}
	if o.Dir == "" {
		addf("dir: missing: give the folder where instances.json and the logs are kept")
	}
	if !prefixRule.MatchString(o.Prefix) {
		addf("prefix: %q: use letters, digits, - and _, with a letter first and no digit last", o.Prefix)
	}
	if !strings.HasPrefix(o.Ready.Path, "/") {
		addf("ready.path: %q does not begin with /", o.Ready.Path)
	}
	if o.Ready.Interval < 0 || o.Ready.Timeout < 0 || o.Drain < 0 || o.LogBytes < 0 {
		addf("ready.interval, ready.timeout, drain and the size of logs must not be negative")
	}
	if err := o.checkPorts(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil
	}
	return &quell.UserError{Err: fmt.Errorf("local processes: %w", errors.Join(errs...))}
}

func (o Options) checkPorts() error {
	p := o.Ports
	if p == (PortRange{}) {
		return nil
	}
	if p.First < 1 || p.Last > 65535 || p.First > p.Last {
		return fmt.Errorf("ports: %d-%d is not a range within 1-65535", p.First, p.Last)
	}
	need := o.Slots
	if o.uses("{probe_port}") {
		need *= 2
	}
	if have := p.Last - p.First + 1; have < need {
		return fmt.Errorf("ports: %d-%d has %d ports, but %d slots need %d", p.First, p.Last, have, o.Slots, need)
	}
	return nil
}

// uses returns whether the placeholder occurs in the command or its environment.
func (o Options) uses(placeholder string) bool {
	return strings.Contains(strings.Join(o.Command, "\x00")+"\x00"+strings.Join(o.Env, "\x00"), placeholder)
}

// expand replaces the placeholders in each text by an instance's values.
func expand(texts []string, r *record) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = expandOne(t, r)
	}
	return out
}

func expandOne(text string, r *record) string {
	slot := strconv.Itoa(r.Slot)
	return strings.NewReplacer("{id}", r.ID, "{port}", strconv.Itoa(r.Port),
		"{probe_port}", strconv.Itoa(r.ProbePort), "{slot}", slot, "{host}", "h"+slot).Replace(text)
}
