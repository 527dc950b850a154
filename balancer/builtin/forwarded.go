package builtin

import (
	"cmp"
	"maps"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"
)

// forward prepares a request for an instance. Query strings are passed on unchanged.
func (p *proxy) forward(r *httputil.ProxyRequest) {
	rules := p.limiter.rules.Load()
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	rules.limitUpgrade(r)
	if r.Out.Host == "" {
		r.Out.Host = cmp.Or(rules.host, noHost)
	}
	rules.nameClient(r)
}

// noHost is an invalid name, for which http.Transport sends an empty Host. For an empty name it would send the instance's address.
const noHost = " "

// limitUpgrade removes the client's wish to change to another protocol, except to one that is allowed. An instance that changed to a
// protocol that the balancer does not know, such as h2c, could be sent requests past the balancer.
func (c *clientRules) limitUpgrade(r *httputil.ProxyRequest) {
	h := r.Out.Header
	delete(h, "Http2-Settings")
	if h.Get("Upgrade") == "" {
		return
	}
	for wish := range strings.SplitSeq(strings.Join(r.In.Header["Upgrade"], ","), ",") {
		wish = strings.TrimSpace(wish)
		if slices.ContainsFunc(c.upgrades, func(allowed string) bool { return strings.EqualFold(allowed, wish) }) {
			h.Set("Upgrade", wish)
			return
		}
	}
	h.Del("Connection")
	h.Del("Upgrade")
}

// nameClient sets the headers that name the client. If such headers come from a trusted proxy, the proxy's address is appended to them.
// Otherwise they are replaced.
func (c *clientRules) nameClient(r *httputil.ProxyRequest) {
	if len(c.trusted) == 0 || !c.trusts(peerOfRequest(r.In.RemoteAddr)) {
		maps.DeleteFunc(r.Out.Header, func(k string, _ []string) bool { return isForwarded(k) })
		r.SetXForwarded()
		return
	}
	r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	r.SetXForwarded()
	for _, k := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v := r.In.Header[k]; len(v) > 0 {
			r.Out.Header[k] = v
		}
	}
	if chain := r.In.Header["Forwarded"]; len(chain) > 0 {
		r.Out.Header.Set("Forwarded", strings.Join(chain, ", ")+", "+element(r))
	}
}

// isForwarded returns whether a proxy names its client in a header. Many servers pass headers on to programs as variables, in whose names
// a hyphen becomes an underscore, so both count as the same.
func isForwarded(name string) bool {
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	return name == "forwarded" || strings.HasPrefix(name, "x-forwarded-")
}

// element returns this balancer's entry in a Forwarded header (RFC 7239).
func element(r *httputil.ProxyRequest) string {
	peer := peerOfRequest(r.In.RemoteAddr)
	node := peer.String()
	if peer.Is6() {
		node = `"[` + node + `]"`
	}
	text := "for=" + node + ";proto=http"
	if r.In.TLS != nil {
		text += "s"
	}
	if host := r.In.Host; host != "" && !strings.ContainsAny(host, `"\\`) {
		text += `;host="` + host + `"`
	}
	return text
}

// peerOfRequest returns the remote address of a request's connection; the zero Addr if there is none.
func peerOfRequest(remote string) netip.Addr {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return peer.Addr().Unmap().WithZone("")
}
