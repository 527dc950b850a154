package lvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	nlink "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The commands and attributes of IPVS that are used here, from the kernel's include/uapi/linux/ip_vs.h.
const (
	family  = "IPVS"
	version = 1

	getService = 4
	setDest    = 6
	getDest    = 8

	serviceAttr = 1 // of a command: the virtual service
	destAttr    = 2 // of a command: the real server

	serviceFamily    = 1
	serviceProtocol  = 2
	serviceAddress   = 3
	servicePort      = 4
	serviceMark      = 5
	serviceScheduler = 6

	destAddress  = 1
	destPort     = 2
	destMethod   = 3 // forwarding: masquerading, direct routing or a tunnel
	destWeight   = 4
	destUpper    = 5 // thresholds of connections
	destLower    = 6
	destActive   = 7
	destFamily   = 11
	destTunType  = 13
	destTunPort  = 14
	destTunFlags = 15
)

// repeated are the attributes of a real server that a change of its weight must repeat. The kernel sets those that are left out to 0.
var repeated = map[uint16]bool{destAddress: true, destPort: true, destMethod: true, destUpper: true, destLower: true, destFamily: true,
	destTunType: true, destTunPort: true, destTunFlags: true}

// netlink is the table of the kernel that runs this process.
type netlink struct {
	id uint16 // of IPVS among the kernel's generic netlink families, as the last look found it; 0 before
}

func (n *netlink) look(v virtual) (*service, error) {
	id, err := familyID()
	if err != nil {
		return nil, err
	}
	n.id = id
	answers, err := ask(id, getService, 0, serviceOf(v))
	if err != nil {
		return nil, explain(err)
	}
	if len(answers) != 1 {
		return nil, fmt.Errorf("IPVS answered %d times about one virtual service", len(answers))
	}
	s := &service{}
	for _, a := range answers[0] {
		if a.kind == serviceScheduler {
			s.scheduler = nl.BytesToString(a.value)
		}
	}
	reals, err := dump(id, serviceOf(v))
	if err != nil {
		return nil, explain(err)
	}
	for _, attrs := range reals {
		r, err := parseReal(attrs, v.six)
		if err != nil {
			return nil, err
		}
		s.reals = append(s.reals, r)
	}
	return s, nil
}

// dump reads all real servers of a service. If the table changes meanwhile, it begins again.
func dump(id uint16, of *nl.RtAttr) (reals [][]attr, err error) {
	const tries = 5
	for range tries {
		reals, err = ask(id, getDest, unix.NLM_F_DUMP, of)
		if !errors.Is(err, nl.ErrDumpInterrupted) {
			break
		}
	}
	return reals, err
}

func (n *netlink) setWeight(v virtual, r *realServer, weight int) error {
	dest := nl.NewRtAttr(destAttr, nil)
	for _, a := range r.kept {
		dest.AddRtAttr(int(a.kind), a.value)
	}
	dest.AddRtAttr(destWeight, nl.Uint32Attr(uint32(weight)))
	_, err := ask(n.id, setDest, unix.NLM_F_ACK, serviceOf(v), dest)
	return explain(err)
}

// familyID returns the number of IPVS among the kernel's generic netlink families. Asking for it makes the kernel load its module.
func familyID() (uint16, error) {
	f, err := nlink.GenlFamilyGet(family)
	if errors.Is(err, unix.ENOENT) {
		return 0, errors.New("this machine's kernel has no IPVS: load its module with `modprobe ip_vs`, as root")
	}
	if err != nil {
		return 0, fmt.Errorf("asking the kernel for IPVS: %w", err)
	}
	return f.ID, nil
}

// explain says what to do about an error of the kernel.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return errors.New("IPVS may be read and changed only with the capability CAP_NET_ADMIN: run the controller as root, " +
			"or set AmbientCapabilities=CAP_NET_ADMIN in its systemd unit")
	case errors.Is(err, unix.ESRCH):
		return errNoService
	}
	return err
}

// serviceOf encodes the name of a virtual service.
func serviceOf(v virtual) *nl.RtAttr {
	s := nl.NewRtAttr(serviceAttr, nil)
	af := uint16(unix.AF_INET)
	if v.six {
		af = unix.AF_INET6
	}
	s.AddRtAttr(serviceFamily, nl.Uint16Attr(af))
	if v.mark != 0 {
		s.AddRtAttr(serviceMark, nl.Uint32Attr(v.mark))
		return s
	}
	s.AddRtAttr(serviceProtocol, nl.Uint16Attr(v.protocol))
	s.AddRtAttr(serviceAddress, v.address.Addr().AsSlice())
	s.AddRtAttr(servicePort, nl.BEUint16Attr(v.address.Port()))
	return s
}

// ask sends a command and returns the attributes in each message of the answer. Each message is about one service or one server.
func ask(id uint16, command uint8, flags int, parts ...*nl.RtAttr) (answers [][]attr, err error) {
	request := nl.NewNetlinkRequest(int(id), flags)
	request.AddData(&nl.Genlmsg{Command: command, Version: version})
	for _, p := range parts {
		request.AddData(p)
	}
	messages, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if len(m) < nl.SizeofGenlmsg {
			return nil, errors.New("IPVS answered what cannot be read: a message is too short")
		}
		outer, err := parseAttrs(m[nl.SizeofGenlmsg:])
		if err != nil {
			return nil, err
		}
		if len(outer) == 0 {
			return nil, errors.New("IPVS answered what cannot be read: a message is empty")
		}
		inner, err := parseAttrs(outer[0].value)
		if err != nil {
			return nil, err
		}
		answers = append(answers, inner)
	}
	return answers, nil
}

func parseAttrs(data []byte) (list []attr, err error) {
	parsed, err := nl.ParseRouteAttr(data)
	if err != nil {
		return nil, fmt.Errorf("IPVS answered what cannot be read: %w", err)
	}
	for _, p := range parsed {
		list = append(list, attr{p.Attr.Type &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER), p.Value})
	}
	return list, nil
}

// parseReal reads a real server. If the kernel does not report the server's address family, six, the family of its service, is used.
func parseReal(attrs []attr, six bool) (r realServer, err error) {
	var address []byte
	var port uint16
	for _, a := range attrs {
		if repeated[a.kind] {
			r.kept = append(r.kept, a)
		}
		switch {
		case a.kind == destAddress:
			address = a.value
		case a.kind == destPort && len(a.value) == 2:
			port = binary.BigEndian.Uint16(a.value)
		case a.kind == destWeight && len(a.value) == 4:
			r.weight = int(int32(binary.NativeEndian.Uint32(a.value)))
		case a.kind == destActive && len(a.value) == 4:
			r.active = int64(binary.NativeEndian.Uint32(a.value))
		case a.kind == destFamily && len(a.value) == 2:
			six = binary.NativeEndian.Uint16(a.value) == unix.AF_INET6
		}
	}
	if !six && len(address) > 4 {
		address = address[:4]
	}
	ip, ok := netip.AddrFromSlice(address)
	if !ok {
		return r, fmt.Errorf("IPVS answered what cannot be read: an address of %d bytes", len(address))
	}
	r.address = netip.AddrPortFrom(ip, port)
	return r, nil
}
