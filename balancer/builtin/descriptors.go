package builtin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/quellhq/quell"
)

// descriptors says how the process's open files are shared out, so that clients can never take those that health checks,
// the admin socket, metrics, probes and the bus need.
type descriptors struct {
	limit    int // of open files; 0: not known
	clients  int // connections of clients at most; 0: no limit
	upstream int // connections to instances at most; 0: no limit
	checks   int // health checks at a time
}

// fewestClients is how many clients a balancer must have room for to be of any use.
const fewestClients = 16

// shareOut keeps 64 and a quarter of the files (at most 8192) free of traffic. A client takes up to two of the others:
// its own connection and one to an instance. maxConns 0 asks for as many clients as there is room for.
func shareOut(limit, maxConns int) (d descriptors, err error) {
	if limit == 0 {
		return descriptors{clients: maxConns, checks: 256}, nil
	}
	reserved := 64 + min(limit/4, 8192)
	room := (limit - reserved) / 2
	if room < fewestClients {
		return d, &quell.UserError{Err: fmt.Errorf("balancer: the limit of open files is %d, which leaves room for no clients: "+
			"raise it to 1024 at least (LimitNOFILE= of a systemd unit, or ulimit -n)", limit)}
	}
	d = descriptors{limit: limit, clients: room, checks: reserved / 2}
	if maxConns > 0 {
		d.clients = min(room, maxConns)
	}
	d.upstream = limit - reserved - d.clients
	return d, nil
}

// shortfall says what to do where the limit of open files leaves room for fewer clients than asked for, or "".
func (d descriptors) shortfall(maxConns int) string {
	if maxConns <= d.clients || d.limit == 0 {
		return ""
	}
	need := 2*maxConns + 64
	need += min((need+2)/3, 8192)
	return fmt.Sprintf("raise it to %d (LimitNOFILE= of a systemd unit, or ulimit -n), or lower balancer.max_conns", need)
}

// errNoDescriptors says that the connections to instances take all files that they may.
var errNoDescriptors = errors.New("too many open connections to instances")

// ownFault says whether an error is the balancer's own, or its client's: it tells nothing about the instance.
func ownFault(err error) bool {
	for _, own := range []error{
		errNoDescriptors, context.Canceled,
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EADDRNOTAVAIL,
	} {
		if errors.Is(err, own) {
			return true
		}
	}
	var lookup *net.DNSError // keeps the text alone
	return errors.As(err, &lookup) && strings.HasSuffix(lookup.Err, syscall.EMFILE.Error())
}
