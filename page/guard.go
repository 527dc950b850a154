package page

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
)

// guard refuses names that do not belong to this server, with which a foreign page could make a browser ask it (DNS rebinding), and tells
// browsers what the page may do.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "+
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if strings.Contains(r.URL.Path, "/page/static/") {
			h.Set("Cache-Control", "no-cache")
		}
		if why := s.closed(); why != "" {
			http.Error(w, why, http.StatusForbidden)
			return
		}
		if !s.knowsHost(r.Host) {
			http.Error(w, fmt.Sprintf("unknown host %q: open the page by its address, or add the name to page.hosts", shown(r.Host)),
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knowsHost returns whether a browser may ask under this name. An address is no name that somebody else could point here.
func (s *Server) knowsHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	own, _ := os.Hostname()
	listen, _, _ := net.SplitHostPort(s.opts.Listen)
	return net.ParseIP(host) != nil || host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		host != "" && slices.ContainsFunc(append([]string{own, listen}, s.opts.Hosts...), func(known string) bool {
			return strings.EqualFold(known, host)
		})
}

// who returns who is logged in.
func (s *Server) who(r *http.Request) (by string, ok bool) {
	c, err := r.Cookie(s.cookie)
	if err != nil {
		return "", false
	}
	x, ok := s.logins.find(c.Value, s.opts.Now(), false)
	return x.by, ok
}

// readers lets those in who may read.
func (s *Server) readers(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.who(r); !ok && !s.loopback {
			http.Error(w, "log in first: quell page prints the address for it", http.StatusUnauthorized)
			return
		}
		next(w, r)
	}
}
