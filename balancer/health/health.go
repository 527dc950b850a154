// Package health checks instances on behalf of balancers that have no checks of their own that Quell could read.
package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/quellhq/quell/internal/webcheck"
	"github.com/quellhq/quell/setting"
)

// Options configure health checks. An instance is unhealthy until its first check succeeds. After that, Fall failures in a row make it
// unhealthy, and Rise successes in a row make it healthy again.
type Options struct {
	Path       string // requested with GET; 2xx and 3xx are successes; empty: it is enough that a connection can be opened
	Interval   time.Duration
	Timeout    time.Duration
	Fall, Rise int
	Request    webcheck.Request
}

// Equal returns whether two options lead to the same checks.
func (o *Options) Equal(other *Options) bool {
	return o.Path == other.Path && o.Interval == other.Interval && o.Timeout == other.Timeout && o.Fall == other.Fall &&
		o.Rise == other.Rise && o.Request.Equal(&other.Request)
}

// Keys returns the table of their keys.
func (o *Options) Keys() setting.Table {
	return append(setting.Table{
		setting.Opt("path", setting.URLPath(&o.Path), "path that answers 200 while an instance is well"),
		setting.Opt("interval", setting.Duration(&o.Interval).AtLeast(10*time.Millisecond), "time between checks"),
		setting.Opt("timeout", setting.Duration(&o.Timeout).Above(0), "a slower answer is a failed check"),
		setting.Opt("fall", setting.Whole(&o.Fall).AtLeast(1), "failed checks in a row until an instance is unhealthy"),
		setting.Opt("rise", setting.Whole(&o.Rise).AtLeast(1), "passed checks in a row until it is healthy again"),
	}, o.Request.Keys()...)
}

// State counts successes and failures in a row.
type State struct {
	Up       bool
	EverUp   bool
	Failures int
	passes   int
}

// Observe records one check and returns whether the state changed. The first success is enough to become healthy.
func (h *State) Observe(ok bool, fall, rise int) (changed bool) {
	if ok {
		h.Failures, h.passes = 0, h.passes+1
		if !h.Up && (!h.EverUp || h.passes >= rise) {
			h.Up, h.EverUp = true, true
			return true
		}
		return false
	}
	h.passes, h.Failures = 0, h.Failures+1
	if h.Up && h.Failures >= fall {
		h.Up = false
		return true
	}
	return false
}

// Checker checks instances. It opens a new connection each time, so that a server that no longer accepts connections is noticed.
type Checker struct {
	opts   Options
	client *http.Client
	dialer net.Dialer
	slots  chan struct{} // limits the number of checks at the same time
	name   string        // that requests give as their host; empty: the address
}

// NewChecker makes a checker that speaks these protocols; nil: HTTP/1. As many checks as slots has room for are made at the same time.
func NewChecker(o Options, protocols *http.Protocols, slots chan struct{}) *Checker {
	return &Checker{
		opts:  o,
		slots: slots,
		client: &http.Client{
			Timeout:       o.Timeout,
			Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true, Protocols: protocols},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		dialer: net.Dialer{Timeout: o.Timeout},
	}
}

// named returns a checker whose requests give a name as their host, whatever the address.
func (c *Checker) named(name string) *Checker {
	other := *c
	other.name = name
	return &other
}

// Run checks at once and then every interval, until the context ends.
func (c *Checker) Run(ctx context.Context, address string, report func(error)) {
	every := time.NewTicker(c.opts.Interval)
	defer every.Stop()
	for {
		report(c.Check(ctx, address))
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// Check makes one check. The error names the request and the answer.
func (c *Checker) Check(ctx context.Context, address string) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.opts.Path == "" {
		conn, err := c.dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("connecting to %s: %w", address, err)
		}
		return conn.Close()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+c.opts.Path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "quell-health")
	if c.name != "" {
		req.Host = c.name
	}
	c.opts.Request.Fill(req)
	resp, err := c.client.Do(req)
	if err != nil {
		var asked *url.Error // its text repeats the address, so only its cause is shown
		if errors.As(err, &asked) {
			err = asked.Err
		}
		return fmt.Errorf("GET %s: %w", c.opts.Path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		text := fmt.Sprintf("GET %s: %s%s", c.opts.Path, printable(resp.Status), bodyStart(resp.Body))
		if hint := webcheck.Refused(req, resp.StatusCode, "balancer.health"); hint != "" {
			text += "; " + hint
		}
		return errors.New(text)
	}
	return nil
}

// shownBody limits how many bytes of an answer are shown.
const shownBody = 80

// bodyStart quotes the beginning of a body for a message, so that a reader recognises which server answered.
func bodyStart(body io.Reader) string {
	data, _ := io.ReadAll(io.LimitReader(body, 4*shownBody)) // uses what has arrived in time
	text := []rune(printable(string(data)))
	switch {
	case len(text) == 0:
		return ", no body"
	case len(text) > shownBody:
		return fmt.Sprintf(", body begins %q", string(text[:shownBody]))
	}
	return fmt.Sprintf(", body %q", string(text))
}

// printable turns untrusted text into one printable line.
func printable(s string) string {
	words := strings.FieldsFunc(strings.ToValidUTF8(s, ""), func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' })
	return strings.Join(words, " ")
}
