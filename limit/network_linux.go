package limit

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"
)

// network limits what an interface sends, with a token bucket (tbf). A setting is the rate in bit/s, or "max". A queueing discipline that
// somebody else set is never removed or changed: it is an error.
type network struct {
	// own says that this machine's own connections send: their queue is long, and fair to all of them. Otherwise the queue is short
	// (queueTime).
	own bool
}

// sent limits what local connections send.
var sent = network{own: true}

func newNetwork() (kind, error) { return sent, nil }

// handle marks Quell's token buckets, and inside the queue in them.
var (
	handle = netlink.MakeHandle(0x5155, 0)
	inside = netlink.MakeHandle(0x5156, 0)
)

// The bucket holds the bytes of a millisecond, but at least mostPacket, because a card sends that many bytes in one piece. What does not
// fit waits. There is room for the first congestion windows of some hundred connections, because each lost packet delays its connection by
// a time-out of at least 200 ms: with 200 connections and a queue of 50 ms, the 95th percentile was three times the mean. A few
// connections do not fill the queue: the kernel lets each have only a few packets in it.
const (
	mostPacket = 64 << 10 // bytes
	windows    = 8 << 20  // bytes
	queueTime  = 0.05     // seconds
)

func (network) unit() string { return "bit/s" }

func (network) identity(name string) (uint64, error) {
	link, err := linkOf(name)
	if err != nil {
		return 0, err
	}
	return uint64(link.Attrs().Index), nil
}

func linkOf(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil, fmt.Errorf("there is no interface %s: %w", name, fs.ErrNotExist)
	}
	return link, err
}

// ours returns the interface and its token bucket; nil if it has the kernel's default.
func (network) ours(name string) (netlink.Link, *netlink.Tbf, error) {
	link, err := linkOf(name)
	if err != nil {
		return nil, nil, err
	}
	list, err := netlink.QdiscList(link)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the queueing disciplines of %s: %w", name, err)
	}
	for _, q := range list {
		if a := q.Attrs(); a.Parent != netlink.HANDLE_ROOT || a.Handle == 0 { // 0: the kernel's default
			continue
		}
		if bucket, ok := q.(*netlink.Tbf); ok && q.Attrs().Handle == handle {
			return link, bucket, nil
		}
		return nil, nil, fmt.Errorf("%s has a queueing discipline %s that somebody else set: it stays; remove it to limit the interface "+
			"(tc qdisc del dev %s root)", name, q.Type(), name)
	}
	return link, nil, nil
}

func (n network) read(name string) (setting, error) {
	_, bucket, err := n.ours(name)
	if err != nil || bucket == nil {
		return unlimited, err
	}
	return rateSetting(8 * float64(bucket.Rate)), nil
}

func rateSetting(rate float64) setting { return setting(strconv.FormatFloat(rate, 'f', 0, 64)) }

func (n network) write(name string, s setting) error {
	link, bucket, err := n.ours(name)
	if err != nil {
		return err
	}
	rate, limited := n.value(s)
	switch {
	case !limited && bucket == nil:
		return nil
	case !limited:
		err = netlink.QdiscDel(bucket)
	case bucket == nil:
		err = n.add(link, rate)
	default:
		err = netlink.QdiscChange(n.bucket(link, rate))
	}
	if errors.Is(err, syscall.EPERM) {
		err = explain(err)
	}
	if err != nil {
		return fmt.Errorf("limiting what %s sends: %w", name, err)
	}
	return nil
}

func (n network) add(link netlink.Link, rate float64) error {
	bucket := n.bucket(link, rate)
	if err := netlink.QdiscAdd(bucket); err != nil || !n.own {
		return err
	}
	if err := fair(link); err != nil {
		return errors.Join(err, netlink.QdiscDel(bucket))
	}
	return nil
}

// fair makes a queue in the interface's token bucket that gives all connections equal shares, if the kernel has one. In the bucket's own
// queue, a connection that sends in small pieces gets a small share.
func fair(link netlink.Link) error {
	at := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: inside, Parent: netlink.MakeHandle(0x5155, 1)}
	for _, queue := range []netlink.Qdisc{netlink.NewFq(at), &netlink.Sfq{QdiscAttrs: at}} {
		if err := netlink.QdiscAdd(queue); !errors.Is(err, syscall.ENOENT) { // the kernel does not have it
			return err
		}
	}
	return nil
}

func (n network) bucket(link netlink.Link, rate float64) *netlink.Tbf {
	bytes := uint64(rate / 8)
	burst := max(mostPacket, rate/8/1000)
	queue := rate / 8 * queueTime
	if n.own {
		queue = max(queue, windows)
	}
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: handle, Parent: netlink.HANDLE_ROOT},
		Rate:       bytes, Buffer: netlink.Xmittime(bytes, uint32(burst)), Limit: uint32(min(burst+queue, math.MaxInt32)),
	}
}

// to rounds down to whole bytes, as the kernel does.
func (network) to(rate float64, _ setting) setting {
	const least, most = 8000, 1e12
	return rateSetting(8 * math.Floor(min(max(rate, least), most)/8))
}

func (network) value(s setting) (float64, bool) {
	rate, err := strconv.ParseFloat(string(s), 64)
	return rate, err == nil
}
