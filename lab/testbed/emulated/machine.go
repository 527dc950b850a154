package emulated

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
)

// Interface is the name of an emulated machine's network card.
const Interface = "eth0"

// machine is what an agent sees of an emulated machine: the counters and the speed of its network card, computed when a file is opened.
// It has only files, no folders. What the neighbours send is missing, because a guest cannot see it on a real machine either.
type machine struct {
	link *Link
	now  func() time.Time
}

func (m machine) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	content, ok := m.content(name)
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	info := fileInfo{name: name[strings.LastIndexByte(name, '/')+1:], size: int64(len(content)), at: m.now()}
	return &file{Reader: strings.NewReader(content), info: info}, nil
}

func (m machine) content(name string) (string, bool) {
	switch name {
	case "proc/net/dev":
		return m.netDev(), true
	case "proc/net/route":
		return "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
			Interface + "\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n", true
	case "sys/class/net/" + Interface + "/speed":
		// The kernel writes whole Mbit/s. If the bandwidth is not a whole number of Mbit/s, the file is missing instead of rounded.
		return fmt.Sprintf("%d\n", m.link.BitsPerSecond()/1e6), m.link.BitsPerSecond()%1e6 == 0
	}
	return "", false
}

// netDev counts packets as if all were full ones of 1448 bytes. It reports no received packets.
func (m machine) netDev() string {
	c := m.link.Counters()
	sent := c.Instance + c.Probe
	var b strings.Builder
	b.WriteString("Inter-|   Receive                                                |  Transmit\n")
	b.WriteString(" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier " +
		"compressed\n")
	for _, card := range []struct {
		name string
		sent uint64
	}{{"lo", 0}, {Interface, sent}} {
		fmt.Fprintf(&b, "%6s: %7d %7d    0    0    0     0          0         0 %8d %7d    0    0    0     0       0          0\n",
			card.name, 0, 0, card.sent, (card.sent+1447)/1448)
	}
	return b.String()
}

type file struct {
	io.Reader
	info fileInfo
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

type fileInfo struct {
	name string
	size int64
	at   time.Time
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.size }
func (i fileInfo) Mode() fs.FileMode  { return 0o444 }
func (i fileInfo) ModTime() time.Time { return i.at }
func (i fileInfo) IsDir() bool        { return false }
func (i fileInfo) Sys() any           { return nil }
