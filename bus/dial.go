package bus

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	dialTimeout    = 2 * time.Second
	firstAttempts  = 5
	firstWait      = 250 * time.Millisecond // between attempts to connect; doubled each time
	longestWait    = 5 * time.Second
	reconnectSpace = 64 << 10 // bytes kept for a lost connection; stale readings are refused before they fill it
	pingInterval   = 10 * time.Second
)

// Link says how a connection stands.
type Link struct {
	Up      bool
	Since   time.Time
	Problem string // why it is down
}

// Link returns how the connection stands now.
func (c *Conn) Link() Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link
}

// open connects to the bus. It tries itself first, so that mistakes come back at once, and then leaves the server to the
// retries. A server that refuses a certificate may hang up before its reason is read: it is asked several times.
func (c *Conn) open(part string) (nc *nats.Conn, err error) {
	options, err := c.natsOptions(part)
	if err != nil {
		return nil, err
	}
	if nc, err = c.try(options); err == nil {
		c.connected(part)
		return nc, nil
	}
	if c.opts.Server != nil {
		return nil, fmt.Errorf("connect to the embedded bus: %w", err)
	}
	if refusal(err) && !c.opts.Persistent {
		return nil, c.refused(err)
	}
	c.failed(part, err)
	var trying atomic.Pointer[nats.Conn]
	wait := func(n int) time.Duration {
		if nc := trying.Load(); nc != nil { // before the first success no handler is told why an attempt failed
			c.failed(part, nc.LastError())
		}
		return backoff(n)
	}
	nc, err = nats.Connect(c.opts.URL, append(options, nats.RetryOnFailedConnect(true), nats.CustomReconnectDelay(wait))...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.where, err)
	}
	trying.Store(nc)
	return nc, nil
}

func (c *Conn) try(options []nats.Option) (nc *nats.Conn, err error) {
	for range firstAttempts {
		if nc, err = nats.Connect(c.opts.URL, options...); !errors.Is(err, nats.ErrTLS) {
			break
		}
	}
	return nc, err
}

func (c *Conn) natsOptions(part string) ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name(c.opts.Name + part), nats.Timeout(dialTimeout), nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2),
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.CustomReconnectDelay(backoff), nats.ReconnectBufSize(reconnectSpace),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.failed(part, err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.failed(part, err) }),
		nats.ReconnectHandler(func(*nats.Conn) { c.connected(part) }),
		nats.ConnectHandler(func(*nats.Conn) { c.connected(part) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.complained(part, err) }),
	}
	if c.opts.Server != nil {
		return append(options, nats.InProcessServer(c.opts.Server.nats), nats.Token(c.opts.Server.inside)), nil
	}
	secure, err := c.opts.TLS.clientOption(c.opts.Persistent)
	if err != nil {
		return nil, err
	}
	return append(options, secure, c.identify), nil
}

// identify shows what opts.Identify says at each attempt. A token that stands in the URL goes before.
func (c *Conn) identify(o *nats.Options) error {
	if u, err := url.Parse(c.opts.URL); err == nil && u.User != nil {
		return nil
	}
	o.TokenHandler = func() string { return c.identity().Token }
	return nil
}

func (c *Conn) identity() Identity {
	if c.opts.Identify == nil {
		return Identity{Token: c.opts.Token}
	}
	id, err := c.opts.Identify()
	if err != nil {
		c.failed("", err)
	}
	return id
}

// backoff is how long to wait before the nth attempt: a fleet whose bus comes back must not arrive in one instant.
func backoff(n int) time.Duration {
	wait := longestWait
	if doublings := n - 1; doublings < 10 {
		wait = min(longestWait, firstWait<<max(0, doublings))
	}
	return wait/2 + rand.N(wait/2)
}

func (c *Conn) connected(part string) {
	c.mu.Lock()
	wasUp, again := c.link.Up, c.met
	if part == "" {
		c.link, c.met = Link{Up: true, Since: c.opts.Now()}, true
	}
	c.mu.Unlock()
	switch {
	case part != "" || wasUp:
	case again:
		c.log.Info("connected to the bus again")
	default:
		c.log.Info("connected to the bus")
	}
}

// failed logs an outage when it begins, and again only when its reason changes.
func (c *Conn) failed(part string, err error) {
	if err == nil || part != "" {
		return
	}
	if refusal(err) {
		err = c.refused(err)
	}
	c.mu.Lock()
	was := c.link
	if was.Up {
		c.link.Since = c.opts.Now()
	}
	c.link.Up, c.link.Problem = false, err.Error()
	c.mu.Unlock()
	switch {
	case was.Up || was.Problem == "":
		c.log.Warn("no connection to the bus, trying again and again", "error", err)
	case was.Problem != err.Error():
		c.log.Warn("still no connection to the bus", "error", err)
	}
}

// complained takes what the server or the library says of a connection that goes on.
func (c *Conn) complained(part string, err error) {
	if refusal(err) {
		c.failed(part, err)
		return
	}
	c.noise.Note(err.Error())
}

// refusal says whether the bus can be reached and turns this process away.
func refusal(err error) bool {
	for _, refusal := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked,
		nats.ErrAccountAuthExpired, nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrTLS} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		record       tls.RecordHeaderError
		network      *net.OpError
	)
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &record) ||
		errors.As(err, &network) && network.Op == tlsAlert
}

// tlsAlert is how crypto/tls marks what the other side objected to, such as a client's certificate.
const tlsAlert = "remote error"

func (c *Conn) refused(err error) error {
	if errors.Is(err, nats.ErrAuthorization) {
		return userErrorf("the bus at %s refused the token; set bus.token to the one the server was started with: %w", c.where, err)
	}
	return userErrorf("the bus at %s refused the connection; check bus.token and bus.tls on both ends: %w", c.where, err)
}
