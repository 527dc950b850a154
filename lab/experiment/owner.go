package experiment

import (
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"sync"
	"syscall"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/train"
)

// Machines gives the player access to a lab's machines.
type Machines interface {
	// Interfere sets how much of a host's resources a neighbour uses. It ends the use of resources that the map lacks.
	Interfere(host string, use map[quell.Resource]float64) error
	// Work does the same by processes of the host's instance.
	Work(host string, use map[quell.Resource]float64) error
	// Run makes a host's neighbour run these programs at these strengths, and no other.
	Run(host string, strengths map[kernel.Program]float64) error
	// Carried returns how much work of the service and of the neighbour a host's resource has done.
	Carried(host string, r quell.Resource) (train.Carried, error)
}

// A lab belongs to the process that made it: interferers are its children, and at the end it removes everything. The player runs in a
// process of its own, in the clients' namespace. A pair of sockets connects the two. It carries the player's calls, and it closes when
// either process ends.

// ServeMachines carries out the player's calls, which arrive on the owner's end of the pair, until the player closes its end.
func ServeMachines(end *os.File, m Machines) error {
	conn, err := net.FileConn(end)
	if err != nil {
		return err
	}
	server := rpc.NewServer()
	if err := server.RegisterName(ownerName, &owner{m}); err != nil {
		return errors.Join(err, conn.Close())
	}
	server.ServeConn(conn)
	return nil
}

// ConnectMachines returns the machines behind the player's end of the pair. When the owner has ended, gone is closed and all calls fail.
func ConnectMachines(end *os.File) (m Machines, gone <-chan struct{}, err error) {
	conn, err := net.FileConn(end)
	if err != nil {
		return nil, nil, err
	}
	closed := make(chan struct{})
	watched := &watchedConn{Conn: conn, ended: sync.OnceFunc(func() { close(closed) })}
	return &remoteMachines{rpc.NewClient(watched)}, closed, nil
}

// MachinesPair makes the two ends of the pair of sockets.
func MachinesPair() (owner, player *os.File, err error) {
	syscall.ForkLock.RLock() // so that no child that is started meanwhile inherits them
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "owner"), os.NewFile(uintptr(fds[1]), "player"), nil
}

const ownerName = "Lab"

// owner has the methods that the player calls over the sockets.
type owner struct{ machines Machines }

// InterfereCall is the argument of Interfere over the sockets.
type InterfereCall struct {
	Host string
	Use  map[quell.Resource]float64
}

// RunCall is the argument of Run over the sockets.
type RunCall struct {
	Host      string
	Strengths map[kernel.Program]float64
}

// CarriedCall is the argument of Carried over the sockets.
type CarriedCall struct {
	Host     string
	Resource quell.Resource
}

func (o *owner) Interfere(c InterfereCall, _ *struct{}) error {
	return o.machines.Interfere(c.Host, c.Use)
}

func (o *owner) Work(c InterfereCall, _ *struct{}) error { return o.machines.Work(c.Host, c.Use) }

func (o *owner) Run(c RunCall, _ *struct{}) error { return o.machines.Run(c.Host, c.Strengths) }

func (o *owner) Carried(c CarriedCall, carried *train.Carried) (err error) {
	*carried, err = o.machines.Carried(c.Host, c.Resource)
	return err
}

type remoteMachines struct{ client *rpc.Client }

func (m *remoteMachines) Work(host string, use map[quell.Resource]float64) error {
	return m.client.Call(ownerName+".Work", InterfereCall{host, use}, &struct{}{})
}

func (m *remoteMachines) Interfere(host string, use map[quell.Resource]float64) error {
	return m.client.Call(ownerName+".Interfere", InterfereCall{host, use}, &struct{}{})
}

func (m *remoteMachines) Run(host string, strengths map[kernel.Program]float64) error {
	return m.client.Call(ownerName+".Run", RunCall{host, strengths}, &struct{}{})
}

func (m *remoteMachines) Carried(host string, r quell.Resource) (c train.Carried, err error) {
	err = m.client.Call(ownerName+".Carried", CarriedCall{host, r}, &c)
	return c, err
}

// watchedConn reports when nothing more can be read from a connection.
type watchedConn struct {
	net.Conn
	ended func()
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.ended()
	}
	return n, err
}
