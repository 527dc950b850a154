// Package logsocket receives the log of a balancer: datagrams in the syslog protocol.
package logsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
)

// MaxDatagram is larger than any message that HAProxy (its `len` is at most 65535) or nginx sends.
const MaxDatagram = 64 << 10

// receiveBuffer is the size of the receive buffer that is requested for UDP. It is large enough for a burst of a few thousand lines.
const receiveBuffer = 4 << 20

// Listen opens the address where a program's log arrives: a path of a Unix datagram socket, or host:port for UDP. It replaces a socket file
// that a dead process left. Every local user may write to the socket, because the program runs as another user; the folder's permissions
// can restrict that.
func Listen(address, program string) (net.PacketConn, error) {
	if !strings.Contains(address, "/") {
		conn, err := net.ListenPacket("udp", address)
		if err != nil {
			return nil, fmt.Errorf("listening for %s's log: %w; choose another address or stop what uses it", program, err)
		}
		_ = conn.(*net.UDPConn).SetReadBuffer(receiveBuffer) // if the system allows less, that is no error
		return conn, nil
	}
	if err := removeStale(address); err != nil {
		return nil, fmt.Errorf("listening for %s's log: %w", program, err)
	}
	conn, err := net.ListenPacket("unixgram", address)
	if err != nil {
		return nil, fmt.Errorf("listening for %s's log: %w", program, err)
	}
	if err := os.Chmod(address, 0o666); err != nil {
		conn.Close()
		return nil, fmt.Errorf("listening for %s's log: %w", program, err)
	}
	return conn, nil
}

// removeStale removes a socket that no process reads.
func removeStale(path string) error {
	found, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if found.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and is no socket", path)
	}
	conn, err := net.Dial("unixgram", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("another process listens on %s", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
