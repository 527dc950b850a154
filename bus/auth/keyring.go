package auth

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/quellhq/quell/bus/subjects"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/lockfile"
)

// Keyring is the folder in which a controller keeps the key that signs credentials, and credentials for the processes on its
// own machine. Anybody who can read the key can make any credential.
type Keyring struct {
	Dir string
	Own string // the service whose credentials have a folder of their own in Dir; empty: the credentials are in Dir itself
}

// The files of a keyring, next to the credentials.
const (
	accountFile  = "account.nk"    // signs credentials
	operatorFile = "operator.nk"   // signs the account for an external NATS; made when first needed
	systemFile   = "system.nk"     // of that NATS's system account
	tokensFile   = "tokens.json"   // the join tokens
	revokedFile  = "revoked.json"  // the lowest valid generation of each grant
	issuedFile   = "issued.jsonl"  // a record of the credentials that were made
	ringLock     = "keyring.lock"  // held while files change
	lockPatience = 5 * time.Second // wait for another command that holds it
)

// Make creates the folder and the key if they do not exist.
func (k Keyring) Make() error {
	if err := makeFolder(k.Dir); err != nil {
		return err
	}
	_, err := k.seed(accountFile, nkeys.CreateAccount)
	return err
}

// makeFolder makes a folder of the keyring. Like its files it is for the user to whom the folder around it belongs.
func makeFolder(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make the folder of credentials: %w", err)
	}
	atomicfile.LikeFolder(path)
	return nil
}

// seed reads a key, or makes it.
func (k Keyring) seed(name string, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, error) {
	key, err := k.key(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if key, err = create(); err != nil {
		return nil, err
	}
	seed, err := key.Seed()
	if err != nil {
		return nil, err
	}
	if err := atomicfile.Create(filepath.Join(k.Dir, name), append(seed, '\n'), 0o600); errors.Is(err, fs.ErrExist) {
		return k.key(name) // another process made it first
	} else if err != nil {
		return nil, fmt.Errorf("write %s: %w", filepath.Join(k.Dir, name), err)
	}
	atomicfile.LikeFolder(filepath.Join(k.Dir, name))
	return key, nil
}

// restore writes the key and the revocations back to a folder that was emptied under a running controller.
func (k Keyring) restore(key nkeys.KeyPair, revoked generations) error {
	if err := makeFolder(k.Dir); err != nil {
		return err
	}
	seed, err := key.Seed()
	if err != nil {
		return err
	}
	if err := k.write(accountFile, append(seed, '\n')); err != nil || len(revoked) == 0 {
		return err
	}
	return k.writeRevoked(revoked)
}

func (k Keyring) key(name string) (nkeys.KeyPair, error) {
	path := filepath.Join(k.Dir, name)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key of the bus: %w", err)
	}
	key, err := nkeys.FromSeed(bytes.TrimSpace(data))
	if err != nil {
		return nil, fault("%s holds no key (%w). Restore it, or remove it: then every credential must be made anew", path, err)
	}
	return key, nil
}

// write replaces a file of the folder. Only the file's owner can read it.
func (k Keyring) write(name string, data []byte) error {
	return replace(filepath.Join(k.Dir, name), data)
}

func replace(path string, data []byte) error {
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	atomicfile.LikeFolder(path)
	return nil
}

// writeCredential stores a credential.
func (k Keyring) writeCredential(g Grant, text []byte) error {
	if err := makeFolder(k.credentials()); err != nil {
		return err
	}
	return replace(k.Path(g), text)
}

// longestFile limits the length of a file's name; longer names are replaced by a hash.
const longestFile = 200

// Path is the file of a grant's credential.
func (k Keyring) Path(g Grant) string {
	name := string(g.Role)
	if g.ID != name {
		name += "-" + subjects.Escape(g.ID)
	}
	if len(name) > longestFile {
		name = fmt.Sprintf("%s-%x", g.Role, sha256.Sum256([]byte(g.ID)))
	}
	return filepath.Join(k.credentials(), name+".creds")
}

// credentials is the folder of the credentials.
func (k Keyring) credentials() string {
	if k.Own == "" {
		return k.Dir
	}
	return filepath.Join(k.Dir, subjects.Escape(k.Own))
}

// Issued is a record of one credential.
type Issued struct {
	At      time.Time `json:"at"`
	Role    Role      `json:"role"`
	Service string    `json:"service"`
	ID      string    `json:"id"`
	Key     string    `json:"key"` // public
	Expires time.Time `json:"expires,omitzero"`
	Revoked bool      `json:"revoked,omitempty"` // List sets it by what was revoked since, too
	Found   bool      `json:"found,omitempty"`   // made by Find for a process on this machine
	Token   string    `json:"token,omitempty"`   // the join token with which a machine got it; then Expires is not set: it is renewed
	Proof   string    `json:"proof,omitempty"`   // the kind of proof with which a machine got it; as with Token it is renewed
	Machine string    `json:"machine,omitempty"` // what its platform calls that machine, if names of instances are used again
	Gone    bool      `json:"gone,omitempty"`    // revoked because its instance had left the service
	// With neither Found, Token nor Proof, a person made it.

	// LifetimeS is how long the credentials are valid that a machine gets with Token, in seconds; 0 in records of versions that did not note
	// it.
	LifetimeS float64 `json:"lifetime_s,omitempty"`

	Generation int `json:"generation"`
}

// Issue makes a credential that is valid for the given time, for ever if that is 0, and returns the credential's text. It does not store
// the credential.
func (k Keyring) Issue(g Grant, good time.Duration) ([]byte, error) { return k.issue(g, good, false) }

func (k Keyring) issue(g Grant, good time.Duration, found bool) ([]byte, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	signer, err := k.key(accountFile)
	if err != nil {
		return nil, err
	}
	revoked, _, err := everRevoked(k)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var expires time.Time
	if good > 0 {
		expires = now.Add(good)
	}
	generation := revoked[grantKey(g)]
	text, public, err := signClaim(signer, g, generation, expires)
	if err != nil {
		return nil, fmt.Errorf("make the credential of %s: %w", g, err)
	}
	line, err := json.Marshal(Issued{At: now.UTC().Truncate(time.Second), Role: g.Role, Service: g.Service, ID: g.ID, Key: public,
		Expires: expires, Generation: generation, Found: found})
	if err != nil {
		return nil, err
	}
	return text, k.note(append(line, '\n'))
}

func (k Keyring) note(line []byte) error {
	release, err := k.lock() // the file of issued credentials may be about to be replaced
	if err != nil {
		return err
	}
	defer func() { _ = release() }()
	file, err := os.OpenFile(filepath.Join(k.Dir, issuedFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("note a credential: %w", err)
	}
	atomicfile.LikeFolder(file.Name())
	return errors.Join(appendLine(file, line), file.Close())
}

// appendLine appends a line as a whole or not at all. A last line that is not finished, as after a loss of power, is ended before it: glued
// to it, neither could be read.
func appendLine(file *os.File, line []byte) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if size := info.Size(); size > 0 {
		last := make([]byte, 1)
		if _, err := file.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err := file.Write(line); err != nil { // as on a full disk
		return errors.Join(err, file.Truncate(info.Size()))
	}
	return nil
}

// Keep makes a credential and stores it in the folder, replacing the previous one.
func (k Keyring) Keep(g Grant, good time.Duration) (text []byte, err error) {
	if text, err = k.Issue(g, good); err != nil {
		return nil, err
	}
	return text, k.writeCredential(g, text)
}

// Find returns the stored credential of a grant. If it is missing or no longer valid and the key can be read, Find makes a new
// one: a process that may read the key needs no credential from anybody. If the key cannot be read, a missing credential is
// fs.ErrNotExist.
func (k Keyring) Find(g Grant) ([]byte, error) {
	text, err := os.ReadFile(k.Path(g))
	signer, noKey := k.key(accountFile)
	switch {
	case noKey != nil && err == nil && errors.Is(noKey, fs.ErrNotExist) || errors.Is(noKey, fs.ErrPermission):
		return text, err
	case noKey != nil:
		return nil, noKey
	case err == nil && k.good(text, g, signer):
		return text, nil
	}
	return k.keepOrGo(g)
}

// unkept holds credentials that this process made but could not store, by path.
var unkept sync.Map

// keepOrGo makes and stores a credential. If the disk is full, the credential is kept only in this process's memory, and other processes
// make new ones.
func (k Keyring) keepOrGo(g Grant) ([]byte, error) {
	if text, ok := unkept.Load(k.Path(g)); ok {
		if signer, err := k.key(accountFile); err == nil && k.good(text.([]byte), g, signer) {
			return text.([]byte), nil
		}
	}
	text, err := k.issue(g, 0, true)
	if err == nil {
		err = k.writeCredential(g, text)
	}
	if text != nil && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		unkept.Store(k.Path(g), text)
		return text, nil
	}
	return text, err
}

func (k Keyring) good(text []byte, g Grant, signer nkeys.KeyPair) bool {
	c, err := parseCredential(text)
	if err != nil || c.Grant != g {
		return false
	}
	public, err := signer.PublicKey()
	if err != nil || c.issuer != public || !c.expires.IsZero() && !time.Now().Before(c.expires) {
		return false
	}
	revoked, err := k.revoked()
	if err != nil || c.generation < revoked[grantKey(g)] {
		return false
	}
	_, claims, err := parseClaim(c.Claim)
	return err == nil && sameSubjects(claims, g)
}

// Identify returns a function that presents the credential of a grant, see Options.Identify.
func (k Keyring) Identify(g Grant) func() (Identity, error) {
	return func() (Identity, error) {
		text, err := k.Find(g)
		return Identity{Credential: text}, err
	}
}

// generations are the lowest valid generations by grant. A generation is a counter, so clocks do not matter.
type generations map[string]int

func grantKey(g Grant) string {
	return string(g.Role) + "/" + subjects.Escape(g.Service) + "/" + subjects.Escape(g.ID)
}

// revoked returns what was revoked, by the file of revocations.
func (k Keyring) revoked() (generations, error) {
	path := filepath.Join(k.Dir, revokedFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return generations{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was revoked: %w", err)
	}
	var g generations
	if err = json.Unmarshal(data, &g); err == nil && g == nil {
		err = errors.New("it holds null")
	}
	if err != nil {
		return nil, fault("%s cannot be read (%w). Restore it: it says which credentials were revoked", path, err)
	}
	return g, nil
}

// everRevoked returns what was revoked, and whether the file of revocations lacks some of it, because it was lost or replaced by an older
// one. What a person revoked is marked in the list of what was made, too.
func everRevoked(k Keyring) (g generations, lacks bool, err error) {
	if g, err = k.revoked(); err != nil {
		return nil, false, err
	}
	list, err := made(k)
	for _, i := range list {
		if key := grantKey(i.grant()); i.Revoked && g[key] <= i.Generation {
			g[key], lacks = i.Generation+1, true
		}
	}
	return g, lacks, err
}

// Revoke makes all credentials of a grant that exist so far invalid, including copies. A running controller notices within
// two seconds.
func (k Keyring) Revoke(g Grant) error {
	if err := g.check(); err != nil {
		return err
	}
	if _, err := k.key(accountFile); err != nil {
		return err
	}
	release, err := k.lock()
	if err != nil {
		return err
	}
	defer func() { _ = release() }()
	if err := notGone(k, g); err != nil {
		return err
	}
	revoked, _, err := everRevoked(k)
	if err != nil {
		return err
	}
	revoked[grantKey(g)]++
	if err := k.writeRevoked(revoked); err != nil {
		return err
	}
	list, err := k.List() // it marks what was revoked
	if err != nil {
		return err
	}
	return k.rewrite(list)
}

// Unrevoked returns a function that says whether the credentials of a grant that are valid now have not been revoked since. When they
// expire only a bus knows.
func Unrevoked(k Keyring, who Grant) func(time.Time) bool {
	before, err := k.revoked()
	return func(time.Time) bool {
		now, err2 := k.revoked()
		return who.Role == Shared || err == nil && err2 == nil && now[grantKey(who)] == before[grantKey(who)]
	}
}

func (k Keyring) writeRevoked(revoked generations) error {
	data, err := json.MarshalIndent(revoked, "", "  ")
	if err != nil {
		return err
	}
	return k.write(revokedFile, append(data, '\n'))
}

func (k Keyring) lock() (release func() error, err error) {
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(20 * time.Millisecond) {
		path := filepath.Join(k.Dir, ringLock)
		if release, err = lockfile.Take(path, 0o600); err == nil {
			atomicfile.LikeFolder(path)
		}
		if !errors.Is(err, lockfile.ErrHeld) || time.Now().After(deadline) {
			return release, err
		}
	}
}

// List returns the credentials that were made, oldest first.
func (k Keyring) List() ([]Issued, error) {
	revoked, err := k.revoked()
	if err != nil {
		return nil, err
	}
	list, err := made(k)
	for n, i := range list {
		list[n].Revoked = i.Revoked || i.Generation < revoked[grantKey(i.grant())]
	}
	return list, err
}

// made returns the records of the credentials that were made, oldest first.
func made(k Keyring) (list []Issued, err error) {
	data, err := os.ReadFile(filepath.Join(k.Dir, issuedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read what was made: %w", err)
	}
	for line := range bytes.Lines(data) {
		var i Issued
		if err := json.Unmarshal(line, &i); err != nil {
			continue // an incomplete line from a killed process
		}
		list = append(list, i)
	}
	return list, nil
}

// External returns whether a configuration for an external NATS was made with this keyring.
func (k Keyring) External() bool {
	_, err := os.Stat(filepath.Join(k.Dir, operatorFile))
	return err == nil
}

// NATSConfig returns the part of an external NATS server's configuration that makes it accept this keyring's credentials
// and grant the same rights as the embedded bus.
func NATSConfig(k Keyring) (string, error) {
	operator, err := k.seed(operatorFile, nkeys.CreateOperator)
	if err != nil {
		return "", err
	}
	system, err := k.seed(systemFile, nkeys.CreateAccount)
	if err != nil {
		return "", err
	}
	account, err := k.key(accountFile)
	if err != nil {
		return "", err
	}
	revocations, err := revocations(k)
	if err != nil {
		return "", err
	}
	return natsConfig(operator, system, account, revocations)
}

// revocations returns the revocations in NATS's own form, which is by key and time.
func revocations(k Keyring) (jwt.RevocationList, error) {
	list, err := k.List()
	if err != nil {
		return nil, err
	}
	revoked, again := jwt.RevocationList{}, map[string]bool{} // a machine that left may have joined again with its key
	for _, i := range slices.Backward(list) {
		again[i.Key] = again[i.Key] || !i.Revoked
		if i.Revoked && !again[i.Key] {
			revoked.Revoke(i.Key, time.Now())
		}
	}
	tokens, err := k.Tokens().List()
	for _, t := range tokens {
		if t.Revoked {
			revoked.Revoke(t.Key, time.Now())
		}
	}
	return revoked, err
}

func natsConfig(operator, system, account nkeys.KeyPair, revoked jwt.RevocationList) (string, error) {
	var public [3]string
	for i, key := range []nkeys.KeyPair{operator, system, account} {
		var err error
		if public[i], err = key.PublicKey(); err != nil {
			return "", err
		}
	}
	trust := jwt.NewOperatorClaims(public[0])
	trust.Name, trust.SystemAccount = "quell", public[1]
	sys := jwt.NewAccountClaims(public[1])
	sys.Name = "SYS"
	own := jwt.NewAccountClaims(public[2])
	own.Name, own.Revocations = "quell", revoked
	own.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit,
		Consumer: jwt.NoLimit}
	var signed [3]string
	for i, claims := range []jwt.Claims{trust, sys, own} {
		var err error
		if signed[i], err = claims.Encode(operator); err != nil {
			return "", err
		}
	}
	leaf := "# A leaf node's remote needs, beside urls, a credential of role leaf and this account:\n#   account: " + public[2] + "\n"
	return leaf + fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n  %s: %s\n  %s: %s\n}\n",
		signed[0], public[1], public[1], signed[1], public[2], signed[2]), nil
}
