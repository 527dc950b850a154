//go:build unix

package builtin

import "syscall"

// peerClosed returns whether the other end of an idle connection has closed it, or sent something that was not
// requested.
func peerClosed(conn syscall.Conn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	var peekErr error
	if err := raw.Control(func(fd uintptr) {
		_, _, peekErr = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	}); err != nil {
		return true
	}
	return peekErr != syscall.EAGAIN && peekErr != syscall.EINTR
}
