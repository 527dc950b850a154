// Package bus carries Quell's messages over NATS, embedded or external: readings from agents, probers and balancers
// to the controller, commands to it, and what a controller must not forget: its policy's state, its journal and
// the lease that keeps a second controller away. An embedded server writes synchronously: what was acknowledged
// survives a killed process.
package bus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/quellhq/quell"
)

// ErrNotConnected says that the bus cannot be reached at present. The connection keeps trying by itself.
var ErrNotConnected = errors.New("not connected to the bus")

// Options say how to reach a bus.
type Options struct {
	URL    string  // of an external bus, as nats://host:4222; tls:// asks for TLS. Unused when Server is set.
	Server *Server // an embedded server, reached inside the process
	Token  string  // defaults to the embedded server's own
	TLS    TLS
	Name   string       // shown by the server, as "agent i-7"
	Logger *slog.Logger // nil discards

	// Now stamps received readings and times leases; nil means time.Now.
	Now func() time.Time
	// Validate judges readings on both ends; nil accepts whatever decodes.
	Validate func(*quell.Reading) error
}

const (
	dialTimeout    = 2 * time.Second
	firstAttempts  = 5
	reconnectWait  = 500 * time.Millisecond
	reconnectSpace = 64 << 10 // bytes kept for a lost connection; stale readings are refused before they fill it
	pingInterval   = 10 * time.Second
	requestTimeout = 10 * time.Second
	failedTimeout  = time.Second // once the embedded store failed: what still works answers well within it
)

// Conn is a connection to the bus. Its methods may be called from several goroutines.
type Conn struct {
	opts   Options
	where  string // the URL without secrets, for messages
	log    *slog.Logger
	nc     *nats.Conn
	js     jetstream.JetStream
	packer *packer
	done   chan struct{}

	mu        sync.Mutex
	err       error                    // why the connection ended by itself
	lastRetry string                   // the last reason logged for a failed attempt
	sightings map[string]leaseSighting // by service
}

// Connect returns a connection, also while the server cannot be reached yet: it then keeps trying for ever. A refused
// token, certificate or URL is final: at once here as a *quell.UserError, later by closing Done.
func Connect(opts Options) (*Conn, error) {
	c, err := newConn(opts)
	if err != nil {
		return nil, err
	}
	if err := c.dial(); err != nil {
		return nil, err
	}
	if c.js, err = jetstream.New(c.nc, jetstream.WithDefaultTimeout(requestTimeout)); err != nil {
		c.Close()
		return nil, fmt.Errorf("use JetStream on %s: %w", c.where, err)
	}
	return c, nil
}

func newConn(opts Options) (*Conn, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	where, err := destination(&opts)
	if err != nil {
		return nil, err
	}
	p, err := newPacker()
	if err != nil {
		return nil, err
	}
	return &Conn{opts: opts, where: where, log: opts.Logger.With("bus", where), packer: p,
		done: make(chan struct{}), sightings: map[string]leaseSighting{}}, nil
}

// destination checks where to connect to and returns it as it may be shown.
func destination(opts *Options) (string, error) {
	if opts.Server != nil {
		if opts.Token == "" {
			opts.Token = opts.Server.token
		}
		return opts.Server.String(), nil
	}
	if opts.URL == "" {
		return "", userErrorf("the bus needs a URL, as in nats://127.0.0.1:4222")
	}
	u, err := url.Parse(opts.URL)
	if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
		return "", userErrorf("bus URL %q: want nats://host:port or tls://host:port", withoutUser(u, opts.URL))
	}
	return withoutUser(u, opts.URL), nil
}

// withoutUser keeps a token that was written into a URL out of messages.
func withoutUser(u *url.URL, raw string) string {
	if u == nil {
		return "(unreadable)"
	}
	if u.User == nil {
		return raw
	}
	shown := *u
	shown.User = nil
	return shown.String()
}

// dial tries itself first, so that mistakes come back at once, and then leaves an unreachable server to the retries. A
// server that refuses a certificate may hang up before its reason is read: it is asked several times.
func (c *Conn) dial() error {
	options, err := c.natsOptions()
	if err != nil {
		return err
	}
	for range firstAttempts {
		if c.nc, err = nats.Connect(c.opts.URL, options...); !errors.Is(err, nats.ErrTLS) {
			break
		}
	}
	if err == nil {
		return nil
	}
	if c.opts.Server != nil {
		return fmt.Errorf("connect to the embedded bus: %w", err)
	}
	if final(err) {
		return c.refused(err)
	}
	c.log.Warn("the bus cannot be reached yet", "error", err)
	if c.nc, err = nats.Connect(c.opts.URL, append(options, nats.RetryOnFailedConnect(true))...); err != nil {
		return fmt.Errorf("connect to %s: %w", c.where, err)
	}
	return nil
}

func (c *Conn) natsOptions() ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name(c.opts.Name), nats.Timeout(dialTimeout), nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2),
		nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.ReconnectBufSize(reconnectSpace),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.disconnected(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.retryFailed(err) }),
		nats.ReconnectHandler(func(*nats.Conn) { c.log.Info("connected to the bus again") }),
		nats.ConnectHandler(func(*nats.Conn) { c.log.Debug("connected to the bus") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.log.Warn("bus error", "error", err) }),
		nats.ClosedHandler(c.closed),
	}
	if c.opts.Token != "" {
		options = append(options, nats.Token(c.opts.Token))
	}
	if c.opts.Server != nil {
		return append(options, nats.InProcessServer(c.opts.Server.nats)), nil
	}
	conf, err := c.opts.TLS.client()
	if err != nil {
		return nil, err
	}
	if conf != nil {
		options = append(options, nats.Secure(conf))
	}
	return options, nil
}

func (c *Conn) disconnected(err error) {
	if err != nil {
		c.log.Warn("lost the bus, trying again", "error", err)
	}
}

// retryFailed logs a reason once, not at every attempt.
func (c *Conn) retryFailed(err error) {
	c.mu.Lock()
	again := c.lastRetry == err.Error()
	c.lastRetry = err.Error()
	c.mu.Unlock()
	if !again {
		c.log.Warn("the bus cannot be reached, trying again", "error", err)
	}
}

// closed runs when Close was called, or when the server refused the token twice.
func (c *Conn) closed(nc *nats.Conn) {
	if err := nc.LastError(); err != nil && final(err) {
		c.mu.Lock()
		c.err = c.refused(err)
		c.mu.Unlock()
		c.log.Error("the bus refused this connection for good", "error", err)
	}
	c.signalDone()
}

func (c *Conn) signalDone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
	default:
		close(c.done)
	}
}

// final says whether trying again cannot help.
func final(err error) bool {
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

// Connected says whether the bus can be reached now.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// Done is closed when the connection has ended, by Close or because the server refused it for good.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection ended by itself, and is nil until then and after Close.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection; what was published before is still sent, within a second.
func (c *Conn) Close() {
	if c.Connected() {
		if err := c.nc.FlushTimeout(time.Second); err != nil {
			c.log.Debug("flush before closing", "error", err)
		}
	}
	c.nc.Close()
	c.signalDone()
}

// request bounds one exchange with the server, and refuses it at once while the bus cannot be reached.
func (c *Conn) request(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if !c.Connected() {
		return nil, nil, fmt.Errorf("%w at %s", ErrNotConnected, c.where)
	}
	if c.storeErr() != nil {
		bounded, cancel := context.WithTimeout(ctx, failedTimeout)
		return bounded, cancel, nil
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	if c.opts.Server == nil {
		return bounded, cancel, nil
	}
	// A store that fails leaves requests without an answer.
	unwatch := context.AfterFunc(c.opts.Server.healthy, cancel)
	return bounded, func() { unwatch(); cancel() }, nil
}

func (c *Conn) storeErr() error {
	if c.opts.Server == nil {
		return nil
	}
	return c.opts.Server.Err()
}

// explain adds what a person can do to JetStream's errors.
func (c *Conn) explain(doing string, err error) error {
	unanswered := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrNoResponders)
	switch failed := c.storeErr(); {
	case failed != nil && unanswered:
		return fmt.Errorf("%s: %w", doing, failed)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
		errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%s: %s has no working JetStream store (is it enabled there?): %w", doing, c.where, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %s did not answer in time: %w", doing, c.where, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func userErrorf(format string, args ...any) error {
	return &quell.UserError{Err: fmt.Errorf(format, args...)}
}
