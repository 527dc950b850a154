package kernel

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// space is a namespace while the network is being made.
type space struct {
	ns     netns.NsHandle
	handle *netlink.Handle
}

func (s *space) close() {
	s.handle.Close()
	_ = s.ns.Close()
}

func newSpace(name string) (*space, error) {
	if err := makeNamespace(name); err != nil {
		return nil, err
	}
	ns, err := netns.GetFromName(name)
	if err != nil {
		return nil, fmt.Errorf("opening namespace %s: %w", name, err)
	}
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("talking to namespace %s: %w", name, err), ns.Close())
	}
	s := &space{ns, handle}
	lo, err := handle.LinkByName("lo")
	if err == nil {
		err = handle.LinkSetUp(lo)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("namespace %s: bringing up its loopback: %w", name, err)
	}
	return s, nil
}

// layNetwork makes all namespaces and links.
func (l *Lab) layNetwork() error {
	prefix := l.options.Prefix
	outer, err := newSwitch(prefix + "-net")
	if err != nil {
		return err
	}
	defer outer.close()
	for _, role := range []Role{Client, Balancer} {
		if err := l.attach(outer, string(role), "", role, 0); err != nil {
			return err
		}
	}
	for _, h := range l.options.Hosts {
		if err := l.layHost(outer, h); err != nil {
			return fmt.Errorf("host %s: %w", h.ID, err)
		}
	}
	return nil
}

func (l *Lab) layHost(outer *space, h Host) error {
	inner, err := newSwitch(l.options.Prefix + "-" + h.ID)
	if err != nil {
		return err
	}
	defer inner.close()
	uplink, err := connect(inner, uplinkName, outer, h.ID)
	if err != nil {
		return err
	}
	if err := outer.plug(h.ID); err != nil {
		return err
	}
	if err := inner.plug(uplinkName); err != nil {
		return err
	}
	if h.Network > 0 {
		if err := inner.handle.QdiscAdd(shaper(uplink, h.Network, window(h.Network))); err != nil {
			return fmt.Errorf("shaping its link: %w", err)
		}
	}
	for _, role := range []Role{Instance, Neighbour} {
		if err := l.attach(inner, string(role), h.ID, role, window(h.Network)); err != nil {
			return err
		}
	}
	if err := l.attach(outer, h.ID+"-"+string(Sink), h.ID, Sink, 0); err != nil {
		return err
	}
	return l.settle(h.ID)
}

const (
	switchName = "switch"
	uplinkName = "uplink"
	cardName   = "eth0" // of every place
)

// newSwitch makes a namespace with a bridge.
func newSwitch(name string) (*space, error) {
	s, err := newSpace(name)
	if err != nil {
		return nil, err
	}
	bridge := &netlink.Bridge{LinkAttrs: named(switchName)}
	err = s.handle.LinkAdd(bridge)
	if err == nil {
		err = s.handle.LinkSetUp(bridge)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("namespace %s: making its bridge: %w", name, err)
	}
	return s, nil
}

// plug makes a link a port of the namespace's bridge.
func (s *space) plug(port string) error {
	link, err := s.handle.LinkByName(port)
	if err != nil {
		return err
	}
	bridge, err := s.handle.LinkByName(switchName)
	if err != nil {
		return err
	}
	if err := s.handle.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("plugging %s into the bridge: %w", port, err)
	}
	return nil
}

// connect joins two namespaces by a veth pair, brings the pair up, and returns a's end.
func connect(a *space, nameA string, b *space, nameB string) (netlink.Link, error) {
	pair := &netlink.Veth{LinkAttrs: named(nameA), PeerName: nameB, PeerNamespace: netlink.NsFd(int(b.ns))}
	if err := a.handle.LinkAdd(pair); err != nil {
		return nil, fmt.Errorf("making the link %s to %s: %w", nameA, nameB, err)
	}
	end, err := up(a, nameA)
	if err != nil {
		return nil, err
	}
	_, err = up(b, nameB)
	return end, err
}

func up(s *space, name string) (netlink.Link, error) {
	link, err := s.handle.LinkByName(name)
	if err == nil {
		err = s.handle.LinkSetUp(link)
	}
	if err != nil {
		return nil, fmt.Errorf("bringing up %s: %w", name, err)
	}
	return link, nil
}

// attach makes a place's namespace and connects it to a switch. Its connections have a congestion window of that many packets; 0: as the
// kernel chooses.
func (l *Lab) attach(to *space, port, host string, role Role, packets uint32) error {
	p, err := PlaceOf(l.options.Prefix, host, role)
	if err != nil {
		return err
	}
	s, err := newSpace(p.namespace)
	if err != nil {
		return err
	}
	defer s.close()
	card, err := connect(s, cardName, to, port)
	if err != nil {
		return err
	}
	if err := to.plug(port); err != nil {
		return err
	}
	own := &netlink.Addr{IPNet: &net.IPNet{IP: p.address.AsSlice(), Mask: net.CIDRMask(16, 32)}}
	if err := s.handle.AddrAdd(card, own); err != nil {
		return fmt.Errorf("giving %s its address: %w", p.namespace, err)
	}
	// The agent finds the network card by the default route. This default route leads nowhere.
	if err := s.handle.RouteAdd(&netlink.Route{LinkIndex: card.Attrs().Index, Dst: everywhere(), Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("giving %s a default route: %w", p.namespace, err)
	}
	if packets > 0 {
		return steady(p, card, packets)
	}
	return nil
}

func everywhere() *net.IPNet { return &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)} }

func named(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

// shaper is a token bucket that lets rate bit/s pass, for connections that have a congestion window of so many packets.
func shaper(link netlink.Link, rate float64, packets uint32) *netlink.Tbf {
	bytes := uint64(rate / 8)
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       bytes, Buffer: netlink.Xmittime(bytes, burst(rate, packets)), Limit: queueBytes,
	}
}

// burst is how many bytes may pass at once: the bytes of one millisecond, but at least one congestion window with its headers, which the
// card sends in one piece.
func burst(rate float64, packets uint32) uint32 {
	return uint32(max(float64(packets)*1514, min(rate/8*0.001, 1<<20)))
}

// How connections share the shaped link. The shaper has one queue, first come first served, and this kernel has no fair queue. In such a
// queue the share of a connection is its share of the bytes that wait. If every connection may have the same few packets under way, and
// the queue is so long that none is lost, all get equal shares: processor sharing, as the papers assume. The sender's congestion window
// limits the packets, not the receiver's window, which would open only when a busy client finds the time to read. A longer window serves
// old connections before new ones; a much shorter one leaves the link idle between two windows; a short queue adds retransmission
// time-outs of 200 ms. Figures are in docs/lab.md.
const (
	fullWindow = 12      // packets; fills a link of 500 Mbit/s within a round trip of a quarter of a millisecond
	fullFrom   = 40e6    // bit/s; slower links have a smaller window, because as many bytes pass an idle link at once
	minWindow  = 4       // packets
	queueBytes = 8 << 20 // the windows of 400 connections
)

// window returns the congestion window on a link, in packets. A rate of 0 is a link without a limit.
func window(rate float64) uint32 {
	if rate <= 0 || rate >= fullFrom {
		return fullWindow
	}
	return uint32(max(minWindow, math.Round(fullWindow*rate/fullFrom)))
}

// steady gives the place's connections this congestion window from the first packet on.
func steady(p Place, card netlink.Link, packets uint32) error {
	// The netlink library can set the window, but not the lock, without which the kernel only takes the window as a hint.
	metrics := nl.NewRtAttr(unix.RTA_METRICS, nil)
	metrics.AddRtAttr(unix.RTAX_LOCK, nl.Uint32Attr(1<<unix.RTAX_CWND))
	metrics.AddRtAttr(unix.RTAX_CWND, nl.Uint32Attr(packets))
	metrics.AddRtAttr(unix.RTAX_INITCWND, nl.Uint32Attr(packets))
	message := nl.NewRtMsg()
	message.Family, message.Dst_len, message.Protocol, message.Scope = unix.AF_INET, 16, unix.RTPROT_KERNEL, unix.RT_SCOPE_LINK
	network, self := [4]byte{10, 77}, p.address.As4()
	return p.Do(func() error {
		request := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
		request.AddData(message)
		request.AddData(nl.NewRtAttr(unix.RTA_DST, network[:]))
		request.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(card.Attrs().Index))))
		request.AddData(nl.NewRtAttr(unix.RTA_PREFSRC, self[:]))
		request.AddData(metrics)
		if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
			return fmt.Errorf("setting the congestion window in %s: %w", p.namespace, err)
		}
		return nil
	})
}

// settle makes the windows of a host's connections effective. The kernel applies a route's locked window only to addresses of which it
// has metrics from an earlier connection. So settle makes one connection for each pair of addresses; after that no metrics are recorded
// any more.
func (l *Lab) settle(host string) error {
	for _, pair := range []struct {
		from, to Role
	}{{Client, Instance}, {Balancer, Instance}, {Sink, Neighbour}} {
		fromHost := ""
		if pair.from == Sink {
			fromHost = host
		}
		from, err := l.Place(fromHost, pair.from)
		if err != nil {
			return err
		}
		to, err := l.Place(host, pair.to)
		if err != nil {
			return err
		}
		if err := greet(from, to); err != nil {
			return fmt.Errorf("connecting %s to %s: %w", from.namespace, to.namespace, err)
		}
	}
	for _, role := range []Role{Instance, Neighbour} {
		p, err := l.Place(host, role)
		if err != nil {
			return err
		}
		if err := p.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_no_metrics_save", []byte("1"), 0o644) }); err != nil {
			return err
		}
	}
	return nil
}

// greet makes one connection. The place that must record its metrics closes it last.
func greet(from, to Place) error {
	var listener net.Listener
	err := to.Do(func() (err error) {
		listener, err = net.Listen("tcp4", to.address.String()+":0")
		return err
	})
	if err != nil {
		return err
	}
	defer listener.Close()
	var near net.Conn
	err = from.Do(func() (err error) {
		near, err = net.DialTimeout("tcp4", listener.Addr().String(), patience)
		return err
	})
	if err != nil {
		return err
	}
	far, err := listener.Accept()
	if err != nil {
		return errors.Join(err, near.Close())
	}
	if err := near.Close(); err != nil {
		return errors.Join(err, far.Close())
	}
	_, err = io.Copy(io.Discard, far)
	if err = errors.Join(err, far.Close()); err != nil {
		return err
	}
	return to.Do(func() error { return closed(listener.Addr().(*net.TCPAddr).Port) })
}

// closed waits until the calling thread's namespace has no connection on a port, because the kernel has then recorded the connection's
// metrics.
func closed(port int) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		table, err := os.ReadFile("/proc/thread-self/net/tcp")
		if err != nil {
			return err
		}
		if states := statesOf(string(table), port); !slices.ContainsFunc(states, func(s string) bool { return s != listening }) {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("the connection does not end")
		}
	}
}

// SinglePackets lets the place's connections send one packet at a time, instead of several in one piece. The kernel lets each connection
// have only two pieces in a queue of this place. So in a queue that is not fair, a connection with small pieces gets a small share.
func (p Place) SinglePackets() error {
	return p.Do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkSetGSOMaxSegs(link, 1)
		}
		return err
	})
}
