package lvs

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/quellhq/quell/balancer"
)

// virtual names a virtual service of IPVS. It is an address and a protocol, or a firewall mark.
type virtual struct {
	protocol uint16         // number of the protocol; 0 for a mark
	address  netip.AddrPort // not valid for a mark
	mark     uint32         // 0: none
	six      bool           // with a mark: the service is for IPv6
}

// Protocol numbers that IPVS knows.
const (
	tcp  = 6
	udp  = 17
	sctp = 132
)

// protocols are the prefixes of the written forms. An address without a prefix is TCP's.
var protocols = map[string]uint16{"tcp": tcp, "udp": udp, "sctp": sctp}

// parseVirtual reads 10.0.0.1:80, udp:10.0.0.1:53, [fd00::1]:80, fwmark:7 or fwmark6:7.
func parseVirtual(text string) (v virtual, err error) {
	word, rest, _ := strings.Cut(text, ":")
	if word == "fwmark" || word == "fwmark6" {
		mark, err := strconv.ParseUint(rest, 10, 32)
		if err != nil || mark == 0 {
			return v, fmt.Errorf("%q is no firewall mark", rest)
		}
		return virtual{mark: uint32(mark), six: word == "fwmark6"}, nil
	}
	v.protocol = tcp
	if number, named := protocols[word]; named {
		v.protocol, text = number, rest
	}
	if v.address, err = netip.ParseAddrPort(text); err != nil || v.address.Addr().Zone() != "" {
		return v, fmt.Errorf("%q is no address with a port", text)
	}
	v.address = balancer.Plain(v.address)
	v.six = v.address.Addr().Is6()
	return v, nil
}

// String returns the written form, without a prefix for TCP.
func (v virtual) String() string {
	switch {
	case v.mark != 0 && v.six:
		return fmt.Sprintf("fwmark6:%d", v.mark)
	case v.mark != 0:
		return fmt.Sprintf("fwmark:%d", v.mark)
	}
	for name, number := range protocols {
		if number == v.protocol && number != tcp {
			return name + ":" + v.address.String()
		}
	}
	return v.address.String()
}
