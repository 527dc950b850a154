// Package bus carries Quell's messages over NATS, embedded or external: readings from agents, probers and balancers
// to the controller, and commands to the controller. It also stores what must survive a restart of the controller:
// the policy's state, the journal, and the lease that keeps a second controller from acting. An embedded server
// writes synchronously: what was acknowledged survives a killed process.
package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/bus/pack"
	"github.com/quellhq/quell/internal/outage"
)

// ErrNotConnected says that the bus cannot be reached at present. The connection is reopened automatically.
var ErrNotConnected = errors.New("not connected to the bus")

// Options configure a connection to a bus.
type Options struct {
	URL    string  // external bus, such as nats://host:4222, or several with commas between; tls:// asks for TLS; unused if Server is set
	Server *Server // an embedded server, reached inside the process
	Token  string
	TLS    TLS
	// Identify returns the identity to present. It is called at every attempt to connect. If it is nil, Token is
	// presented.
	Identify func() (auth.Identity, error)
	// Persistent makes the connection try again after every failure. If it is not set and the server refuses the first attempt, Connect
	// returns an error.
	Persistent bool
	// SharedMayCommand makes this controller obey commands from clients that present only a shared token.
	SharedMayCommand bool
	Name             string       // shown by the server, for example "agent i-7"
	Logger           *slog.Logger // nil discards

	// Replicas is how many copies of each store a cluster keeps; 0 means as many as it can hold, up to 3.
	Replicas int

	// Ping is the time between pings to the server. The connection moves to another server after two pings without an
	// answer. 0 means 10 s.
	Ping time.Duration

	// Now stamps received readings and times leases; nil means time.Now.
	Now func() time.Time
	// Validate checks readings when they are sent and when they are received. If it is nil, every reading that decodes is
	// accepted.
	Validate func(*quell.Reading) error
}

const (
	requestTimeout = 10 * time.Second
)

// Conn is a connection to the bus. Its methods may be called from several goroutines.
type Conn struct {
	opts   Options
	where  string // the URL without secrets, for messages
	log    *slog.Logger
	nc     *nats.Conn
	js     jetstream.JetStream
	packer *pack.Packer
	noise  outage.Kinds // errors that the server or the library reports while the connection stays up

	mu        sync.Mutex
	links     map[string]*link         // by part of the connection
	own       auth.Grant               // the grant of the credential presented last; zero: no credential
	moved     time.Time                // when the connection last moved to another server
	sightings map[string]leaseSighting // by service
}

// Connect returns a connection, even while the server cannot be reached. If the connection is lost or refused later, it also keeps trying.
// If the server refuses the first attempt, Connect returns a *quell.UserError, unless opts.Persistent is set. An invalid URL is always a
// *quell.UserError.
func Connect(opts Options) (*Conn, error) {
	c, err := newConn(opts)
	if err != nil {
		return nil, err
	}
	if c.nc, err = c.open(""); err != nil {
		return nil, err
	}
	if c.js, err = jetstream.New(c.nc, jetstream.WithDefaultTimeout(requestTimeout)); err != nil {
		c.Close()
		return nil, fmt.Errorf("use JetStream on %s: %w", c.where, err)
	}
	if opts.Server != nil {
		if err := c.serveLeases(opts.Server.leases); err != nil {
			c.Close()
			return nil, fmt.Errorf("answer for leases on %s: %w", c.where, err)
		}
	}
	return c, nil
}

func newConn(opts Options) (*Conn, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	where, err := destination(&opts)
	if err != nil {
		return nil, err
	}
	p, err := pack.New()
	if err != nil {
		return nil, err
	}
	var own auth.Grant
	if opts.Server != nil {
		own = auth.Inside
	}
	log := opts.Logger.With("bus", where)
	return &Conn{opts: opts, own: own, where: where, log: log, packer: p,
		noise: outage.Kinds{Logger: log, What: "bus error", Level: slog.LevelWarn},
		links: map[string]*link{}, sightings: map[string]leaseSighting{}}, nil
}

// destination checks the URL and returns it without secrets.
func destination(opts *Options) (string, error) {
	if opts.Server != nil {
		return opts.Server.String(), nil
	}
	if opts.URL == "" {
		return "", userErrorf("the bus needs a URL, as in nats://127.0.0.1:4222")
	}
	var shown []string
	for one := range strings.SplitSeq(opts.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
			return "", userErrorf("bus URL %q: want nats://host:port or tls://host:port", withoutUser(u, one))
		}
		shown = append(shown, withoutUser(u, strings.TrimSpace(one)))
	}
	return strings.Join(shown, ","), nil
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

// Err returns the reason why the bus cannot be used at present, nil if it can.
func (c *Conn) Err() error {
	l := c.Link()
	switch {
	case l.Up && c.Connected():
		return readingsErr(linkOf(c, readingsPart))
	case l.Problem == "":
		return fmt.Errorf("%w at %s", ErrNotConnected, c.where)
	}
	return fmt.Errorf("%w since %s: %s", ErrNotConnected, l.Since.UTC().Format(time.RFC3339), l.Problem)
}

// readingsErr returns why no readings arrive although the bus can be used otherwise.
func readingsErr(l Link) error {
	if l.Up || l.Problem == "" {
		return nil
	}
	return fmt.Errorf(ofReadings+"no connection since %s: %s", l.Since.UTC().Format(time.RFC3339), l.Problem)
}

// Connected says whether the bus can be reached now.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// Close ends the connection. Messages that were published before are still sent, for at most one second.
func (c *Conn) Close() {
	if c.Connected() {
		if err := c.nc.FlushTimeout(time.Second); err != nil {
			c.log.Debug("flush before closing", "error", err)
		}
	}
	c.nc.Close()
}

// bounded limits the time of one exchange that does not use the server's store. While the bus cannot be reached, the exchange fails at
// once.
func (c *Conn) bounded(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if !c.Connected() {
		return nil, nil, fmt.Errorf("%w at %s", ErrNotConnected, c.where)
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	return bounded, cancel, nil
}

// request limits the time of one exchange that uses the server's store. While the bus cannot be reached or the store is closed, the
// exchange fails at once.
func (c *Conn) request(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if isPatient(ctx) {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, nil
	}
	if err := c.storeErr(); err != nil {
		return nil, nil, err
	}
	bounded, cancel, err := c.bounded(ctx)
	if err != nil || c.opts.Server == nil {
		return bounded, cancel, err
	}
	// A store that fails does not answer, so its failure must end the request.
	unwatch := context.AfterFunc(c.opts.Server.store.now(), cancel)
	return bounded, func() { unwatch(); cancel() }, nil
}

func (c *Conn) storeErr() error {
	if c.opts.Server == nil {
		return nil
	}
	return c.opts.Server.Err()
}

// explain adds to JetStream's errors what a person can do.
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
