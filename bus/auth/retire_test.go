package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTheLedgerIsBounded retires more instances than are remembered.
func TestTheLedgerIsBounded(t *testing.T) {
	ring := Keyring{Dir: t.TempDir()}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Issue(Grant{Sensor, "video", "by-hand"}, 0); err != nil {
		t.Fatal(err)
	}
	const more = 5
	for i := range mostRetired + more {
		if _, err := ring.Find(Grant{Sensor, "video", fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	ids, err := ring.Retire("video", time.Now().Add(time.Hour), func(string) bool { return true })
	if err != nil || len(ids) != mostRetired+more {
		t.Fatalf("retired %d, %v", len(ids), err)
	}
	list, err := ring.List()
	if err != nil || len(list) != 1+mostRetired || list[0].ID != "by-hand" || list[0].Revoked || list[1].ID != fmt.Sprint(more) ||
		!list[1].Revoked {
		t.Errorf("%d in the ledger, %v", len(list), err)
	}
	if revoked, err := ring.revoked(); err != nil || len(revoked) != mostRetired {
		t.Errorf("%d revoked, %v", len(revoked), err)
	}
	kept, err := fs.Glob(os.DirFS(ring.Dir), "*.creds")
	if err != nil || len(kept) > 0 {
		t.Errorf("%d credentials are still there: %s, %v", len(kept), strings.Join(kept, " "), err)
	}
}

// TestARetirementThatWasCutShort fails between the writes of a retirement. The machine may return and join again, until a person revokes
// its credential.
func TestARetirementThatWasCutShort(t *testing.T) {
	d, key := newDoor(t, Token{}, 0), newKey(t)
	d.wants("i1", key, "")
	issued, after := filepath.Join(d.ring.Dir, issuedFile), time.Now().Add(time.Hour)
	retire := func(gone func(string) bool) error {
		ids, err := d.ring.Retire("video", after, gone)
		if err == nil && len(ids) != 1 {
			t.Errorf("retired %q", ids)
		}
		return err
	}
	aside := issued + ".aside"
	err := retire(func(string) bool { // the list has been read; a folder in its place, which is not empty, cannot be replaced
		if err := errors.Join(os.Rename(issued, aside), os.MkdirAll(filepath.Join(issued, "x"), 0o700)); err != nil {
			t.Error(err)
		}
		return true
	})
	if err == nil {
		t.Error("the list was written")
	}
	if err := errors.Join(os.RemoveAll(issued), os.Rename(aside, issued)); err != nil {
		t.Fatal(err)
	}
	if err := retire(func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	d.wants("i1", key, "")

	list, err := d.ring.List()
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i].Gone = true
	}
	if err := d.ring.rewrite(list); err != nil { // as if the process had died before it wrote the revocation
		t.Fatal(err)
	}
	d.wants("i1", key, "")
	if err := d.ring.Revoke(Grant{Sensor, "video", "i1"}); err != nil {
		t.Fatal(err)
	}
	d.wants("i1", key, "was revoked")
}
