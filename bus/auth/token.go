package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Token is the record of a join token. A join token is a credential of role Join. It can do one thing: ask for the credential of a sensor.
type Token struct {
	Name    string    `json:"name"`
	Service string    `json:"service"`
	Key     string    `json:"key"` // public
	At      time.Time `json:"at"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	Uses    int       `json:"uses,omitempty"`   // how many instances may join with it; 0: any number
	Used    int       `json:"used,omitempty"`   // how many have; written before an instance gets its credential
	// LifetimeS is how long a credential is valid that an instance gets, in seconds.
	LifetimeS float64 `json:"lifetime_s"`
	Revoked   bool    `json:"revoked,omitempty"`
	// Ended is set when the token is found to have expired, so that a clock that is set back does not revive it.
	Ended bool `json:"ended,omitempty"`
}

// Lifetime is how long a credential is valid that an instance gets.
func (t Token) Lifetime() time.Duration { return time.Duration(t.LifetimeS * float64(time.Second)) }

// expired returns whether the token's time is over.
func (t Token) expired(now time.Time) bool {
	return t.Ended || !t.Expires.IsZero() && !now.Before(t.Expires)
}

// problem returns why nobody can join with the token, nil if an instance can.
func (t Token) problem(now time.Time) error {
	switch {
	case t.Revoked:
		return errors.New("it was revoked")
	case t.expired(now):
		return fmt.Errorf("it expired at %s", t.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// State returns the state of a token in a word.
func (t Token) State(now time.Time) string {
	switch {
	case t.Revoked:
		return "revoked"
	case t.expired(now):
		return "expired"
	case t.usedUp():
		return "used up"
	}
	return "good"
}

func (t Token) usedUp() bool { return t.Uses > 0 && t.Used >= t.Uses }

func (t Token) grant() Grant { return Grant{Join, t.Service, t.Name} }

// Bounds of a join token.
const (
	LeastLifetime   = time.Minute
	MostLifetime    = 30 * 24 * time.Hour
	DefaultLifetime = 6 * time.Hour
	mostTokens      = 1000
)

// Tokens are the join tokens of a keyring.
type Tokens struct{ ring Keyring }

// Tokens returns the join tokens of a keyring.
func (k Keyring) Tokens() Tokens { return Tokens{k} }

// Make makes a join token and returns its text. Its name, service, uses and lifetime are given; good is how long it is valid, 0 for
// ever. A name is not used twice, not even after the token was revoked. If there are too many tokens, the oldest that have expired are no
// longer listed.
func (k Tokens) Make(t Token, good time.Duration) ([]byte, error) {
	if err := t.grant().check(); err != nil {
		return nil, err
	}
	if l := t.Lifetime(); l < LeastLifetime || l > MostLifetime {
		return nil, fault("credentials with a lifetime of %s: allowed are a minute to 30 days", l)
	}
	if t.Uses < 0 || good < 0 {
		return nil, fault("neither the uses nor the time of a join token can be negative")
	}
	signer, err := k.ring.key(accountFile)
	if err != nil {
		return nil, err
	}
	release, err := k.ring.lock()
	if err != nil {
		return nil, err
	}
	defer func() { _ = release() }()
	list, err := k.List()
	if err != nil {
		return nil, err
	}
	if findToken(list, t.Service, t.Name) != nil {
		return nil, fault("there is a join token %s already, or was one: choose another name", t.Name)
	}
	revoked, err := k.ring.revoked()
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	if list, err = k.dropExpired(list, revoked, now); err != nil {
		return nil, err
	}
	if len(list) >= mostTokens {
		return nil, fault("there are %d join tokens that have not expired, and no more are possible: remove those that nobody needs from %s",
			len(list), filepath.Join(k.ring.Dir, tokensFile))
	}
	if t.At = now; good > 0 {
		t.Expires = now.Add(good)
	}
	text, public, err := signClaim(signer, t.grant(), revoked[grantKey(t.grant())], t.Expires)
	if err != nil {
		return nil, fmt.Errorf("make the join token %s: %w", t.Name, err)
	}
	t.Key = public
	return text, k.write(append(list, t))
}

// dropExpired takes the oldest tokens that have expired off a list that is full. Their names may be given again, so their texts are
// revoked: a clock that is set back would make them good. The caller holds the lock.
func (k Tokens) dropExpired(list []Token, revoked generations, now time.Time) ([]Token, error) {
	if len(list) < mostTokens {
		return list, nil
	}
	left := len(list)
	list = slices.DeleteFunc(list, func(t Token) bool {
		if left < mostTokens || !t.expired(now) {
			return false
		}
		left--
		revoked[grantKey(t.grant())]++
		return true
	})
	return list, k.ring.writeRevoked(revoked)
}

// List returns the join tokens, oldest first.
func (k Tokens) List() (list []Token, err error) {
	path := filepath.Join(k.ring.Dir, tokensFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the join tokens: %w", err)
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fault("%s cannot be read (%w). Restore it, or remove it: then nobody can join with the tokens made so far", path, err)
	}
	return list, nil
}

// Revoke ends a join token. Instances that joined with it keep their credentials.
func (k Tokens) Revoke(service, name string) error {
	list, err := k.List()
	if err != nil {
		return err
	}
	if findToken(list, service, name) == nil {
		return fault("there is no join token %s of service %s: see `quell join-token list`", name, service)
	}
	if err := k.change(service, name, func(t *Token) { t.Revoked = true }); err != nil {
		return err
	}
	return k.ring.Revoke(Grant{Join, service, name})
}

// change changes the record of a token.
func (k Tokens) change(service, name string, alter func(*Token)) error {
	release, err := k.ring.lock()
	if err != nil {
		return err
	}
	defer func() { _ = release() }()
	list, err := k.List()
	if err != nil {
		return err
	}
	t := findToken(list, service, name)
	if t == nil {
		return fs.ErrNotExist
	}
	alter(t)
	return k.write(list)
}

func findToken(list []Token, service, name string) *Token {
	i := slices.IndexFunc(list, func(t Token) bool { return t.Service == service && t.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func (k Tokens) write(list []Token) error {
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return k.ring.write(tokensFile, append(data, '\n'))
}
