// Package haproxy drives one backend of one or several running HAProxy processes through their runtime API, and measures its servers from
// HAProxy's log and counters. It never writes or reloads HAProxy's configuration.
//
// Driver (driver.go) computes the wanted state of the servers, and which server belongs to which instance (assign.go). Each process
// (process.go) is brought to that state by commands that plan.go chooses. monitor (monitor.go) makes readings of the log that listener.go
// receives and logline.go parses.
package haproxy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// Options configure a Driver. Sockets and Backend are required.
type Options struct {
	Sockets []string // paths or host:port of the runtime API, one per HAProxy in front of the service
	Backend string   // the backend whose servers are the instances
	// Slots is the prefix of the names of servers that HAProxy's configuration declares in advance (server-template), for instances that come
	// and go. If it is empty, servers are added and deleted at run time, which HAProxy supports since 2.5.
	Slots string
	// Server are the parameters of servers that are added at run time, for example "check inter 1s fall 2 rise 2".
	Server  string
	Members []quell.Member // the instances of a fixed group, to recognise their servers before the first Apply
	// Memory is a file that stores which server belongs to which instance, for restarts of the controller. Empty: there is none.
	Memory string
	// StateFile is the file from which HAProxy loads its servers' state when it starts (server-state-file). After a change, the next State
	// updates it, so that a restarted HAProxy begins with the weights in force. Empty: there is none.
	StateFile string
	Drain     time.Duration // how long a server that was removed may keep open requests; default 30 s
	Lease     time.Duration // how long a controller that no longer renews its lease still keeps others out; default 15 s
	Logger    *slog.Logger
	Now       func() time.Time
}

func (o Options) withDefaults() Options {
	o.Drain = cmp.Or(o.Drain, 30*time.Second)
	o.Lease = cmp.Or(o.Lease, 15*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// names matches what HAProxy accepts as the name of a server or backend. No other name is put into a command.
var names = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)

func (o Options) validate() error {
	var errs []error
	if len(o.Sockets) == 0 {
		errs = append(errs, errors.New("no socket of a HAProxy is given"))
	}
	if !names.MatchString(o.Backend) {
		errs = append(errs, fmt.Errorf("backend %q is no name of HAProxy's", o.Backend))
	}
	if o.Slots != "" && !names.MatchString(o.Slots) {
		errs = append(errs, fmt.Errorf("slots %q cannot begin the name of a server", o.Slots))
	}
	if strings.ContainsAny(o.Server, ";\n\r\\") {
		errs = append(errs, fmt.Errorf("server parameters %q must be one line without ; and \\", o.Server))
	}
	if o.StateFile != "" && len(o.Sockets) > 1 {
		errs = append(errs, errors.New("a state file serves one HAProxy, and several are given"))
	}
	if len(errs) == 0 {
		return nil
	}
	return &quell.UserError{Err: fmt.Errorf("haproxy: %w", errors.Join(errs...))}
}
