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

// descriptors divides the process's limit of open files, so that clients can never use up the files that health checks, the admin socket,
// metrics, probes and the bus need.
type descriptors struct {
	limit    int // the process's limit of open files; 0: unknown
	clients  int // limit of clients' connections; 0: no limit
	upstream int // limit of connections to instances; 0: no limit
	checks   int // health checks at the same time
}

// fewestClients is the smallest number of clients with which a balancer is useful.
const fewestClients = 16

// shareOut reserves 64 files and a quarter of the limit (at most 8192) for everything except traffic. The rest is for traffic: a client may
// need two files, its own connection and one to an instance. If maxConns is 0, there may be as many clients as possible.
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

// shortfall returns what to do if the limit of open files allows fewer clients than configured; "" if it allows as many.
func (d descriptors) shortfall(maxConns int) string {
	if maxConns <= d.clients || d.limit == 0 {
		return ""
	}
	need := 2*maxConns + 64
	need += min((need+2)/3, 8192)
	return fmt.Sprintf("raise it to %d (LimitNOFILE= of a systemd unit, or ulimit -n), or lower balancer.max_conns", need)
}

// errNoDescriptors says that connections to instances use all the files that are reserved for them.
var errNoDescriptors = errors.New("too many open connections to instances")

// ownFault returns whether the balancer or the client caused an error. Such an error says nothing about the instance.
func ownFault(err error) bool {
	for _, own := range []error{
		errNoDescriptors, context.Canceled,
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EADDRNOTAVAIL,
	} {
		if errors.Is(err, own) {
			return true
		}
	}
	var lookup *net.DNSError // it contains its cause only as text
	return errors.As(err, &lookup) && strings.HasSuffix(lookup.Err, syscall.EMFILE.Error())
}
