package builtin

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
)

// healthState counts successes and failures in a row.
type healthState struct {
	up       bool
	everUp   bool
	failures int
	passes   int
}

// observe records one check and returns whether the state changed. The first success is enough to become healthy.
func (h *healthState) observe(ok bool, fall, rise int) (changed bool) {
	if ok {
		h.failures, h.passes = 0, h.passes+1
		if !h.up && (!h.everUp || h.passes >= rise) {
			h.up, h.everUp = true, true
			return true
		}
		return false
	}
	h.passes, h.failures = 0, h.failures+1
	if h.up && h.failures >= fall {
		h.up = false
		return true
	}
	return false
}

// checker checks backends. It opens a new connection each time, so that a server that no longer accepts connections is noticed.
type checker struct {
	opts   Health
	client *http.Client
	dialer net.Dialer
	slots  chan struct{} // limits the number of checks at the same time
}

func newChecker(o *Options, slots chan struct{}) *checker {
	return &checker{
		opts:  o.Health,
		slots: slots,
		client: &http.Client{
			Timeout:       o.Health.Timeout,
			Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true, Protocols: o.Upstream.protocols()},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		dialer: net.Dialer{Timeout: o.Health.Timeout},
	}
}

// run checks at once and then every interval, until the context ends.
func (c *checker) run(ctx context.Context, address string, report func(error)) {
	every := time.NewTicker(c.opts.Interval)
	defer every.Stop()
	for {
		report(c.check(ctx, address))
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

func (c *checker) check(ctx context.Context, address string) error {
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
		return fmt.Errorf("GET %s: %s%s", c.opts.Path, printable(resp.Status), bodyStart(resp.Body))
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

// checkOnce makes one health check in the same way as the balancer. The error names the request and the answer.
func checkOnce(ctx context.Context, h Health, upstream Protocol, address string) error {
	o := Options{Health: h, Upstream: upstream}
	return newChecker(&o, make(chan struct{}, 1)).check(ctx, address)
}
