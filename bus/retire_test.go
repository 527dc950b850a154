package bus

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestACredentialEndsWithItsInstance retires instances: one still runs, one is new, and one has a credential that a person made.
func TestACredentialEndsWithItsInstance(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	sensors := map[string]*Conn{}
	for _, id := range []string{"gone", "runs", "made"} {
		if id == "made" {
			if _, err := c.ring.Keep(Grant{Sensor, "video", id}, 0); err != nil {
				t.Fatal(err)
			}
		}
		o := as(c.server, c.ring, Sensor, id)
		o.Persistent = true
		sensors[id] = connect(t, o)
	}
	runs := func(id string) bool { return id != "runs" }
	text, err := c.ring.Find(Grant{Sensor, "video", "gone"})
	if err != nil {
		t.Fatal(err)
	}
	for service, before := range map[string]time.Time{"video": time.Now().Add(-time.Hour), "other": time.Now().Add(time.Hour)} {
		if ids, err := c.ring.Retire(service, before, runs); err != nil || len(ids) > 0 {
			t.Fatalf("service %s: retired %q, %v", service, ids, err)
		}
	}
	if ids, err := c.ring.Retire("video", time.Now().Add(time.Hour), runs); err != nil || !slices.Equal(ids, []string{"gone"}) {
		t.Fatalf("retired %q, %v", ids, err)
	}
	_, err = Connect(Options{URL: c.server.URL(), Identify: func() (Identity, error) { return Identity{Credential: text}, nil }})
	wantUserError(t, err, "refused the credential of sensor gone")
	for _, id := range []string{"runs", "made"} {
		if !sensors[id].Connected() {
			t.Errorf("%s is cut off", id)
		}
	}
	if _, err := os.Stat(c.ring.Path(Grant{Sensor, "video", "made"})); err != nil {
		t.Error(err)
	}
	if ids, err := c.ring.Retire("video", time.Now().Add(time.Hour), runs); err != nil || slices.Contains(ids, "made") {
		t.Errorf("retired %q, %v", ids, err)
	}
}

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
