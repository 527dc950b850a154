package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/quellhq/quell"
)

// A credential is a file in NATS's own format. It holds a claim, which the controller's key has signed, and a private key, which proves
// that a client owns the claim. The claim names role, service and id, and the subjects that the role may use. So an external NATS grants
// the same rights as the embedded bus.

// Credential is a parsed credential.
type Credential struct {
	Grant Grant
	Claim string // as sent to the server

	key        nkeys.KeyPair
	generation int
	expires    time.Time // zero: never
	issuer     string
}

// parseCredential reads a credential file's text.
func parseCredential(text []byte) (*Credential, error) {
	claim, err := jwt.ParseDecoratedJWT(text)
	if err != nil {
		return nil, fmt.Errorf("it is no credential: %w", err)
	}
	key, err := jwt.ParseDecoratedUserNKey(text)
	if err != nil {
		return nil, fmt.Errorf("it is no credential: %w", err)
	}
	c, _, err := parseClaim(claim)
	if err != nil {
		return nil, err
	}
	c.key = key
	if public, err := key.PublicKey(); err != nil || !strings.Contains(string(text), claim) || public == "" {
		return nil, errors.New("it is no credential: its key cannot be read")
	}
	return c, nil
}

// Sign signs a server's nonce, which proves that this process owns the claim.
func (c *Credential) Sign(nonce []byte) ([]byte, error) { return c.key.Sign(nonce) }

// Check returns an error if a file's text is no credential, or does not allow what the holder of a grant does.
func Check(text []byte, g Grant) error {
	c, err := parseCredential(text)
	if err != nil {
		return err
	}
	own := c.Grant
	switch {
	case own.Service != g.Service:
		return fmt.Errorf("it is for the service %q, and this is the service %q", own.Service, g.Service)
	case own.Role == Controller:
		return nil
	case own.Role != g.Role:
		return fmt.Errorf("it is for %s, and this is a process of role %s", own.holder(), g.Role)
	case own.ID != g.ID && g.Role != Operator:
		return fmt.Errorf("it is for %s, and this is %s", own.holder(), g.holder())
	}
	return nil
}

// holder names who holds a grant.
func (g Grant) holder() string {
	if g.Role == Sensor {
		return "the agent of " + g.ID
	}
	return "the " + g.String()
}

// Tags of a claim.
const (
	roleTag       = "role:"
	serviceTag    = "service:"
	generationTag = "generation:"
)

// parseClaim checks the signature of a claim and that the claim is one of Quell's.
func parseClaim(claim string) (*Credential, *jwt.UserClaims, error) {
	claims, err := jwt.DecodeUserClaims(claim)
	if err != nil {
		return nil, nil, fmt.Errorf("it is no credential: %w", err)
	}
	c := &Credential{Claim: claim, issuer: claims.Issuer}
	c.Grant.ID = claims.Name
	for _, tag := range claims.Tags {
		if v, ok := strings.CutPrefix(tag, roleTag); ok {
			c.Grant.Role = Role(v)
		}
		if v, ok := strings.CutPrefix(tag, serviceTag); ok {
			c.Grant.Service = v
		}
		if v, ok := strings.CutPrefix(tag, generationTag); ok {
			if c.generation, err = strconv.Atoi(v); err != nil {
				return nil, nil, fmt.Errorf("its tag %q is not a number", tag)
			}
		}
	}
	if claims.Expires > 0 {
		c.expires = time.Unix(claims.Expires, 0)
	}
	if err := c.Grant.check(); err != nil {
		return nil, nil, fmt.Errorf("it is not one of Quell's: %w", err)
	}
	return c, claims, nil
}

// signClaim makes the text of a credential. A zero expires means that it never expires.
func signClaim(signer nkeys.KeyPair, g Grant, generation int, expires time.Time) (text []byte, public string, err error) {
	user, err := nkeys.CreateUser()
	if err != nil {
		return nil, "", err
	}
	if public, err = user.PublicKey(); err != nil {
		return nil, "", err
	}
	seed, err := user.Seed()
	if err != nil {
		return nil, "", err
	}
	claim, err := encodeClaim(signer, g, public, generation, expires)
	if err != nil {
		return nil, "", err
	}
	text, err = jwt.FormatUserConfig(claim, seed)
	return text, public, err
}

// encodeClaim signs a claim for the holder of a key.
func encodeClaim(signer nkeys.KeyPair, g Grant, public string, generation int, expires time.Time) (string, error) {
	s := g.subjects()
	claims := jwt.NewUserClaims(public)
	claims.Name = g.ID
	claims.Tags = jwt.TagList{roleTag + string(g.Role), serviceTag + g.Service, generationTag + strconv.Itoa(generation)}
	claims.Pub.Allow, claims.Sub.Allow = s.publish, s.subscribe
	if g.Role == Leaf {
		claims.AllowedConnectionTypes = jwt.StringList{jwt.ConnectionTypeLeafnode}
	}
	if !expires.IsZero() {
		claims.Expires = expires.Unix()
	}
	return claims.Encode(signer)
}

// sameSubjects returns whether a claim allows exactly the subjects that its role may use in this version of Quell.
func sameSubjects(claims *jwt.UserClaims, g Grant) bool {
	s := g.subjects()
	return strings.Join(claims.Pub.Allow, " ") == strings.Join(s.publish, " ") &&
		strings.Join(claims.Sub.Allow, " ") == strings.Join(s.subscribe, " ")
}

// proves returns an error unless the holder of a claim has signed the nonce with the claim's key.
func proves(claims *jwt.UserClaims, signature string, nonce []byte) error {
	if claims.BearerToken || len(nonce) == 0 {
		return errors.New("nothing proves that its holder has its key")
	}
	sig, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil {
		return errors.New("its signature cannot be read")
	}
	key, err := nkeys.FromPublicKey(claims.Subject)
	if err != nil {
		return err
	}
	if err := key.Verify(nonce, sig); err != nil {
		return errors.New("its holder does not have its key")
	}
	return nil
}

// Identity is what a process presents to the bus. Every field may be empty.
type Identity struct {
	Token      string
	Credential []byte // a credential file's text
	Proves     Grant  // of role Prove: without a credential it names what it is going to show to the controller
}

// Name is the user's name of a process that proves without a credential, "" for others.
func (id Identity) Name() string {
	if id.Proves.Role != Prove {
		return ""
	}
	return grantKey(id.Proves)
}

// Parse returns the credential, nil if there is none.
func (id Identity) Parse() (*Credential, error) {
	if len(id.Credential) == 0 {
		return nil, nil
	}
	return parseCredential(id.Credential)
}

func fault(format string, args ...any) error {
	return &quell.UserError{Err: fmt.Errorf(format, args...)}
}
