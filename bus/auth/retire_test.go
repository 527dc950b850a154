package auth

import (
	"fmt"
	"io/fs"
	"os"
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
