package setting

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// ListenAddress is the host:port on which a process listens. Without a host the process listens on every interface; with port 0, on
// any free port.
func ListenAddress(dst *string) *Scalar[string] {
	return Text(dst).Then(func(s string) string { return AddressProblem(s, false) })
}

// OptionalAddress is a ListenAddress that can also be `off`.
func OptionalAddress(dst *string) *Scalar[string] {
	v := Text(dst).Then(func(s string) string {
		if s == "off" {
			return ""
		}
		return AddressProblem(s, false)
	})
	set := v.set
	v.set = func(s string) {
		if s == "off" {
			s = ""
		}
		set(s)
	}
	v.start = cmp.Or(v.start, "off")
	return v
}

// RemoteAddress is a host:port to connect to.
func RemoteAddress(dst *string) *Scalar[string] {
	return Text(dst).Then(func(s string) string { return AddressProblem(s, true) })
}

// PathOrAddress is the place of a socket: an absolute path for a Unix socket, or host:port.
func PathOrAddress(dst *string) *Scalar[string] {
	return Text(dst).Then(func(s string) string {
		if strings.Contains(s, "/") {
			if s[0] != '/' || len(s) > maxSocketPath {
				return fmt.Sprintf("must be an absolute path of at most %d bytes, is %q", maxSocketPath, Shorten(s))
			}
			return ""
		}
		return AddressProblem(s, true)
	})
}

// maxSocketPath is the longest path that fits into a sockaddr_un.
const maxSocketPath = 107

// AddressProblem returns what is wrong with a host:port, "" if nothing. If remote, the address must be one to connect to: with a
// host, and a port other than 0.
func AddressProblem(s string, remote bool) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Sprintf("must be an address as in 127.0.0.1:8080, is %q", Shorten(s))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Sprintf("the port must be a number between 0 and 65535, is %q", Shorten(port))
	}
	if remote && (n == 0 || host == "") {
		return fmt.Sprintf("must name a host and a port to connect to, is %q", Shorten(s))
	}
	if strings.ContainsFunc(host, func(r rune) bool { return !isOfHost(r) }) {
		return fmt.Sprintf("%q is no host name", Shorten(host))
	}
	return ""
}

// Loopback returns whether only this machine reaches an address.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// isOfHost returns whether a name or an IP address may contain a character.
func isOfHost(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-._:%", r)
}

// Ports is a range of ports, both ends included; the zero value means any free ports.
type Ports struct{ First, Last int }

// Count returns how many ports the range holds; 0 for any free ports.
func (p Ports) Count() int {
	if p == (Ports{}) {
		return 0
	}
	return p.Last - p.First + 1
}

func (p Ports) String() string {
	if p == (Ports{}) {
		return ""
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// PortRange is a range of ports, both ends included.
func PortRange(dst *Ports) *Scalar[Ports] {
	return Parsed(dst, "a range of ports as in 9000-9099", parsePorts, Ports.String)
}

func parsePorts(s string) (Ports, error) {
	first, last, ok := strings.Cut(s, "-")
	a, errA := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	b, errB := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	if !ok || errA != nil || errB != nil || a == 0 || b < a {
		return Ports{}, errSyntax
	}
	return Ports{First: int(a), Last: int(b)}, nil
}

// Network is a block of addresses in CIDR form, or a single address.
func Network(dst *netip.Prefix) *Scalar[netip.Prefix] {
	return Parsed(dst, "a network as in 10.0.0.0/8, or an address", parseNetwork, netip.Prefix.String).Then(wholeNetwork)
}

func parseNetwork(s string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
		return netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()), nil
	}
	return netip.ParsePrefix(s)
}

// wholeNetwork refuses a block such as 10.1.2.3/8, whose address has bits beyond its length.
func wholeNetwork(p netip.Prefix) string {
	if p != p.Masked() {
		return fmt.Sprintf("%s has bits beyond its length: write %s, or %s", p, p.Masked(), p.Addr())
	}
	return ""
}

// URLPath is the path of a URL.
func URLPath(dst *string) Value {
	return Text(dst).Then(func(s string) string {
		if strings.HasPrefix(s, "/") && !strings.ContainsAny(s, " #") {
			return ""
		}
		return "must be a path as in /healthz"
	})
}
