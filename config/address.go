package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// listenAddress is the host:port that a process listens on; no host means every interface, port 0 any free port.
func listenAddress(dst *string) *scalar[string] {
	return text(dst).then(func(s string) string { return addressProblem(s, false) })
}

// optionalAddress is a listenAddress that `off` turns off.
func optionalAddress(dst *string) *scalar[string] {
	v := text(dst).then(func(s string) string {
		if s == "off" {
			return ""
		}
		return addressProblem(s, false)
	})
	set := v.set
	v.set = func(s string) {
		if s == "off" {
			s = ""
		}
		set(s)
	}
	if v.start == "" {
		v.start = "off"
	}
	return v
}

// remoteAddress is the host:port of something to connect to.
func remoteAddress(dst *string) *scalar[string] {
	return text(dst).then(func(s string) string { return addressProblem(s, true) })
}

// pathOrAddress is a socket: an absolute path, or host:port.
func pathOrAddress(dst *string) *scalar[string] {
	return text(dst).then(func(s string) string {
		if strings.Contains(s, "/") {
			if s[0] != '/' || len(s) > maxSocketPath {
				return fmt.Sprintf("must be an absolute path of at most %d bytes, is %q", maxSocketPath, shorten(s))
			}
			return ""
		}
		return addressProblem(s, true)
	})
}

// maxSocketPath is what fits into a sockaddr_un.
const maxSocketPath = 107

// oneCommand is text that becomes part of a line.
func oneCommand(s string) string {
	if strings.ContainsAny(s, ";\\\n\r") {
		return "must be one line without ; or \\"
	}
	return ""
}

func addressProblem(s string, remote bool) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Sprintf("must be an address as in 127.0.0.1:8080, is %q", shorten(s))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Sprintf("the port must be a number between 0 and 65535, is %q", shorten(port))
	}
	if remote && (n == 0 || host == "") {
		return fmt.Sprintf("must name a host and a port to connect to, is %q", shorten(s))
	}
	if strings.ContainsAny(host, " /@?#") {
		return fmt.Sprintf("%q is no host name", shorten(host))
	}
	return ""
}

// loopback says whether an address can be reached from this machine only.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// samePort says whether two listen addresses exclude each other.
func samePort(a, b string) bool {
	_, port, err := net.SplitHostPort(a)
	return err == nil && a == b && port != "0"
}

// natsURL is one or more addresses of a bus, separated by commas.
func natsURL(dst *string) *scalar[string] {
	return text(dst).then(func(s string) string {
		for one := range strings.SplitSeq(s, ",") {
			u, err := url.Parse(strings.TrimSpace(one))
			if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
				return fmt.Sprintf("must be an address as in nats://10.0.0.1:4222, is %q", shorten(one))
			}
		}
		return ""
	})
}

// Ports is a range of ports, ends included; the zero value means any free ports.
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

func ports(dst *Ports) *scalar[Ports] {
	return &scalar[Ports]{
		kind: "a range of ports as in 9000-9099", parse: parsePorts, format: Ports.String, accepts: isSingle,
		set: func(p Ports) { *dst = p }, start: dst.String(),
	}
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

// network is a block of addresses in CIDR form, or a single address.
func network(dst *netip.Prefix) *scalar[netip.Prefix] {
	return &scalar[netip.Prefix]{
		kind: "a network as in 10.0.0.0/8, or an address", parse: parseNetwork, format: netip.Prefix.String, accepts: isSingle,
		set: func(p netip.Prefix) { *dst = p }, rules: []rule[netip.Prefix]{wholeNetwork},
	}
}

func parseNetwork(s string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
		return netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()), nil
	}
	return netip.ParsePrefix(s)
}

// wholeNetwork refuses 10.1.2.3/8: either the address or the length is a slip.
func wholeNetwork(p netip.Prefix) string {
	if p != p.Masked() {
		return fmt.Sprintf("%s has bits beyond its length: write %s, or %s", p, p.Masked(), p.Addr())
	}
	return ""
}
