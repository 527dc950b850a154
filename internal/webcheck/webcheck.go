// Package webcheck is the request by which an instance is checked: its Host and header fields, and what to do if the instance refuses them.
package webcheck

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/quellhq/quell/setting"
)

// Request is what a check says in addition to its path.
type Request struct {
	Host    string   // empty: the instance's address
	Headers []string // further fields, as in "X-Forwarded-Proto: https"
}

// Keys are the keys of a configuration that fill it.
func (r *Request) Keys() []setting.Key {
	return []setting.Key{
		setting.Opt("host", setting.Text(&r.Host).Then(HostProblem),
			"Host of the check, for instances that answer to their own names only, as Django does (ALLOWED_HOSTS)").
			Or("the instance's address"),
		setting.Opt("headers", setting.ListOf(&r.Headers, "", func(s *string) setting.Value { return setting.Text(s).Then(fieldProblem) }),
			`further header fields of the check, as in ["X-Forwarded-Proto: https"]`).Or("none"),
	}
}

// Equal returns whether two requests say the same.
func (r *Request) Equal(o *Request) bool {
	return r.Host == o.Host && slices.Equal(r.Headers, o.Headers)
}

// Fill sets the fields of a request.
func (r *Request) Fill(req *http.Request) {
	for _, field := range r.Headers {
		name, value, _ := strings.Cut(field, ":")
		req.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if r.Host != "" {
		req.Host = r.Host
	}
}

// Refused returns what to do if an answer says that the instance does not accept the request's Host, "" if it does not say so. section is
// the part of the configuration that has the keys.
func Refused(req *http.Request, status int, section string) string {
	if status != http.StatusBadRequest && status != http.StatusMisdirectedRequest {
		return ""
	}
	host := cmp.Or(req.Host, req.URL.Host)
	return fmt.Sprintf("it was asked with `Host: %s`: if it answers to another name only, set %s.host", host, section)
}

// HostProblem returns what is wrong with a value of the header Host, "" if nothing is.
func HostProblem(s string) string {
	if u, err := url.Parse("http://" + s); err != nil || u.Host != s {
		return fmt.Sprintf("%q is no host name", setting.Shorten(s))
	}
	return ""
}

// fieldProblem returns what is wrong with a header field, "" if nothing is.
func fieldProblem(s string) string {
	name, value, found := strings.Cut(s, ":")
	switch {
	case !found || name == "" || strings.Trim(name, nameRunes) != "":
		return fmt.Sprintf("%q is no header field: write it as \"Name: value\"", setting.Shorten(s))
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return fmt.Sprintf("the value of %s must be one line of printable text", name)
	case strings.EqualFold(name, "Host"):
		return "Host has a key of its own: host"
	}
	return ""
}

const nameRunes = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
