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
	"github.com/quellhq/quell/train"
)

// Machines are a lab's machines as the player uses them.
type Machines interface {
	// Interfere sets what a neighbour takes of a host's resources, all of them: what is absent ends.
	Interfere(host string, use map[quell.Resource]float64) error
	// Carried returns what a host's service and its neighbour have carried of a resource.
	Carried(host string, r quell.Resource) (train.Carried, error)
}

// A lab belongs to the process that made it: interferers are its children, and it removes everything at the end. The
// player runs inside the lab, in the clients' namespace. The two are connected by a pair of sockets, which carries the
// player's calls and closes when one of them ends.

// ServeMachines answers a player's calls on the owner's end of the pair until the player closes its own.
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

// ConnectMachines is the player's end. Its machines' calls fail once the owner is gone; gone is closed then.
func ConnectMachines(end *os.File) (m Machines, gone <-chan struct{}, err error) {
	conn, err := net.FileConn(end)
	if err != nil {
		return nil, nil, err
	}
	closed := make(chan struct{})
	watched := &watchedConn{Conn: conn, ended: sync.OnceFunc(func() { close(closed) })}
	return &remoteMachines{rpc.NewClient(watched)}, closed, nil
}

// MachinesPair makes the two ends.
func MachinesPair() (owner, player *os.File, err error) {
	syscall.ForkLock.RLock() // no child in between inherits them
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

// owner is what the player calls.
type owner struct{ machines Machines }

// InterfereCall is the argument of a call.
type InterfereCall struct {
	Host string
	Use  map[quell.Resource]float64
}

// CarriedCall is the argument of a call.
type CarriedCall struct {
	Host     string
	Resource quell.Resource
}

func (o *owner) Interfere(c InterfereCall, _ *struct{}) error {
	return o.machines.Interfere(c.Host, c.Use)
}

func (o *owner) Carried(c CarriedCall, carried *train.Carried) (err error) {
	*carried, err = o.machines.Carried(c.Host, c.Resource)
	return err
}

type remoteMachines struct{ client *rpc.Client }

func (m *remoteMachines) Interfere(host string, use map[quell.Resource]float64) error {
	return m.client.Call(ownerName+".Interfere", InterfereCall{host, use}, &struct{}{})
}

func (m *remoteMachines) Carried(host string, r quell.Resource) (c train.Carried, err error) {
	err = m.client.Call(ownerName+".Carried", CarriedCall{host, r}, &c)
	return c, err
}

// watchedConn tells when nothing more can be read.
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
