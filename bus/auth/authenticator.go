package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// Authenticator decides who may connect to an embedded bus, and with which rights.
type Authenticator struct {
	ring         *Keyring      // nil: no credentials are accepted
	key          nkeys.KeyPair // key that must have signed credentials
	issuer       string        // public part of key
	inside       string        // the secret that connections inside the process present
	token        string        // the shared token; empty: none
	certificates bool          // clients need a certificate that the authority signed, and have the rights of a shared token by it
	log          *slog.Logger

	mu      sync.Mutex // guards what follows
	revoked generations
	stamp   fileStamp // stamp of the file of revocations when it was last read
	conns   map[uint64]client
	held    map[Grant]int       // how many connections each grant has
	shut    map[Grant]time.Time // until when each grant is refused
	proofs  map[Grant]bool      // grants of role Prove that need no credential
	refusal string              // the last refusal that was logged
}

// client is a connection that was let in.
type client struct {
	grant      Grant
	generation int
	expires    time.Time // of its credential; zero: never
	inside     bool
	since      time.Time
	msgs       int64 // received from it so far: messages and bytes
	bytes      int64
}

type fileStamp struct {
	size int64
	at   time.Time
}

var (
	errNothingShown = errors.New("it presents neither a credential nor a token")
	errWrongToken   = errors.New("its token is wrong")
)

// Options configure an Authenticator.
type Options struct {
	Keyring      *Keyring // whose credentials are accepted; nil: none are
	Inside       string   // the secret that connections inside the process present
	Token        string   // the shared token; empty: none
	Certificates bool     // clients need a certificate that the server's authority signed, and have the rights of a shared token by it
	Logger       *slog.Logger
}

// New makes an authenticator, and the keyring's key if there is none.
func New(opts Options) (*Authenticator, error) {
	g := &Authenticator{inside: opts.Inside, token: opts.Token, certificates: opts.Certificates, log: opts.Logger,
		revoked: generations{}, conns: map[uint64]client{}, held: map[Grant]int{}, shut: map[Grant]time.Time{},
		proofs: map[Grant]bool{}}
	if opts.Keyring == nil {
		return g, nil
	}
	g.ring = opts.Keyring
	if err := g.ring.Make(); err != nil {
		return nil, err
	}
	var err error
	if g.key, err = g.ring.key(accountFile); err != nil {
		return nil, err
	}
	if g.issuer, err = g.key.PublicKey(); err != nil {
		return nil, err
	}
	if !nkeys.IsValidPublicAccountKey(g.issuer) {
		return nil, fault("%s holds a key of another kind than that of an account", g.ring.Dir)
	}
	g.revoked, _, err = everRevoked(*g.ring)
	return g, err
}

// reload reads the revocations if their file has changed. If the keyring's folder was emptied, it writes the key and the revocations back,
// and if the file lacks revocations, those.
func (g *Authenticator) reload() error {
	if g.ring == nil {
		return nil
	}
	var stamp fileStamp
	if info, err := os.Stat(filepath.Join(g.ring.Dir, revokedFile)); err == nil {
		stamp = fileStamp{info.Size(), info.ModTime()}
	}
	g.mu.Lock()
	same, lost, revoked := stamp == g.stamp, stamp == fileStamp{} && len(g.revoked) > 0, g.revoked
	g.mu.Unlock()
	if _, err := os.Stat(filepath.Join(g.ring.Dir, accountFile)); errors.Is(err, fs.ErrNotExist) || lost {
		return g.ring.restore(g.key, revoked)
	}
	if same {
		return nil
	}
	read, lacks, err := everRevoked(*g.ring)
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.revoked, g.stamp = read, stamp
	g.mu.Unlock()
	if lacks {
		return g.ring.writeRevoked(read)
	}
	return nil
}

// Check implements server.Authentication.
func (g *Authenticator) Check(c server.ClientAuthentication) bool {
	if err := g.reload(); err != nil {
		g.log.Error("what was revoked stays as it was read before", "error", err)
	}
	who, deadline, err := g.judge(c)
	if err == nil {
		err = g.enter(c.GetID(), who)
	}
	if err != nil {
		g.refuse(c, err)
		return false
	}
	user := &server.User{Username: who.grant.String(), ConnectionDeadline: deadline}
	if !who.inside {
		user.Permissions = who.grant.permissions()
	}
	c.RegisterUser(user)
	return true
}

// judge determines who a connection is. Credentials have precedence over tokens.
func (g *Authenticator) judge(c server.ClientAuthentication) (who client, deadline time.Time, err error) {
	o := c.GetOpts()
	if equal(o.Token, g.inside) {
		return client{grant: Inside, inside: true}, deadline, nil
	}
	err = errNothingShown
	if grant, ok := g.proving(o.Username); ok {
		return client{grant: grant}, time.Now().Add(joinTime), nil
	}
	if o.Username != "" { // the claim; the server drops it from its usual field because no operator is configured
		if who, deadline, err = g.credential(o.Username, o.Sig, c.GetNonce()); err == nil {
			return who, deadline, nil
		}
	}
	switch {
	case g.token != "" && equal(o.Token, g.token):
		return client{grant: SharedGrant()}, time.Time{}, nil
	case g.certificates && showsCertificate(c):
		return client{grant: SharedGrant()}, time.Time{}, nil
	case o.Token != "" && o.Username == "":
		return client{}, time.Time{}, errWrongToken
	}
	return client{}, time.Time{}, err
}

// AcceptProofs lets processes without a credential show a kind of proof to the controller of a service. They can do nothing else.
func (g *Authenticator) AcceptProofs(service, kind string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.proofs[Grant{Prove, service, kind}] = true
}

// proving returns the grant of a process that names itself as one that shows a proof. ok is false if nothing accepts that.
func (g *Authenticator) proving(name string) (grant Grant, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for grant := range g.proofs {
		if name == grantKey(grant) {
			return grant, true
		}
	}
	return Grant{}, false
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// showsCertificate returns whether a client has a certificate. If clients need one, the handshake fails unless the server's authority has
// signed it.
func showsCertificate(c server.ClientAuthentication) bool {
	state := c.GetTLSConnectionState()
	return state != nil && len(state.PeerCertificates) > 0
}

func (g *Authenticator) credential(claim, signature string, nonce []byte) (client, time.Time, error) {
	c, claims, err := parseClaim(claim)
	if err != nil {
		return client{}, time.Time{}, fmt.Errorf("its credential is refused: %w", err)
	}
	switch {
	case c.issuer != g.issuer:
		err = errors.New("another controller's key signed it")
	case c.Grant.Role == Leaf:
		err = errors.New("it is for a leaf node of an external NATS")
	case !c.expires.IsZero() && !time.Now().Before(c.expires):
		err = fmt.Errorf("it expired at %s", c.expires.UTC().Format(time.RFC3339))
	default:
		err = proves(claims, signature, nonce)
	}
	if err != nil {
		return client{}, time.Time{}, fmt.Errorf("the credential of %s is refused: %w", c.Grant, err)
	}
	return client{grant: c.Grant, generation: c.generation, expires: c.expires}, c.deadline(time.Now()), nil
}

// joinTime is how long the connection of a machine that joins may last, so that held connections do not keep others from joining.
const joinTime = 30 * time.Second

// deadline returns when a connection must end, zero for never.
func (c *Credential) deadline(now time.Time) time.Time {
	last := now.Add(joinTime)
	if c.Grant.Role != Join && c.Grant.Role != Prove || !c.expires.IsZero() && c.expires.Before(last) {
		return c.expires
	}
	return last
}

// enter registers a connection. It refuses a grant that is revoked, temporarily shut out, or has too many
// connections.
func (g *Authenticator) enter(id uint64, who client) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if who.inside {
		return nil
	}
	if g.isRevoked(who) {
		return fmt.Errorf("the credential of %s was revoked", who.grant)
	}
	if until, ok := g.shut[who.grant]; ok && now.Before(until) {
		return fmt.Errorf("%s sent too much and is shut out for a moment", who.grant)
	}
	if n := g.held[who.grant]; n >= who.grant.Role.MaxConnections() {
		return fmt.Errorf("%s has %d connections already", who.grant, n)
	}
	who.since = now
	g.conns[id] = who
	g.held[who.grant]++
	return nil
}

func (g *Authenticator) isRevoked(who client) bool {
	return who.grant.Role != Shared && who.generation < g.revoked[grantKey(who.grant)]
}

// Valid returns a function that says whether the credential is still valid that the holder of a grant shows now: whether it was not revoked
// and has not expired. If there are several holders, it is the credential that ends first.
func (g *Authenticator) Valid(who Grant) func(now time.Time) bool {
	shown, ok := g.shown(who)
	return func(now time.Time) bool {
		if err := g.reload(); err != nil {
			g.log.Error("what was revoked stays as it was read before", "error", err)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		return ok && !g.isRevoked(shown) && (shown.expires.IsZero() || now.Before(shown.expires))
	}
}

// shown returns the lowest generation and the earliest end of the credentials that the connections of a grant have shown; false if it has
// none.
func (g *Authenticator) shown(who Grant) (all client, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		if c.grant != who {
			continue
		}
		if !ok {
			all, ok = c, true
		}
		all.generation = min(all.generation, c.generation)
		if !c.expires.IsZero() && (all.expires.IsZero() || c.expires.Before(all.expires)) {
			all.expires = c.expires
		}
	}
	return all, ok
}

// refuse logs a refusal once, not at every attempt.
func (g *Authenticator) refuse(c server.ClientAuthentication, err error) {
	from := "inside the process"
	if a := c.RemoteAddress(); a != nil {
		if host, _, splitErr := net.SplitHostPort(a.String()); splitErr == nil {
			from = host
		}
	}
	text := from + ": " + err.Error()
	g.mu.Lock()
	again := g.refusal == text
	g.refusal = text
	g.mu.Unlock()
	if !again {
		g.log.Warn("the bus refused a connection", "from", from, "error", err)
	}
}

// Periods of checking connections.
const (
	lookEvery  = time.Second
	countEvery = 5 // checks
	shutFor    = 10 * time.Second
)

// Watch ends connections whose credential was revoked, and connections that send more than their role may. It runs
// until ctx ends.
func (g *Authenticator) Watch(ctx context.Context, s *server.Server) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := g.reload(); err != nil {
			g.log.Error("what was revoked stays as it was read before", "error", err)
		}
		for id, why := range g.unwelcome() {
			g.cutOff(s, id, why)
		}
		if n%countEvery == 0 {
			g.Count(s, lookEvery*countEvery)
		}
	}
}

// Count ends connections that have sent more than their role may since the last call, which was so long ago.
func (g *Authenticator) Count(s *server.Server, passed time.Duration) {
	for id, why := range g.count(open(s), passed) {
		g.cutOff(s, id, why)
	}
}

// open lists the server's connections.
func open(s *server.Server) []*server.ConnInfo {
	const all = 1 << 20
	list, err := s.Connz(&server.ConnzOptions{Limit: all})
	if err != nil {
		return nil
	}
	return list.Conns
}

func (g *Authenticator) cutOff(s *server.Server, id uint64, why string) {
	g.log.Warn("the bus ended a connection", "error", why)
	_ = s.DisconnectClientByID(id) // it may already be closed
}

func (g *Authenticator) unwelcome() map[uint64]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	ended := map[uint64]string{}
	for id, who := range g.conns {
		if g.isRevoked(who) {
			ended[id] = fmt.Sprintf("the credential of %s was revoked", who.grant)
			g.forget(id)
		}
	}
	return ended
}

func (g *Authenticator) forget(id uint64) {
	who := g.conns[id]
	delete(g.conns, id)
	if g.held[who.grant]--; g.held[who.grant] <= 0 {
		delete(g.held, who.grant)
	}
}

// count forgets closed connections. It returns the connections that sent too much since its last call.
func (g *Authenticator) count(now []*server.ConnInfo, passed time.Duration) map[uint64]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	tooMuch, there := map[uint64]string{}, map[uint64]bool{}
	for _, info := range now {
		there[info.Cid] = true
		who, ours := g.conns[info.Cid]
		if !ours {
			continue
		}
		seconds := int64(passed / time.Second)
		l, msgs, bytes := who.grant.Role.limits(), (info.InMsgs-who.msgs)/seconds, (info.InBytes-who.bytes)/seconds
		who.msgs, who.bytes = info.InMsgs, info.InBytes
		g.conns[info.Cid] = who
		if msgs > l.messages || bytes > l.bytes {
			tooMuch[info.Cid] = fmt.Sprintf("%s sent %d messages and %d bytes a second; allowed are %d and %d", who.grant, msgs, bytes, l.messages,
				l.bytes)
			if l.shutOut {
				g.shut[who.grant] = time.Now().Add(shutFor)
			}
		}
	}
	for id, who := range g.conns {
		if !there[id] && time.Since(who.since) > passed {
			g.forget(id)
		}
	}
	maps.DeleteFunc(g.shut, func(_ Grant, until time.Time) bool { return time.Now().After(until) })
	return tooMuch
}

// Host returns the host of a grant's connection that listens at an inbox, "" if it is closed.
func (g *Authenticator) Host(s *server.Server, who Grant, inbox string) string {
	list, err := s.Connz(&server.ConnzOptions{Account: server.DEFAULT_GLOBAL_ACCOUNT, FilterSubject: inbox, Username: true,
		Limit: mostCallers})
	if err != nil {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, info := range list.Conns {
		if client, ours := g.conns[info.Cid]; ours && client.grant == who {
			return HostOf(info.IP)
		}
	}
	return ""
}

// mostCallers limits how many connections listening at one inbox are examined; normally there is one.
const mostCallers = 16

// HostOf returns the name of a host. This host is called by its own name.
func HostOf(ip string) string {
	if addr := net.ParseIP(ip); addr != nil && !addr.IsLoopback() {
		return ip
	}
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return "this machine"
}
