package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/quellhq/quell/internal/atomicfile"
)

// Holding is where a machine keeps the credential that it got by joining, and the key of it, which never leaves the machine.
type Holding struct{ Path string }

// Key returns the public part of the machine's key, which is made if there is none.
func (h Holding) Key() (public string, err error) {
	key, err := h.key()
	if errors.Is(err, fs.ErrNotExist) {
		key, err = h.makeKey()
	}
	if err != nil {
		return "", err
	}
	return key.PublicKey()
}

func (h Holding) keyPath() string { return h.Path + ".key" }

func (h Holding) key() (nkeys.KeyPair, error) {
	seed, err := os.ReadFile(h.keyPath())
	if err != nil {
		return nil, fmt.Errorf("read this machine's key: %w", err)
	}
	key, err := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err != nil {
		return nil, fault("%s holds no key (%w): remove it, and on the controller's machine revoke the credential of this instance's sensor",
			h.keyPath(), err)
	}
	return key, nil
}

// makeKey stores a new key before anybody knows it: a key that was lost would keep the machine from its own name.
func (h Holding) makeKey() (nkeys.KeyPair, error) {
	key, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	seed, err := key.Seed()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(h.Path), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of this machine's credential: %w", err)
	}
	if err := atomicfile.Create(h.keyPath(), append(seed, '\n'), 0o600); errors.Is(err, fs.ErrExist) {
		return h.key()
	} else if err != nil {
		return nil, fmt.Errorf("store this machine's key: %w", err)
	}
	return key, nil
}

// Store checks that a claim is one for a grant and this machine's key, and stores the credential.
func (h Holding) Store(claim string, g Grant) error {
	key, err := h.key()
	if err != nil {
		return err
	}
	c, claims, err := parseClaim(claim)
	if err != nil {
		return err
	}
	if public, err := key.PublicKey(); err != nil || claims.Subject != public || c.Grant != g {
		return fmt.Errorf("the answer is a credential of %s for another key or another process", c.Grant)
	}
	seed, err := key.Seed()
	if err != nil {
		return err
	}
	text, err := jwt.FormatUserConfig(claim, seed)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(h.Path, text, 0o600); err != nil {
		return fmt.Errorf("store the credential: %w", err)
	}
	return nil
}

// RoleOf returns the role of a credential file's text.
func RoleOf(text []byte) (Role, error) {
	c, err := parseCredential(text)
	if err != nil {
		return "", err
	}
	return c.Grant.Role, nil
}
