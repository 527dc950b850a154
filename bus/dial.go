package bus

import (
	"cmp"
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

	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/internal/outage"
)

const (
	dialTimeout    = 2 * time.Second
	firstAttempts  = 5
	firstWait      = 250 * time.Millisecond // between attempts to connect; doubled after each failure
	longestWait    = 5 * time.Second
	reconnectSpace = 64 << 10 // bytes buffered while the connection is lost; stale readings are refused before they fill it
	pingInterval   = 10 * time.Second
)

// Link is the state of a connection.
type Link struct {
	Up      bool
	Since   time.Time
	Problem string // why it is not connected
}

// Link returns the present state of the connection.
func (c *Conn) Link() Link { return linkOf(c, mainPart) }

// The parts of a connection: readings have one of their own.
const (
	mainPart     = ""
	readingsPart = " readings"
)

// link is the connection of one part.
type link struct {
	Link
	met  bool // it has been connected at least once
	told bool // the present outage was logged
}

func linkOf(c *Conn, part string) Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.links[part]; l != nil {
		return l.Link
	}
	return Link{}
}

// open connects to the bus. It tries once itself, so that a user's mistakes are returned at once, and then leaves
// retries to the library. A server that refuses a certificate may close the connection before the client has read the
// reason, so open tries several times.
func (c *Conn) open(part string) (nc *nats.Conn, err error) {
	options, err := c.natsOptions(part)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.links[part] = &link{Link: Link{Since: c.opts.Now()}}
	c.mu.Unlock()
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
		if nc := trying.Load(); nc != nil { // before the first success, the library's handlers get no reason for a failure
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
		nats.Name(c.opts.Name + part), nats.Timeout(dialTimeout), nats.PingInterval(cmp.Or(c.opts.Ping, pingInterval)),
		nats.MaxPingsOutstanding(2),
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.CustomReconnectDelay(backoff), nats.ReconnectBufSize(reconnectSpace),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if part == mainPart { // of others an attempt that fails tells more
				c.failed(part, err)
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.failed(part, err) }),
		nats.ReconnectHandler(func(*nats.Conn) { c.connected(part) }),
		nats.ConnectHandler(func(*nats.Conn) { c.connected(part) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.complained(part, err) }),
	}
	if c.opts.Server != nil {
		return append(options, nats.InProcessServer(c.opts.Server.nats), nats.Token(c.opts.Server.inside),
			nats.CustomInboxPrefix(c.grant().Inbox())), nil
	}
	if _, _, err := c.identity(); err != nil && !c.opts.Persistent {
		return nil, err
	}
	secure, err := c.opts.TLS.clientOption(c.opts.Persistent)
	if err != nil {
		return nil, err
	}
	return append(options, secure, c.identify, nats.CustomInboxPrefix(c.grant().Inbox())), nil
}

// identify presents what opts.Identify returns at each attempt. The claim is also sent as the user name, because a server with
// accounts configured, such as the embedded one, drops it from the usual field. A user or token in the URL has precedence.
func (c *Conn) identify(o *nats.Options) error {
	var shown *auth.Credential
	o.UserJWT = func() (claim string, err error) {
		if _, shown, err = c.identity(); err != nil || shown == nil {
			return "", err
		}
		return shown.Claim, nil
	}
	o.SignatureCB = func(nonce []byte) ([]byte, error) { return shown.Sign(nonce) }
	if u, err := url.Parse(c.opts.URL); err == nil && u.User != nil {
		return nil
	}
	// The errors of these two methods are returned by UserJWT.
	o.UserInfo = func() (user, password string) {
		id, own, _ := c.identity()
		if own != nil {
			return own.Claim, ""
		}
		return id.Name(), ""
	}
	o.TokenHandler = func() string { id, _, _ := c.identity(); return id.Token }
	return nil
}

// identity returns what to present now.
func (c *Conn) identity() (id auth.Identity, shown *auth.Credential, err error) {
	id.Token = c.opts.Token
	if c.opts.Identify != nil {
		if id, err = c.opts.Identify(); err != nil {
			return auth.Identity{}, nil, err
		}
	}
	if shown, err = id.Parse(); err != nil {
		return auth.Identity{}, nil, err
	}
	own := id.Proves
	if shown != nil {
		own = shown.Grant
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = own
	return id, shown, nil
}

// grant returns the grant that was presented last.
func (c *Conn) grant() auth.Grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}

// backoff is the wait before the nth attempt. It is random, so that a fleet does not reconnect all at once.
func backoff(n int) time.Duration {
	wait := longestWait
	if doublings := n - 1; doublings < 10 {
		wait = min(longestWait, firstWait<<max(0, doublings))
	}
	return wait/2 + rand.N(wait/2)
}

func (c *Conn) connected(part string) {
	c.mu.Lock()
	l := c.links[part]
	if l == nil {
		c.mu.Unlock()
		return
	}
	was := *l
	*l = link{Link: Link{Up: true, Since: c.opts.Now()}, met: true}
	c.mu.Unlock()
	switch {
	case was.Up:
	case part == mainPart && was.met:
		c.log.Info("connected to the bus again")
	case part == mainPart:
		c.log.Info("connected to the bus")
	case was.told:
		c.log.Info(ofReadings + "connected to the bus again")
	}
}

// ofReadings begins the messages about the connection for readings.
const ofReadings = "readings of agents: "

// failed logs when an outage begins, and again only when the outage's reason changes. "No server can be reached" does not count as a
// reason, because later attempts give one. While there is no connection at all, that of a part is not worth a message.
func (c *Conn) failed(part string, err error) {
	if err == nil || errors.Is(err, nats.ErrNoServers) {
		return
	}
	if refusal(err) {
		err = c.refused(err)
	}
	c.mu.Lock()
	l := c.links[part]
	if l == nil {
		c.mu.Unlock()
		return
	}
	was, about := *l, ""
	if was.Up {
		l.Since = c.opts.Now()
	}
	l.Up, l.Problem = false, err.Error()
	if part != mainPart {
		about = ofReadings
	}
	l.told = was.told || part == mainPart || c.links[mainPart].Up
	told := l.told
	c.mu.Unlock()
	switch {
	case !told:
	case !was.told:
		c.log.Warn(about+"no connection to the bus, trying again and again", "error", err)
	case outage.Kind(was.Problem) != outage.Kind(err.Error()): // different servers give the same error with different addresses
		c.log.Warn(about+"still no connection to the bus", "error", err)
	}
}

// complained handles an error that the server or the library reports while the connection stays up.
func (c *Conn) complained(part string, err error) {
	if refusal(err) {
		c.failed(part, err)
		return
	}
	c.noise.Note(err.Error())
}

// refusal returns whether the bus can be reached but rejects this process.
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

// tlsAlert is the text by which crypto/tls marks an error that the other side reported, such as a rejected client
// certificate.
const tlsAlert = "remote error"

func (c *Conn) refused(err error) error {
	own := c.grant()
	if !errors.Is(err, nats.ErrAuthorization) {
		return userErrorf("the bus at %s refused the connection; check bus.credentials and bus.tls on both ends: %w", c.where, err)
	}
	if own.Role == auth.Join {
		return userErrorf("the bus at %s refused the join token %s: it was revoked, has expired, or is another controller's; make another with "+
			"`quell join-token create` on the controller's machine: %w", c.where, own.ID, err)
	}
	if own.Role == auth.Prove {
		return userErrorf("the bus at %s accepts no proof of kind %s for the service %s; see scaler.join in the controller's configuration. An "+
			"external bus needs a credential made by `quell credentials prove %s` in bus.join: %w", c.where, own.ID, own.Service, own.ID, err)
	}
	if own.Role != "" {
		return userErrorf("the bus at %s refused the credential of %s: it was revoked, has expired, or is another controller's (its log says "+
			"which); "+
			"make another with `quell credentials %s` on the controller's machine: %w", c.where, own, own, err)
	}
	return userErrorf("the bus at %s refused the token or lack of a credential; set bus.credentials to a file that `quell credentials` made "+
		"on the controller's machine, or bus.token to the controller's: %w", c.where, err)
}
