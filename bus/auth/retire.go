package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/quellhq/quell/internal/atomicfile"
)

// mostRetired is how many credentials of removed instances stay listed as revoked. Older ones can be forgotten safely: an id is never
// used twice, and readings of unknown instances are dropped.
const mostRetired = 1000

// Retire revokes the credentials of removed instances' sensors that Find made or that machines got by joining, removes those that
// are stored here, and returns the ids. It keeps credentials made after the given time, because their
// instances may not be known yet, and those of ids for which a person made one.
func (k Keyring) Retire(service string, before time.Time, gone func(id string) bool) (ids []string, err error) {
	if _, err := os.Stat(filepath.Join(k.Dir, issuedFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	release, err := k.lock()
	if err != nil {
		return nil, err
	}
	defer func() { _ = release() }()
	list, err := k.List()
	if err != nil {
		return nil, err
	}
	ids = retirable(list, service, before, gone)
	if len(ids) == 0 {
		return nil, nil
	}
	revoked, err := k.revoked()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		revoked[grantKey(Grant{Sensor, service, id})]++
	}
	for i, made := range list {
		list[i].Revoked = made.Generation < revoked[grantKey(made.grant())]
		list[i].Gone = made.Gone || list[i].Revoked && !made.Revoked
	}
	// The list is written first. Without it a revocation would look like a person's, for ever; what is not revoked yet is retired again.
	if err := k.rewrite(forgetRetired(list, revoked)); err != nil {
		return nil, err
	}
	if err := k.writeRevoked(revoked); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if err := atomicfile.Remove(k.Path(Grant{Sensor, service, id})); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// notGone takes back that an instance had left, if its credential is still valid: a retirement was cut short, and the instance came back. A
// person's revocation is to count.
func notGone(k Keyring, g Grant) error {
	list, err := k.List()
	if err != nil {
		return err
	}
	changed := false
	for i, made := range list {
		if made.grant() == g && made.Gone && !made.Revoked {
			list[i].Gone, changed = false, true
		}
	}
	if !changed {
		return nil
	}
	return k.rewrite(list)
}

// retirable returns the removed instances whose valid credentials were all made without a person. If a person made a credential for an
// instance, that instance is left out.
func retirable(list []Issued, service string, before time.Time, gone func(id string) bool) (ids []string) {
	stays := map[string]bool{}
	for _, made := range list {
		if made.Role != Sensor || made.Service != service || made.Revoked {
			continue
		}
		stays[made.ID] = stays[made.ID] || made.byHand() || !made.At.Before(before)
	}
	for id, stay := range stays {
		if !stay && gone(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// forgetRetired keeps the newest mostRetired credentials that were revoked with their instances, and removes older ones from the list, with
// their revocations.
func forgetRetired(list []Issued, revoked generations) (kept []Issued) {
	retired := 0
	for _, made := range slices.Backward(list) {
		if made.Revoked && (made.Found || made.Gone) {
			if retired++; retired > mostRetired {
				continue
			}
		}
		kept = append(kept, made)
	}
	slices.Reverse(kept)
	named := map[string]bool{}
	for _, made := range kept {
		named[grantKey(made.grant())] = true
	}
	for _, made := range list {
		if key := grantKey(made.grant()); !named[key] {
			delete(revoked, key)
		}
	}
	return kept
}

func (i Issued) byHand() bool { return !i.Found && !i.joined() }

// joined returns whether a machine got it by joining.
func (i Issued) joined() bool { return i.Token != "" || i.Proof != "" }

func (i Issued) grant() Grant { return Grant{i.Role, i.Service, i.ID} }

// rewrite replaces the file of issued credentials. The caller holds the lock.
func (k Keyring) rewrite(list []Issued) error {
	var text bytes.Buffer
	for _, made := range list {
		made.Revoked = made.Revoked && !made.Gone // a retirement is done when the other file says so
		line, err := json.Marshal(made)
		if err != nil {
			return err
		}
		text.Write(append(line, '\n'))
	}
	return k.write(issuedFile, text.Bytes())
}
