package builtin

import (
	"net/http/httputil"
	"net/netip"
	"strings"
)

// forward sets the headers that name the client. If such headers come from a trusted proxy, the proxy's address is appended to them.
// Otherwise they are replaced. Query strings are passed on unchanged.
func (p *proxy) forward(r *httputil.ProxyRequest) {
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	rules := p.gate.rules.Load()
	if len(rules.trusted) == 0 || !rules.trusts(peerOfRequest(r.In.RemoteAddr)) {
		r.SetXForwarded()
		return
	}
	r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	r.SetXForwarded()
	for _, k := range []string{"X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port"} {
		if v := r.In.Header[k]; len(v) > 0 {
			r.Out.Header[k] = v
		}
	}
	if chain := r.In.Header["Forwarded"]; len(chain) > 0 {
		r.Out.Header.Set("Forwarded", strings.Join(chain, ", ")+", "+element(r))
	}
}

// element returns this balancer's entry in a Forwarded header (RFC 7239).
func element(r *httputil.ProxyRequest) string {
	peer := peerOfRequest(r.In.RemoteAddr)
	node := peer.String()
	if peer.Is6() {
		node = `"[` + node + `]"`
	}
	text := "for=" + node + ";proto=http"
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
