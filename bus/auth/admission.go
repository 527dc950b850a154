package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nkeys"
)

// Admissions give the instances of one service the credentials of their sensors. A machine makes its key itself and sends the public part,
// so what the bus carries is of no use to others. A name belongs to the key that first joined under it, until the instance leaves the
// service, or until a person revokes the instance's credential.
type Admissions struct {
	ring    Keyring
	service string
	// Reports returns whether readings of an instance arrive from an agent. Without a credential by name it shows a shared token; its name is
	// taken, too. Nil: none do.
	Reports func(instance string) bool

	mu    sync.Mutex
	stamp fileStamp           // of the file of issued credentials when it was last read
	names map[string][]Issued // the credentials of sensors of this service, by instance, oldest first
}

// NewAdmissions returns the admissions of a service.
func NewAdmissions(ring Keyring, service string) *Admissions {
	return &Admissions{ring: ring, service: service}
}

// Admitted is what an instance gets.
type Admitted struct {
	Claim    string        // to be put together with the instance's private key: see Assemble
	Lifetime time.Duration // the claim is valid for this long
	New      bool          // the instance has not joined with this key before
}

// Join admits an instance whose machine showed a join token. An error that is a *Refusal is for the machine.
func (a *Admissions) Join(token, instance, key string, now time.Time) (Admitted, error) {
	if err := a.check(instance, key); err != nil {
		return Admitted{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := a.token(token, now)
	if err != nil {
		return Admitted{}, err
	}
	held, err := a.holder(instance, key, now)
	if err != nil {
		return Admitted{}, err
	}
	if !held {
		if t.usedUp() {
			return Admitted{}, refusal("the join token %s is used up: %d instances joined with it", token, t.Used)
		}
		if err := a.use(t, instance, key, now); err != nil {
			return Admitted{}, err
		}
	}
	claim, err := a.sign(instance, key, now.Add(t.Lifetime()))
	return Admitted{claim, t.Lifetime(), !held}, err
}

// ProofLifetime is how long the credential is valid of an instance that joined with a proof.
const ProofLifetime = DefaultLifetime

// Prove admits an instance whose machine showed a kind of proof. verify checks it; it is told whether the instance has joined with this key
// before, and returns what the platform calls the machine, "" if instances' names are never used again. If another machine had the name,
// the platform has given it to this one, and the other one's credential is revoked. verify is not called if the name belongs to another key
// otherwise.
func (a *Admissions) Prove(
	kind, instance, key string, now time.Time, verify func(again bool) (machine string, err error),
) (Admitted, error) {
	if err := a.check(instance, key); err != nil {
		return Admitted{}, err
	}
	held, err := a.owns(instance, key, now)
	if err != nil && formerly(err) == "" {
		return Admitted{}, err
	}
	machine, err := verify(held) // it may take time: others are not to wait
	if err != nil {
		return Admitted{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	held, err = a.holder(instance, key, now)
	if former := formerly(err); former != "" && machine != "" && machine != former {
		if err := a.ring.Revoke(Grant{Sensor, a.service, instance}); err != nil {
			return Admitted{}, err
		}
		held, err = a.holder(instance, key, now)
	}
	if err != nil {
		return Admitted{}, err
	}
	if !held {
		if err := a.note(Issued{Proof: kind, Machine: machine, ID: instance, Key: key}, now); err != nil {
			return Admitted{}, err
		}
	}
	claim, err := a.sign(instance, key, now.Add(ProofLifetime))
	return Admitted{claim, ProofLifetime, !held}, err
}

func (a *Admissions) owns(instance, key string, now time.Time) (held bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.holder(instance, key, now)
}

// Renew gives an instance that joined a new credential for its key. The caller knows that the instance asks.
func (a *Admissions) Renew(instance, key string, now time.Time) (Admitted, error) {
	if err := a.check(instance, key); err != nil {
		return Admitted{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	held, err := a.holder(instance, key, now)
	if err != nil {
		return Admitted{}, err
	}
	if !held {
		return Admitted{}, refusal("%s has not joined", instance)
	}
	lifetime, err := a.lifetime(instance, key)
	if err != nil {
		return Admitted{}, err
	}
	claim, err := a.sign(instance, key, now.Add(lifetime))
	return Admitted{Claim: claim, Lifetime: lifetime}, err
}

// formerly returns which machine has a name, if an instance was refused for that, and if the machine's platform told.
func formerly(err error) string {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.machine
	}
	return ""
}

// Refusal is why an instance may not join.
type Refusal struct{ text, machine string }

func (r *Refusal) Error() string { return r.text }

func refusal(format string, args ...any) error { return &Refusal{text: fmt.Sprintf(format, args...)} }

func (a *Admissions) check(instance, key string) error {
	if err := (Grant{Sensor, a.service, instance}).check(); err != nil {
		return refusal("%v", err)
	}
	if !nkeys.IsValidPublicUserKey(key) {
		return refusal("it gave no key of its own")
	}
	return nil
}

// token returns a token with which an instance may join.
func (a *Admissions) token(name string, now time.Time) (Token, error) {
	list, err := a.ring.Tokens().List()
	if err != nil {
		return Token{}, err
	}
	t := findToken(list, a.service, name)
	if t == nil {
		return Token{}, refusal("there is no join token %s here: it was made at another controller", name)
	}
	problem := t.problem(now)
	if problem == nil {
		return *t, nil
	}
	if !t.Revoked && !t.Ended {
		if err := a.ring.Tokens().change(a.service, name, func(t *Token) { t.Ended = true }); err != nil {
			return Token{}, err
		}
	}
	return Token{}, refusal("the join token %s is not valid: %v", name, problem)
}

// holder returns whether an instance's name belongs to a key. If the name belongs to another one, or is taken otherwise, or if a person
// revoked this key, it is refused.
func (a *Admissions) holder(instance, key string, now time.Time) (held bool, err error) {
	if err := a.refresh(); err != nil {
		return false, err
	}
	revoked, err := a.ring.revoked()
	if err != nil {
		return false, err
	}
	valid := revoked[grantKey(Grant{Sensor, a.service, instance})]
	for _, made := range a.names[instance] {
		switch {
		case made.Generation < valid && made.Key == key && !made.Gone:
			return false, refusal("the credential of %s was revoked: to let this machine join again, remove its credential and key there",
				instance)
		case made.Generation < valid, !made.Expires.IsZero() && made.Expires.Before(now):
		case made.Key == key:
			held = true
		case made.joined():
			return false, &Refusal{machine: made.Machine, text: fmt.Sprintf("%s has joined already, with another key. If this is its machine: "+
				"quell credentials revoke sensor %s", instance, instance)}
		default:
			return false, refusal("%s has a credential that was not got by joining: quell credentials revoke sensor %s ends that",
				instance, instance)
		}
	}
	if !held && a.Reports != nil && a.Reports(instance) {
		return false, refusal("readings of %s arrive already, from an agent that has not joined: stop that agent first", instance)
	}
	return held, nil
}

// refresh reads the issued credentials if their file has changed.
func (a *Admissions) refresh() error {
	stamp, err := a.look()
	if err != nil || stamp == a.stamp && a.names != nil {
		return err
	}
	list, err := a.ring.List()
	if err != nil {
		return err
	}
	a.names = map[string][]Issued{}
	for _, made := range list {
		a.remember(made)
	}
	a.stamp = stamp
	return nil
}

func (a *Admissions) remember(made Issued) {
	if made.Role == Sensor && made.Service == a.service {
		a.names[made.ID] = append(a.names[made.ID], made)
	}
}

func (a *Admissions) look() (fileStamp, error) {
	info, err := os.Stat(filepath.Join(a.ring.Dir, issuedFile))
	if os.IsNotExist(err) {
		return fileStamp{}, nil
	}
	if err != nil {
		return fileStamp{}, fmt.Errorf("look at the issued credentials: %w", err)
	}
	return fileStamp{info.Size(), info.ModTime()}, nil
}

// use records that an instance joined with a token. If the process is killed before the instance gets its credential, a use of the token
// is lost, or the instance asks again with the same key.
func (a *Admissions) use(t Token, instance, key string, now time.Time) error {
	if err := a.ring.Tokens().change(a.service, t.Name, func(t *Token) { t.Used++ }); err != nil {
		return err
	}
	err := a.note(Issued{Token: t.Name, LifetimeS: t.LifetimeS, ID: instance, Key: key}, now)
	if err != nil { // as on a full disk: asking again must not use the token up
		err = errors.Join(err, a.ring.Tokens().change(a.service, t.Name, func(t *Token) { t.Used-- }))
	}
	return err
}

// note records that an instance joined, before it gets its credential.
func (a *Admissions) note(made Issued, now time.Time) error {
	revoked, err := a.ring.revoked()
	if err != nil {
		return err
	}
	before, err := a.look()
	if err != nil {
		return err
	}
	made.At, made.Role, made.Service = now.UTC().Truncate(time.Second), Sensor, a.service
	made.Generation = revoked[grantKey(made.grant())]
	line, err := json.Marshal(made)
	if err != nil {
		return err
	}
	if err := a.ring.note(append(line, '\n')); err != nil {
		return err
	}
	after, err := a.look()
	if err == nil && before == a.stamp && after.size == before.size+int64(len(line))+1 { // nobody else wrote
		a.remember(made)
		a.stamp = after
	}
	return err
}

// lifetime returns how long the credentials are valid that an instance gets.
func (a *Admissions) lifetime(instance, key string) (time.Duration, error) {
	list, err := a.ring.Tokens().List()
	if err != nil {
		return 0, err
	}
	lifetime := LeastLifetime
	for _, made := range a.names[instance] {
		if made.Key != key {
			continue
		}
		switch t := findToken(list, a.service, made.Token); {
		case made.LifetimeS > 0:
			lifetime = Token{LifetimeS: made.LifetimeS}.Lifetime()
		case t != nil:
			lifetime = t.Lifetime()
		case made.joined(): // with a proof, or with a token that is no longer listed
			lifetime = DefaultLifetime
		}
	}
	return lifetime, nil
}

func (a *Admissions) sign(instance, key string, expires time.Time) (string, error) {
	signer, err := a.ring.key(accountFile)
	if err != nil {
		return "", err
	}
	revoked, err := a.ring.revoked()
	if err != nil {
		return "", err
	}
	g := Grant{Sensor, a.service, instance}
	return encodeClaim(signer, g, key, revoked[grantKey(g)], expires)
}
