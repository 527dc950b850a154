package progress

import (
	"net"

	"golang.org/x/sys/unix"
)

// credentials makes the kernel add the sender to each datagram.
func credentials(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) }); err != nil {
		return err
	}
	return set
}

// senderIn reads the sender that the kernel added to a datagram; nil if there is none.
func senderIn(control []byte) *sender {
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for i := range list {
		if c, err := unix.ParseUnixCredentials(&list[i]); err == nil {
			return &sender{int(c.Pid), int(c.Uid)}
		}
	}
	return nil
}

// senderOf asks the kernel for the other side of a connection; nil if it does not say.
func senderOf(c net.Conn) (from *sender) {
	connection, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := connection.SyscallConn()
	if err != nil {
		return nil
	}
	err = raw.Control(func(fd uintptr) {
		if c, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			from = &sender{int(c.Pid), int(c.Uid)}
		}
	})
	if err != nil {
		return nil
	}
	return from
}
