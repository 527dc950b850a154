package limit

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ingress limits what an interface receives. The kernel shapes only what is sent, so everything that the interface receives is redirected
// to an interface of kind ifb, which sends it on, through a token bucket. Settings are as for network. Senders elsewhere would fill a long
// queue, so its queue is short.
type ingress struct{}

var received network

func newIngress() (kind, error) { return ingress{}, nil }

func (ingress) unit() string { return "bit/s" }

func (ingress) identity(name string) (uint64, error) { return received.identity(name) }

func (ingress) to(rate float64, now setting) setting { return received.to(rate, now) }

func (ingress) value(s setting) (float64, bool) { return received.value(s) }

// sender is the name of the ifb of an interface.
func sender(link netlink.Link) string { return fmt.Sprintf("quell-in%d", link.Attrs().Index) }

// ours returns the interface, and its ifb; nil if it has none.
func (ingress) ours(name string) (link, ifb netlink.Link, err error) {
	if link, err = linkOf(name); err != nil {
		return nil, nil, err
	}
	ifb, err = netlink.LinkByName(sender(link))
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return link, nil, nil
	}
	return link, ifb, err
}

func (n ingress) read(name string) (setting, error) {
	link, ifb, err := n.ours(name)
	if err != nil {
		return "", err
	}
	if ifb != nil {
		return received.read(ifb.Attrs().Name)
	}
	taken, err := redirecting(link)
	if err == nil && taken {
		err = fmt.Errorf("%s has a queueing discipline for what it receives that somebody else set: it stays; remove it to limit the interface "+
			"(tc qdisc del dev %s ingress)", name, name)
	}
	return unlimited, err
}

// redirecting returns whether the interface has a queueing discipline for what it receives.
func redirecting(link netlink.Link) (bool, error) {
	list, err := netlink.QdiscList(link)
	if err != nil {
		return false, fmt.Errorf("reading the queueing disciplines of %s: %w", link.Attrs().Name, err)
	}
	for _, q := range list {
		if q.Attrs().Parent == netlink.HANDLE_INGRESS {
			return true, nil
		}
	}
	return false, nil
}

func (n ingress) write(name string, s setting) error {
	link, ifb, err := n.ours(name)
	if err != nil {
		return err
	}
	_, limited := n.value(s)
	switch {
	case !limited:
		err = undirect(link, ifb)
	case ifb != nil:
		err = received.write(ifb.Attrs().Name, s)
	default:
		if err = direct(link, s); err != nil {
			_, ifb, _ = n.ours(name)
			err = errors.Join(err, undirect(link, ifb))
		}
	}
	switch {
	case errors.Is(err, syscall.EPERM):
		err = explain(err)
	case errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOENT):
		err = fmt.Errorf("%w: the kernel needs ifb, sch_ingress, cls_matchall and act_mirred", err)
	}
	if err != nil {
		return fmt.Errorf("limiting what %s receives: %w", name, err)
	}
	return nil
}

// direct makes the ifb with its token bucket, and redirects to it what the interface receives.
func direct(link netlink.Link, s setting) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = sender(link)
	ifb := &netlink.Ifb{LinkAttrs: attrs}
	if err := netlink.LinkAdd(ifb); err != nil {
		return err
	}
	if err := received.write(attrs.Name, s); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(ifb); err != nil {
		return err
	}
	made, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		return err
	}
	at := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}
	if err := netlink.QdiscAdd(&netlink.Ingress{QdiscAttrs: at}); err != nil {
		return err
	}
	return netlink.FilterAdd(&netlink.MatchAll{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: at.Handle, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(made.Attrs().Index)},
	})
}

// undirect removes the ifb and the redirection to it. nil stands for an interface that has none, whose queueing discipline is somebody
// else's.
func undirect(link, ifb netlink.Link) error {
	if ifb == nil {
		return nil
	}
	taken, err := redirecting(link)
	if err == nil && taken {
		at := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}
		err = netlink.QdiscDel(&netlink.Ingress{QdiscAttrs: at})
	}
	return errors.Join(err, netlink.LinkDel(ifb))
}
