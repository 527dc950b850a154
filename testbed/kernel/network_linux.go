package kernel

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// space is a namespace while the network is laid.
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
		if err := l.attach(outer, string(role), "", role); err != nil {
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
		if err := inner.handle.QdiscAdd(shaper(uplink, h.Network)); err != nil {
			return fmt.Errorf("shaping its link: %w", err)
		}
	}
	for _, role := range []Role{Instance, Neighbour} {
		if err := l.attach(inner, string(role), h.ID, role); err != nil {
			return err
		}
	}
	return l.attach(outer, h.ID+"-"+string(Sink), h.ID, Sink)
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

// connect joins two namespaces by a veth pair, brings it up and returns a's end.
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

// attach makes a place's namespace and connects it to a switch.
func (l *Lab) attach(to *space, port, host string, role Role) error {
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
	// The agent finds the card to watch by the default route. It leads nowhere.
	if err := s.handle.RouteAdd(&netlink.Route{LinkIndex: card.Attrs().Index, Dst: everywhere(), Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("giving %s a default route: %w", p.namespace, err)
	}
	return s.steady(p, card)
}

func everywhere() *net.IPNet { return &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)} }

func named(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

// shaper is a token bucket that lets rate bit/s through.
func shaper(link netlink.Link, rate float64) *netlink.Tbf {
	bytes := uint64(rate / 8)
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       bytes, Buffer: netlink.Xmittime(bytes, burst(rate)), Limit: queueBytes,
	}
}

// burst is what may pass at once, in bytes: a millisecond's worth, at least one window with its headers, which the card
// hands over in one piece.
func burst(rate float64) uint32 { return uint32(max(window+2048, min(rate/8*0.001, 1<<20))) }

// How connections share the shaped link. The shaper has one queue, first come first served, and this kernel no fair
// one. In such a queue each connection gets a share of the link like its share of the bytes that wait; if every
// connection may have the same few bytes under way, and the queue is so long that none is lost, all get equal shares:
// processor sharing, as the papers assume. A longer window serves old connections before new ones; a much shorter one
// leaves the link idle between two windows; a short queue adds retransmission time-outs of 200 ms. Figures are in
// docs/lab.md.
const (
	window     = 16 << 10 // bytes; fills a link of 500 Mbit/s within the round trip of a quarter of a millisecond
	queueBytes = 8 << 20  // the windows of 500 connections
)

// steady gives the place's connections that window from the first packet on.
func (s *space) steady(p Place, card netlink.Link) error {
	route := &netlink.Route{
		LinkIndex: card.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4(10, 77, 0, 0).To4(), Mask: net.CIDRMask(16, 32)}, Src: p.address.AsSlice(),
		Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_KERNEL, Window: window, InitCwnd: window/1448 + 1,
	}
	if err := s.handle.RouteReplace(route); err != nil {
		return fmt.Errorf("setting the window of connections in %s: %w", p.namespace, err)
	}
	return nil
}
