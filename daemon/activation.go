package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer/builtin"
)

// firstInherited is the number of the first socket that systemd passes.
const firstInherited = 3

// activated returns the sockets that systemd opened for this process (LISTEN_FDS of sd_listen_fds(3)), by the names traffic,
// metrics and admin of their socket units (FileDescriptorName=). Sockets with other names are identified by their address: a Unix
// socket is the admin socket, a socket on the port of balancer.metrics is for metrics, and any other is for traffic.
func activated(b *builtin.Settings) (in builtin.Inherited, err error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return in, nil
	}
	count, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil || count < 0 || count > 16 {
		return in, &quell.UserError{Err: fmt.Errorf("LISTEN_FDS=%q is not the number of a few sockets", os.Getenv("LISTEN_FDS"))}
	}
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	in.Lasting = count > 0
	var errs []error
	for i := range count {
		name := ""
		if i < len(names) {
			name = names[i]
		}
		errs = append(errs, inherit(&in, firstInherited+i, name, b))
	}
	if err := errors.Join(errs...); err != nil {
		return in, &quell.UserError{Err: err}
	}
	return in, nil
}

func inherit(in *builtin.Inherited, fd int, name string, b *builtin.Settings) error {
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	ln, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("socket %d of systemd, %q: %w", fd, name, err)
	}
	place := &in.Traffic
	switch {
	case name == "traffic":
	case name == "admin", name != "metrics" && ln.Addr().Network() == "unix":
		place = &in.Admin
	case name == "metrics", b.Metrics != "" && builtin.SameAddress(ln, b.Metrics):
		place = &in.Metrics
	}
	if *place != nil {
		ln.Close()
		return fmt.Errorf("two sockets of systemd are for the same: %s and %s; set FileDescriptorName= to traffic, metrics or admin",
			(*place).Addr(), ln.Addr())
	}
	*place = ln
	return nil
}
